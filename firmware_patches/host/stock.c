/* Stand-in for upstream's controller and high-level commander: takes off, goes, holds, lands. */
#include "stock.h"

#include <math.h>
#include <string.h>

static const float GRAVITY = 9.81f;
static const float KP[3] = {5, 5, 8}, KV[3] = {4, 4, 5}, KI[3] = {1, 1, 4}; /* 1/s^2, 1/s, 1/s^3 */
static const float KR[3] = {150, 150, 30}, KW[3] = {20, 20, 9};             /* 1/s^2, 1/s */
static const float LATERAL = 4, CLIMB = 5, SINK = 6, INTEGRAL = 2.5f;       /* limits, m/s^2 */
static const float ROTOR_LAG_S = 0.06f, ROTOR_LEAD = 2.5f;                  /* identified lags are 50 to 80 ms */
static const float LOWEST = 0.4f, HIGHEST = 1.8f;                           /* of a hold after a take-over, m */
static const float FAST = 0.8f, LAND_FAST = 0.5f, YAW_FAST = 1.5f;          /* mean speeds of a path, m/s, rad/s */
static const float TOUCH_M = 0.1f;                                           /* below a drone that stands */
static const float BLIND_AGE_S = 0.3f, BLIND_SINK = 0.3f;                   /* no pose: level and down, m/s */
static const float BLIND_VERTICAL_S = 2, BLIND_END_S = 6;

void stock_init(struct stock *stock, const struct airframe *airframe) {
  memset(stock, 0, sizeof *stock);
  stock->airframe = *airframe;
}

void stock_stop(struct stock *stock) {
  stock->mode = STOCK_GROUNDED;
  memset(stock->integral, 0, sizeof stock->integral);
  stock->blind_s = stock->touch_s = 0;
}

/* Quintic from (p, v) to rest at `end`. */
static void plan(float c[6], float p, float v, float end, float T) {
  const float d = end - p - v * T, e = -v * T;
  const float T3 = T * T * T;
  c[0] = p, c[1] = v, c[2] = 0;
  c[3] = (10 * d - 4 * e) / T3, c[4] = (-15 * d + 7 * e) / (T3 * T), c[5] = (6 * d - 3 * e) / (T3 * T * T);
}

struct point {
  float pos[4], vel[4], acc[4]; /* x y z yaw */
};

/* Landing goes on sinking behind its path's end. */
static struct point reference(const struct stock *stock) {
  struct point at;
  const float t = fminf(stock->time_s, stock->duration_s);
  for (int i = 0; i < 4; i++) {
    const float *c = stock->path[i];
    at.pos[i] = c[0] + t * (c[1] + t * (c[2] + t * (c[3] + t * (c[4] + t * c[5]))));
    at.vel[i] = c[1] + t * (2 * c[2] + t * (3 * c[3] + t * (4 * c[4] + t * 5 * c[5])));
    at.acc[i] = 2 * c[2] + t * (6 * c[3] + t * (12 * c[4] + t * 20 * c[5]));
  }
  if (stock->mode == STOCK_LANDING && stock->time_s > stock->duration_s) {
    const float ramp_s = 0.5f, sink = 0.25f, over = stock->time_s - stock->duration_s;
    const float part = fminf(over / ramp_s, 1);
    at.vel[2] = -sink * part;
    at.pos[2] -= sink * (over < ramp_s ? 0.5f * over * part : over - 0.5f * ramp_s);
  }
  return at;
}

static float heading(const float q[4]) {
  return atan2f(2 * (q[0] * q[1] + q[3] * q[2]), 1 - 2 * (q[1] * q[1] + q[2] * q[2]));
}

static float wrapped(float angle) { return remainderf(angle, 6.2831853f); }

