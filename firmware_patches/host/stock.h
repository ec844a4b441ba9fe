/* Stand-in for upstream's controller and high-level commander: takes off, goes, holds, lands. Not the flight firmware's
 * code. A geometric attitude controller under a position controller at 500 Hz, on the onboard estimate only.
 */
#ifndef MIDAIR_STOCK_H
#define MIDAIR_STOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "../src/policy.h"

/* Nominal figures: what the firmware believes. Layout shared with onboard.py. */
struct airframe {
  float mass_kg;
  float inertia[3];
  float arm_length_m;
  float rpm2torque[3]; /* N m */
  struct policy_rotor rotor;
  float mixing[3][4]; /* signs of roll, pitch, yaw */
  float idle_rpm;
};

enum stock_mode { STOCK_GROUNDED, STOCK_FLYING, STOCK_LANDING };

/* Error codes of a high-level command's echo (errno.h's numbers, as upstream's). */
enum stock_error { STOCK_OK = 0, STOCK_NOT_READY = 8, STOCK_BUSY = 16, STOCK_INVALID = 22 };

struct stock {
  struct airframe airframe;
  uint8_t mode;
  float path[4][6];               /* quintics of x y z (m) and yaw (rad) in time */
  float time_s, duration_s;
  float integral[3];              /* m/s^2 */
  float rotor_rpm[4];             /* where the rotors should be by now */
  float blind_s, touch_s;
};

void stock_init(struct stock *stock, const struct airframe *airframe);

/* Rotors off, nothing remembered. */
void stock_stop(struct stock *stock);

/* Takes over in flight: stops where it is, between 0.4 and 1.8 m. */
void stock_hold(struct stock *stock, const struct vehicle_state *state);

/* Heights are absolute. A NaN yaw means: the present one. Durations are stretched to what the airframe can. */
enum stock_error stock_take_off(struct stock *stock, const struct vehicle_state *state, float height_m, float yaw,
                                float duration_s);
enum stock_error stock_go_to(struct stock *stock, bool relative, const float pos[3], float yaw, float duration_s);
enum stock_error stock_land(struct stock *stock, float height_m, float yaw, float duration_s);

/* One 500 Hz step: rotor speeds in rpm, 0 = off. True once: it has landed and stopped the rotors. */
bool stock_step(struct stock *stock, const struct vehicle_state *state, float estimator_age_s, float dt_s,
                float rpm[4]);

/* Tells the rotor model what was sent to the motors, by whomever. */
void stock_follow(struct stock *stock, const float rpm[4], float dt_s);

#endif
