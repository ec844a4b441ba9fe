/* The onboard network: observation, forward pass, action to rotor speed. Knows no bank, no radio, no clock. */
#ifndef MIDAIR_POLICY_H
#define MIDAIR_POLICY_H

#include <stdbool.h>
#include <stdint.h>

enum {
  POLICY_ARCHS = 3,
  POLICY_MAX_IN = 36,
  POLICY_MAX_HIDDEN = 16,
  POLICY_OUT = 4,
  POLICY_MAX_PARAM = 932, /* of arch 3 */
  POLICY_PAST = 5,        /* past actions that arch 3 sees */
};

/* What a Crazyflie believes about itself. World z up, quaternion xyzw body to world, rates in the body frame. */
struct vehicle_state {
  float pos[3];     /* m */
  float quat[4];    /* unit */
  float vel[3];     /* m/s, world */
  float ang_vel[3]; /* rad/s, body */
};

/* in - hidden - hidden - out, ReLU, ReLU, tanh; flat order W0 [in][out], b0, W1, b1, W2, b2. */
struct policy_arch {
  uint16_t id, in, hidden, params;
};

/* Thrust of one rotor: rpm2thrust[0] + [1] rpm + [2] rpm^2, N. */
struct policy_rotor {
  float thrust_min_N, thrust_max_N, rpm2thrust[3];
};

extern const struct policy_arch policy_archs[POLICY_ARCHS];

/* NULL when this firmware has no such architecture. */
const struct policy_arch *policy_arch(uint16_t id);

/* IEEE 754 binary16, by its bits, so that any compiler may be used. To half: round to nearest, ties to even. */
float policy_half_to_float(uint16_t half);
uint16_t policy_float_to_half(float value);

/* past[0] is the action of the previous 500 Hz tick, past[1] the one before it. Fills arch->in numbers:
 *   0-2 world up in the body frame g   3-5 0.6 v_body   6-8 0.15 omega   9 tanh(z - z_target)   10 0.5 v_z
 *   11-14 past[0]   15 g_x g_z   16 g_y g_z   17 tanh(z - z_target) g_z   18 0.6 v_bx g_z   19 0.6 v_by g_z
 *   20-35 past[1] .. past[4] (arch 3 only)
 */
void policy_observe(const struct policy_arch *arch, const struct vehicle_state *state, float target_m,
                    float past[POLICY_PAST][POLICY_OUT], float *obs);

/* The observation that every COMMIT is checked on: o_i = 0.1 (i mod 7) - 0.3. */
void policy_canned(const struct policy_arch *arch, float *obs);

/* false when an input or output is not finite; `action` is then not to be used. */
bool policy_forward(const struct policy_arch *arch, const float *params, const float *obs, float action[POLICY_OUT]);

/* Action in [-1, 1] to thrust in [min, max] to rotor speed, rpm. */
float policy_rpm(const struct policy_rotor *rotor, float action);

/* Speed of a rotor that gives this thrust, rpm. */
float policy_thrust_to_rpm(const struct policy_rotor *rotor, float thrust_N);

#endif