static void start(struct stock *stock, const struct point *from, const float end[3], float yaw, float duration_s,
                  float fastest) {
  const float dx = end[0] - from->pos[0], dy = end[1] - from->pos[1], dz = end[2] - from->pos[2];
  const float turn = wrapped(yaw - from->pos[3]);
  const float shortest = fmaxf(sqrtf(dx * dx + dy * dy + dz * dz) / fastest, fabsf(turn) / YAW_FAST);
  stock->duration_s = fmaxf(fmaxf(duration_s, shortest), 0.5f);
  stock->time_s = 0;
  for (int i = 0; i < 3; i++) plan(stock->path[i], from->pos[i], from->vel[i], end[i], stock->duration_s);
  plan(stock->path[3], from->pos[3], from->vel[3], from->pos[3] + turn, stock->duration_s);
}

static struct point standing(const struct vehicle_state *state) {
  struct point at = {.pos = {state->pos[0], state->pos[1], state->pos[2], heading(state->quat)}};
  return at;
}

void stock_hold(struct stock *stock, const struct vehicle_state *state) {
  struct point at = standing(state);
  const float end[3] = {at.pos[0], at.pos[1], fminf(fmaxf(at.pos[2], LOWEST), HIGHEST)};
  stock_stop(stock);
  for (int i = 0; i < 3; i++) at.vel[i] = state->vel[i];
  stock->mode = STOCK_FLYING;
  start(stock, &at, end, at.pos[3], 1.5f, FAST);
}

static bool usable(float a, float b, float c, float duration_s) {
  return fabsf(a) < 100 && fabsf(b) < 100 && fabsf(c) < 100 && duration_s >= 0 && duration_s < 1e4f;
}

enum stock_error stock_take_off(struct stock *stock, const struct vehicle_state *state, float height_m, float yaw,
                                float duration_s) {
  if (!usable(height_m, 0, 0, duration_s)) return STOCK_INVALID;
  if (stock->mode != STOCK_GROUNDED) return STOCK_BUSY;
  const struct point at = standing(state);
  const float end[3] = {at.pos[0], at.pos[1], height_m};
  stock_stop(stock);
  stock->mode = STOCK_FLYING;
  start(stock, &at, end, isnan(yaw) ? at.pos[3] : yaw, duration_s, FAST);
  return STOCK_OK;
}

enum stock_error stock_go_to(struct stock *stock, bool relative, const float pos[3], float yaw, float duration_s) {
  if (!usable(pos[0], pos[1], pos[2], duration_s) || !isfinite(yaw)) return STOCK_INVALID;
  if (stock->mode == STOCK_GROUNDED) return STOCK_NOT_READY;
  const struct point at = reference(stock);
  float end[3];
  for (int i = 0; i < 3; i++) end[i] = pos[i] + (relative ? at.pos[i] : 0);
  stock->mode = STOCK_FLYING;
  start(stock, &at, end, yaw + (relative ? at.pos[3] : 0), duration_s, FAST);
  return STOCK_OK;
}

enum stock_error stock_land(struct stock *stock, float height_m, float yaw, float duration_s) {
  if (!usable(height_m, 0, 0, duration_s)) return STOCK_INVALID;
  if (stock->mode == STOCK_GROUNDED) return STOCK_NOT_READY;
  const struct point at = reference(stock);
  const float end[3] = {at.pos[0], at.pos[1], fminf(height_m, at.pos[2])};
  start(stock, &at, end, isnan(yaw) ? at.pos[3] : yaw, duration_s, LAND_FAST);
  stock->mode = STOCK_LANDING;
  stock->touch_s = 0;
  return STOCK_OK;
}

