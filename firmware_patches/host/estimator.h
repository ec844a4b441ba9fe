/* Stand-in for upstream's Kalman filter: an error-state filter on gyro, accelerometer and radioed poses.
 *
 * Nominal state: position, velocity, attitude, gyro bias, accelerometer bias. Errors (15): dp, dv (world), dtheta
 * (body, R = R^ exp(dtheta)), dbg, dba. Not the flight firmware's code and not tuned like it; it knows what a
 * Crazyflie knows.
 */
#ifndef MIDAIR_ESTIMATOR_H
#define MIDAIR_ESTIMATOR_H

#include <stdbool.h>
#include <stdint.h>

#include "../src/policy.h"

enum { ESTIMATOR_ERRORS = 15 };

struct estimator {
  bool ready; /* a pose has been seen */
  bool odd;   /* samples since then */
  struct vehicle_state state;
  float gyro_bias[3], accel_bias[3]; /* rad/s, m/s^2 */
  float cov[ESTIMATOR_ERRORS][ESTIMATOR_ERRORS];
  float age_s; /* since the last accepted pose */
  /* poses that do not fit the state but each other: the first and the last of them */
  int rejects;
  float first_reject_pos[3], last_reject_pos[3], reject_quat[4];
  float since_first_reject_s, since_last_reject_s;
  uint32_t accepted, rejected, refused, resets;
};

void estimator_init(struct estimator *estimator);

/* One IMU sample: rad/s and specific force in m/s^2, body frame. A sample that is not finite is skipped. */
void estimator_imu(struct estimator *estimator, const float gyro[3], const float accel[3], float dt_s);

/* A pose valid now (the ground has predicted it to its arrival), xyzw. False: refused or rejected. */
bool estimator_pose(struct estimator *estimator, const float pos[3], const float quat[4]);

#endif
