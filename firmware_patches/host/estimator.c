/* Stand-in for upstream's Kalman filter: an error-state filter on gyro, accelerometer and radioed poses. */
#include "estimator.h"

#include <math.h>
#include <string.h>

enum { P = 0, V = 3, A = 6, BG = 9, BA = 12, N = ESTIMATOR_ERRORS };

static const float GRAVITY = 9.81f;
/* Larger than the sensors' noise: scale errors, vibration and the motion within a sample ride on top of it. */
static const float GYRO_STD = 0.04f, ACCEL_STD = 1.0f;            /* rad/s, m/s^2 per sample at 1 kHz */
static const float GYRO_WALK = 1e-3f, ACCEL_WALK = 2e-2f;         /* per sqrt(s) */
static const float POSE_POS_STD = 0.004f, POSE_ATT_STD = 0.012f;  /* m, rad: noise and the ground's prediction */
static const float GATE = 100;                                    /* chi^2 of 6; 5 cm off in a settled filter */
static const int RESET_AFTER = 5;                                 /* poses that agree with each other */

void estimator_init(struct estimator *estimator) {
  memset(estimator, 0, sizeof *estimator);
  estimator->state.quat[3] = 1;
  estimator->age_s = 1e6f;
}

static bool finite3(const float v[3]) { return isfinite(v[0]) && isfinite(v[1]) && isfinite(v[2]); }

static void rotation(const float q[4], float R[3][3]) {
  const float x = q[0], y = q[1], z = q[2], w = q[3];
  R[0][0] = 1 - 2 * (y * y + z * z), R[0][1] = 2 * (x * y - w * z), R[0][2] = 2 * (x * z + w * y);
  R[1][0] = 2 * (x * y + w * z), R[1][1] = 1 - 2 * (x * x + z * z), R[1][2] = 2 * (y * z - w * x);
  R[2][0] = 2 * (x * z - w * y), R[2][1] = 2 * (y * z + w * x), R[2][2] = 1 - 2 * (x * x + y * y);
}