/* Acceleration to ask for, world frame, without gravity. */
static void accelerate(struct stock *stock, const struct vehicle_state *state, const struct point *at, float dt_s,
                       float acc[3]) {
  for (int i = 0; i < 3; i++) {
    const float error = at->pos[i] - state->pos[i];
    stock->integral[i] += KI[i] * fminf(fmaxf(error, -0.3f), 0.3f) * dt_s;
    stock->integral[i] = fminf(fmaxf(stock->integral[i], -INTEGRAL), INTEGRAL);
    acc[i] = at->acc[i] + KP[i] * error + KV[i] * (at->vel[i] - state->vel[i]) + stock->integral[i];
  }
  const float lateral = sqrtf(acc[0] * acc[0] + acc[1] * acc[1]);
  if (lateral > LATERAL) acc[0] *= LATERAL / lateral, acc[1] *= LATERAL / lateral;
  acc[2] = fminf(fmaxf(acc[2], -SINK), CLIMB);
}

static void cross(const float a[3], const float b[3], float c[3]) {
  c[0] = a[1] * b[2] - a[2] * b[1], c[1] = a[2] * b[0] - a[0] * b[2], c[2] = a[0] * b[1] - a[1] * b[0];
}

static void normalise(float v[3]) {
  const float length = sqrtf(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
  for (int i = 0; i < 3; i++) v[i] /= length;
}

/* Thrust per rotor: roll and pitch first, then the collective, then yaw with what is left. */
static void allocate(const struct airframe *airframe, float collective, const float torque[3], float thrust[4]) {
  const struct policy_rotor *rotor = &airframe->rotor;
  const float lever = 4 * airframe->arm_length_m, yaw_lever = 4 * airframe->rpm2torque[2] / rotor->rpm2thrust[2];
  const float span = rotor->thrust_max_N - rotor->thrust_min_N;
  float tilt[4], low = 0, high = 0;
  for (int i = 0; i < 4; i++) {
    tilt[i] = (airframe->mixing[0][i] * torque[0] + airframe->mixing[1][i] * torque[1]) / lever;
    low = fminf(low, tilt[i]), high = fmaxf(high, tilt[i]);
  }
  const float scale = high - low > span ? span / (high - low) : 1;
  const float lowest = rotor->thrust_min_N - scale * low, highest = rotor->thrust_max_N - scale * high;
  const float base = fminf(fmaxf(0.25f * collective, lowest), highest);
  float share = 1;
  for (int i = 0; i < 4; i++) {
    const float at = base + scale * tilt[i], yaw = airframe->mixing[2][i] * torque[2] / yaw_lever;
    const float room = fmaxf(yaw > 0 ? rotor->thrust_max_N - at : at - rotor->thrust_min_N, 0);
    if (fabsf(yaw) > room) share = fminf(share, room / fabsf(yaw));
  }
  for (int i = 0; i < 4; i++) {
    thrust[i] = base + scale * tilt[i] + share * airframe->mixing[2][i] * torque[2] / yaw_lever;
  }
}

/* Geometric tracking of acc + gravity and yaw (Lee, Leok, McClamroch 2010, eq. 10-16). Returns rotor speeds. */
static void attitude(struct stock *stock, const struct vehicle_state *state, const float acc[3], float yaw,
                     float rpm[4]) {
  const struct airframe *airframe = &stock->airframe;
  const float *q = state->quat, *w = state->ang_vel;
  const float xx = q[0] * q[0], yy = q[1] * q[1], zz = q[2] * q[2], xy = q[0] * q[1], xz = q[0] * q[2];
  const float yz = q[1] * q[2], wx = q[3] * q[0], wy = q[3] * q[1], wz = q[3] * q[2];
  const float x[3] = {1 - 2 * (yy + zz), 2 * (xy + wz), 2 * (xz - wy)};
  const float y[3] = {2 * (xy - wz), 1 - 2 * (xx + zz), 2 * (yz + wx)};
  const float z[3] = {2 * (xz + wy), 2 * (yz - wx), 1 - 2 * (xx + yy)};
  const float force[3] = {acc[0], acc[1], acc[2] + GRAVITY};
  float zd[3] = {force[0], force[1], force[2]}, xd[3] = {cosf(yaw), sinf(yaw), 0}, yd[3], torque[3], thrust[4];
  normalise(zd);
  cross(zd, xd, yd);
  normalise(yd);
  cross(yd, zd, xd);
  float error[3] = {0}; /* 1/2 (Rd' R - R' Rd)^v = 1/2 sum of body axis x desired axis, seen from the body */
  const float *axes[3] = {x, y, z}, *wanted[3] = {xd, yd, zd};
  for (int i = 0; i < 3; i++) {
    float turn[3];
    cross(wanted[i], axes[i], turn);
    for (int j = 0; j < 3; j++) error[j] += 0.5f * (axes[j][0] * turn[0] + axes[j][1] * turn[1] + axes[j][2] * turn[2]);
  }
  const float *J = airframe->inertia, Jw[3] = {J[0] * w[0], J[1] * w[1], J[2] * w[2]};
  cross(w, Jw, torque);
  for (int i = 0; i < 3; i++) torque[i] -= J[i] * (KR[i] * error[i] + KW[i] * w[i]);
  const float collective = airframe->mass_kg * (force[0] * z[0] + force[1] * z[1] + force[2] * z[2]);
  allocate(airframe, collective, torque, thrust);
  const float lowest = policy_thrust_to_rpm(&airframe->rotor, airframe->rotor.thrust_min_N);
  const float highest = policy_thrust_to_rpm(&airframe->rotor, airframe->rotor.thrust_max_N);
  for (int i = 0; i < 4; i++) { /* lead against the rotors' lag */
    const float wish = policy_thrust_to_rpm(&airframe->rotor, thrust[i]);
    rpm[i] = fminf(fmaxf(stock->rotor_rpm[i] + ROTOR_LEAD * (wish - stock->rotor_rpm[i]), lowest), highest);
  }
}

void stock_follow(struct stock *stock, const float rpm[4], float dt_s) {
  for (int i = 0; i < 4; i++) stock->rotor_rpm[i] += (rpm[i] - stock->rotor_rpm[i]) * dt_s / ROTOR_LAG_S;
}

bool stock_step(struct stock *stock, const struct vehicle_state *state, float estimator_age_s, float dt_s,
                float rpm[4]) {
  memset(rpm, 0, 4 * sizeof *rpm);
  if (stock->mode == STOCK_GROUNDED) return false;
  float acc[3] = {0};
  bool landed = false;
  stock->time_s += dt_s;
  if (estimator_age_s > BLIND_AGE_S) { /* no position to hold: level, and down */
    stock->blind_s += dt_s;
    acc[2] = stock->blind_s < BLIND_VERTICAL_S ? fminf(fmaxf(KV[2] * (-BLIND_SINK - state->vel[2]), -2), 2) : -0.7f;
    landed = stock->blind_s > BLIND_END_S;
  } else {
    if (stock->blind_s > 0) { /* sees again */
      const bool landing = stock->mode == STOCK_LANDING;
      stock_hold(stock, state);
      if (landing) stock_land(stock, state->pos[2], NAN, 0);
    }
    const struct point at = reference(stock);
    accelerate(stock, state, &at, dt_s, acc);
    if (!isfinite(stock->path[0][0] + stock->path[1][0] + stock->path[2][0] + stock->path[3][0])) {
      stock_hold(stock, state); /* it took over from an estimate that was not finite */
    }
    /* On the ground the reference sinks away below and nothing moves. In the air the drone would follow it. */
    const bool held_up = state->pos[2] - at.pos[2] > TOUCH_M || acc[2] < -0.25f * GRAVITY;
    const bool touching = stock->mode == STOCK_LANDING && held_up && fabsf(state->vel[2]) < 0.1f;
    stock->touch_s = touching ? stock->touch_s + dt_s : 0;
    landed = stock->touch_s > 0.1f;
  }
  if (landed) {
    stock_stop(stock);
    return true;
  }
  attitude(stock, state, acc, stock->blind_s > 0 ? heading(state->quat) : reference(stock).pos[3], rpm);
  return false;
}
