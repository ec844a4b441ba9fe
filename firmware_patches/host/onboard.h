/* One virtual Crazyflie's processor: sensors and packets in, rotor speeds and packets out. No radio, no physics, no
 * clock but its own 1 kHz ticks. Puts together the chip's files (../src) and the stand-ins for upstream's.
 */
#ifndef MIDAIR_ONBOARD_H
#define MIDAIR_ONBOARD_H

#include <stdbool.h>
#include <stdint.h>

#include "../src/gate.h"
#include "../src/weights.h"
#include "estimator.h"
#include "stock.h"
#include "supervisor.h"

enum { ONBOARD_QUEUE = 64 };

struct onboard_packet {
  uint8_t port, channel, size, data[WIRE_PACKET];
};

struct onboard {
  uint32_t tick_ms;
  float battery_V;
  float rpm[4];
  bool stock_has_control, setpoint_stop;
  struct estimator estimator;
  struct supervisor supervisor;
  struct stock stock;
  struct weights weights;
  struct gate gate;
  struct onboard_packet queue[ONBOARD_QUEUE];
  uint16_t queue_head, queue_tail;
  uint32_t received, malformed, overflowed;
};

/* What a test or a display may look at. Layout shared with onboard.py: 4-byte fields only. */
struct onboard_snapshot {
  float pos[3], quat[4], vel[3], ang_vel[3], gyro_bias[3], accel_bias[3];
  float estimator_age_s, battery_V, target_m;
  uint32_t tick_ms, control, bank[2], policy, supervisor, stock_mode;
  uint32_t window_open, free_fall, released, active_bank;
  uint32_t poses_accepted, poses_rejected, poses_refused, estimator_resets;
  uint32_t received, malformed, dropped, ignored, overflowed;
};

uint32_t onboard_size(void);
uint32_t onboard_snapshot_size(void);
/* `figures`: mass, inertia 3, arm, rpm2thrust 3, rpm2torque 3, thrust min, thrust max, mixing 12, idle rpm. */
void onboard_init(struct onboard *onboard, const float figures[26]);
/* 1 kHz. rad/s, m/s^2 (specific force), V; body frame. Writes four rotor speeds in rpm, 0 = off. */
void onboard_tick(struct onboard *onboard, float gx, float gy, float gz, float ax, float ay, float az, float battery_V,
                  float rpm[4]);
/* One CRTP packet from the ground; any port, channel and size. */
void onboard_receive(struct onboard *onboard, int port, int channel, const uint8_t *data, int size);
/* Next packet down: port << 16 | channel << 8 | size, or -1. */
int onboard_transmit(struct onboard *onboard, uint8_t data[WIRE_PACKET]);
/* What its LEDs tell: control state, and bit 8 while the throw window is open. */
uint32_t onboard_lights(const struct onboard *onboard);
void onboard_look(const struct onboard *onboard, struct onboard_snapshot *snapshot);

/* crtp.c: everything on other ports than the upload's. */
void onboard_dispatch(struct onboard *onboard, int port, int channel, const uint8_t *data, int size);
void onboard_send(struct onboard *onboard, int port, int channel, const uint8_t *data, int size);
uint16_t onboard_supervisor_bits(const struct onboard *onboard);

#endif