/* q <- q exp(v), normalised. */
static void turn(float q[4], const float v[3]) {
  const float angle = sqrtf(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
  const float square = angle * angle;
  const float s = angle > 0.1f ? sinf(0.5f * angle) / angle : 0.5f - square / 48;
  const float w = angle > 0.1f ? cosf(0.5f * angle) : 1 - square / 8 + square * square / 384;
  const float x = s * v[0], y = s * v[1], z = s * v[2];
  const float r[4] = {q[3] * x + q[0] * w + q[1] * z - q[2] * y, q[3] * y - q[0] * z + q[1] * w + q[2] * x,
                      q[3] * z + q[0] * y - q[1] * x + q[2] * w, q[3] * w - q[0] * x - q[1] * y - q[2] * z};
  const float scale = 1 / sqrtf(r[0] * r[0] + r[1] * r[1] + r[2] * r[2] + r[3] * r[3]);
  for (int i = 0; i < 4; i++) q[i] = scale * r[i];
}

/* Rotation vector from p to q in the frame of p, the short way round. */
static void rotation_between(const float p[4], const float q[4], float v[3]) {
  float x = p[3] * q[0] - p[0] * q[3] - p[1] * q[2] + p[2] * q[1];
  float y = p[3] * q[1] + p[0] * q[2] - p[1] * q[3] - p[2] * q[0];
  float z = p[3] * q[2] - p[0] * q[1] + p[1] * q[0] - p[2] * q[3];
  float w = p[3] * q[3] + p[0] * q[0] + p[1] * q[1] + p[2] * q[2];
  if (w < 0) x = -x, y = -y, z = -z, w = -w;
  const float s = sqrtf(x * x + y * y + z * z);
  const float scale = s > 1e-6f ? 2 * atan2f(s, w) / s : 2;
  v[0] = scale * x, v[1] = scale * y, v[2] = scale * z;
}

/* F cov (along = N, across = 1) or cov F' (along = 1, across = N), in place: one column or row at a time. */
static void propagate_side(float *m, int along, int across, const float B[3][3], const float C[3][3],
                           const float w[3], float dt) {
  for (int j = 0; j < N; j++, m += across) {
    const float a0 = m[(A + 0) * along], a1 = m[(A + 1) * along], a2 = m[(A + 2) * along];
    const float b0 = m[(BA + 0) * along], b1 = m[(BA + 1) * along], b2 = m[(BA + 2) * along];
    for (int i = 0; i < 3; i++) {
      m[(P + i) * along] += dt * m[(V + i) * along];
      m[(V + i) * along] += dt * (B[i][0] * a0 + B[i][1] * a1 + B[i][2] * a2 + C[i][0] * b0 + C[i][1] * b1 +
                                  C[i][2] * b2);
    }
    m[(A + 0) * along] += dt * (w[2] * a1 - w[1] * a2 - m[(BG + 0) * along]);
    m[(A + 1) * along] += dt * (w[0] * a2 - w[2] * a0 - m[(BG + 1) * along]);
    m[(A + 2) * along] += dt * (w[1] * a0 - w[0] * a1 - m[(BG + 2) * along]);
  }
}

/* cov <- F cov F' + Q with F = I + dt [0 I 0 0 0; 0 0 -R[a]x 0 -R; 0 0 -[w]x -I 0; 0; 0]; dt spans two samples. */
static void propagate(struct estimator *estimator, float R[3][3], const float a[3], const float w[3], float dt) {
  float B[3][3], C[3][3];
  for (int i = 0; i < 3; i++) {
    B[i][0] = R[i][2] * a[1] - R[i][1] * a[2];
    B[i][1] = R[i][0] * a[2] - R[i][2] * a[0];
    B[i][2] = R[i][1] * a[0] - R[i][0] * a[1];
    for (int j = 0; j < 3; j++) C[i][j] = -R[i][j];
  }
  propagate_side(&estimator->cov[0][0], N, 1, B, C, w, dt);
  propagate_side(&estimator->cov[0][0], 1, N, B, C, w, dt);
  for (int i = 0; i < 3; i++) {
    estimator->cov[V + i][V + i] += 0.5f * ACCEL_STD * ACCEL_STD * dt * dt;
    estimator->cov[A + i][A + i] += 0.5f * GYRO_STD * GYRO_STD * dt * dt;
    estimator->cov[BG + i][BG + i] += GYRO_WALK * GYRO_WALK * dt;
    estimator->cov[BA + i][BA + i] += ACCEL_WALK * ACCEL_WALK * dt;
  }
}

void estimator_imu(struct estimator *estimator, const float gyro[3], const float accel[3], float dt_s) {
  struct vehicle_state *state = &estimator->state;
  if (estimator->age_s < 1e6f) estimator->age_s += dt_s;
  estimator->since_first_reject_s += dt_s;
  estimator->since_last_reject_s += dt_s;
  if (!finite3(gyro) || !finite3(accel)) return;
  float a[3], w[3], step[3], mid[4], R[3][3];
  for (int i = 0; i < 3; i++) {
    w[i] = gyro[i] - estimator->gyro_bias[i];
    a[i] = accel[i] - estimator->accel_bias[i];
    state->ang_vel[i] = w[i];
    step[i] = 0.5f * dt_s * w[i];
  }
  if (!estimator->ready) return;
  memcpy(mid, state->quat, sizeof mid);
  turn(mid, step); /* the attitude in the middle of the sample */
  rotation(mid, R);
  memcpy(state->quat, mid, sizeof mid);
  turn(state->quat, step);
  for (int i = 0; i < 3; i++) {
    const float world = R[i][0] * a[0] + R[i][1] * a[1] + R[i][2] * a[2] - (i == 2 ? GRAVITY : 0);
    state->pos[i] += dt_s * (state->vel[i] + 0.5f * dt_s * world);
    state->vel[i] += dt_s * world;
  }
  estimator->odd = !estimator->odd; /* the covariance moves slowly: every second sample will do */
  if (!estimator->odd) propagate(estimator, R, a, w, 2 * dt_s);
}

static void reset(struct estimator *estimator, const float pos[3], const float quat[4], const float vel[3],
                  float vel_std) {
  static const float att_std = 0.03f, gyro_bias_std = 0.05f, accel_bias_std = 0.4f;
  memset(estimator->cov, 0, sizeof estimator->cov);
  memcpy(estimator->state.pos, pos, sizeof estimator->state.pos);
  memcpy(estimator->state.vel, vel, sizeof estimator->state.vel);
  memcpy(estimator->state.quat, quat, sizeof estimator->state.quat);
  for (int i = 0; i < 3; i++) {
    estimator->cov[P + i][P + i] = 4 * POSE_POS_STD * POSE_POS_STD;
    estimator->cov[V + i][V + i] = vel_std * vel_std;
    estimator->cov[A + i][A + i] = att_std * att_std;
    estimator->cov[BG + i][BG + i] = gyro_bias_std * gyro_bias_std;
    estimator->cov[BA + i][BA + i] = accel_bias_std * accel_bias_std;
    estimator->gyro_bias[i] = fminf(fmaxf(estimator->gyro_bias[i], -0.2f), 0.2f);
    estimator->accel_bias[i] = fminf(fmaxf(estimator->accel_bias[i], -1), 1);
    if (!isfinite(estimator->gyro_bias[i])) estimator->gyro_bias[i] = 0;
    if (!isfinite(estimator->accel_bias[i])) estimator->accel_bias[i] = 0;
  }
  estimator->ready = true;
  estimator->age_s = 0;
  estimator->rejects = 0;
  estimator->resets++;
}

/* Remembers a pose that did not fit; after several that fit each other, they are right and the state is wrong. */
static bool reject(struct estimator *estimator, const float pos[3], const float quat[4]) {
  static const float still[3] = {0};
  float turned[3], moved = 0, angle = 0;
  rotation_between(estimator->reject_quat, quat, turned);
  for (int i = 0; i < 3; i++) {
    moved += (pos[i] - estimator->last_reject_pos[i]) * (pos[i] - estimator->last_reject_pos[i]);
    angle += turned[i] * turned[i];
  }
  const bool follows = estimator->rejects > 0 && estimator->since_last_reject_s < 0.1f && moved < 0.15f * 0.15f &&
                       angle < 0.5f * 0.5f;
  if (!follows) {
    estimator->rejects = 0;
    estimator->since_first_reject_s = 0;
    memcpy(estimator->first_reject_pos, pos, sizeof estimator->first_reject_pos);
  }
  estimator->rejects++;
  estimator->rejected++;
  estimator->since_last_reject_s = 0;
  memcpy(estimator->last_reject_pos, pos, sizeof estimator->last_reject_pos);
  memcpy(estimator->reject_quat, quat, sizeof estimator->reject_quat);
  if (estimator->rejects < RESET_AFTER) return false;
  float vel[3];
  const float span = estimator->since_first_reject_s;
  for (int i = 0; i < 3; i++) vel[i] = span > 0.01f ? (pos[i] - estimator->first_reject_pos[i]) / span : 0;
  reset(estimator, pos, quat, span > 0.01f ? vel : still, 1);
  return true;
}

bool estimator_pose(struct estimator *estimator, const float pos[3], const float quat[4]) {
  static const float still[3] = {0};
  struct vehicle_state *state = &estimator->state;
  float unit[4], length = 0;
  for (int i = 0; i < 4; i++) length += quat[i] * quat[i];
  length = sqrtf(length);
  if (!finite3(pos) || !(length > 0.7f && length < 1.4f) || fabsf(pos[0]) > 100 || fabsf(pos[1]) > 100 ||
      fabsf(pos[2]) > 100) {
    estimator->refused++;
    return false;
  }
  for (int i = 0; i < 4; i++) unit[i] = quat[i] / length;
  if (!estimator->ready || !finite3(state->pos) || !finite3(state->vel) || !isfinite(state->quat[3])) {
    reset(estimator, pos, unit, still, 3); /* the first pose may come in any attitude and in motion */
    estimator->accepted++;
    return true;
  }
  /* Scalar updates one after the other on copies; their chi^2 sum to that of all six, and decide. */
  float cov[N][N], error[N] = {0}, innovation[6], chi2 = 0;
  memcpy(cov, estimator->cov, sizeof cov);
  for (int i = 0; i < 3; i++) innovation[i] = pos[i] - state->pos[i];
  rotation_between(state->quat, unit, innovation + 3);
  for (int k = 0; k < 6; k++) {
    const int at = k < 3 ? P + k : A + k - 3;
    const float std = k < 3 ? POSE_POS_STD : POSE_ATT_STD;
    const float s = cov[at][at] + std * std, left = innovation[k] - error[at];
    float gain[N];
    chi2 += left * left / s;
    for (int i = 0; i < N; i++) {
      gain[i] = cov[i][at] / s;
      error[i] += gain[i] * left;
    }
    for (int i = 0; i < N; i++) {
      for (int j = i; j < N; j++) {
        cov[i][j] -= gain[i] * gain[j] * s;
        cov[j][i] = cov[i][j];
      }
    }
  }
  if (!(chi2 < GATE)) return reject(estimator, pos, unit);
  memcpy(estimator->cov, cov, sizeof cov);
  for (int i = 0; i < 3; i++) {
    state->pos[i] += error[P + i];
    state->vel[i] += error[V + i];
    estimator->gyro_bias[i] += error[BG + i];
    estimator->accel_bias[i] += error[BA + i];
    state->ang_vel[i] -= error[BG + i];
  }
  turn(state->quat, error + A);
  estimator->age_s = 0;
  estimator->rejects = 0;
  estimator->accepted++;
  return true;
}
