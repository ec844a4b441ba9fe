/* The onboard network: observation, forward pass, action to rotor speed. Knows no bank, no radio, no clock. */
#include "policy.h"

#include <math.h>
#include <string.h>

const struct policy_arch policy_archs[POLICY_ARCHS] = {
    {.id = 1, .in = 20, .hidden = 8, .params = 276},
    {.id = 2, .in = 20, .hidden = 16, .params = 676},
    {.id = 3, .in = 36, .hidden = 16, .params = POLICY_MAX_PARAM},
};

const struct policy_arch *policy_arch(uint16_t id) {
  for (int i = 0; i < POLICY_ARCHS; i++) {
    if (policy_archs[i].id == id) return &policy_archs[i];
  }
  return NULL;
}

float policy_half_to_float(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000) << 16;
  uint32_t exponent = half >> 10 & 0x1F;
  uint32_t fraction = half & 0x3FF;
  uint32_t bits;
  if (exponent == 0x1F) {
    bits = 0x7F800000 | fraction << 13; /* infinity and NaN keep their payload */
  } else if (exponent != 0) {
    bits = (exponent + 127 - 15) << 23 | fraction << 13;
  } else if (fraction == 0) {
    bits = 0;
  } else { /* subnormal half: 2^-24 x fraction is a normal float */
    exponent = 127 - 15 + 1;
    while (!(fraction & 0x400)) {
      fraction <<= 1;
      exponent--;
    }
    bits = exponent << 23 | (fraction & 0x3FF) << 13;
  }
  bits |= sign;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

uint16_t policy_float_to_half(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  uint32_t sign = bits >> 16 & 0x8000;
  bits &= 0x7FFFFFFF;
  if (bits > 0x7F800000) return (uint16_t)(sign | 0x7C00 | (bits >> 13 & 0x3FF) | (bits >> 13 & 0x3FF ? 0 : 0x200));
  if (bits >= 0x477FF000) return (uint16_t)(sign | 0x7C00); /* 65,520 and above round to infinity */
  if (bits < 0x33000000) return (uint16_t)sign;             /* below 2^-25 rounds to zero */
  uint32_t exponent = bits >> 23;
  uint32_t fraction = (bits & 0x7FFFFF) | 0x800000;
  uint32_t shift = exponent < 113 ? 126 - exponent : 13; /* 113: exponent of the smallest normal half */
  uint32_t half = fraction >> shift;
  uint32_t rest = fraction & ((1u << shift) - 1), tie = 1u << (shift - 1);
  if (rest > tie || (rest == tie && (half & 1))) half++;
  /* a normal half carries its hidden bit (0x400) in `half`, so one less is added to the exponent */
  return (uint16_t)(sign | (exponent < 113 ? half : half + ((exponent - 113) << 10)));
}

void policy_observe(const struct policy_arch *arch, const struct vehicle_state *state, float target_m,
                    float past[POLICY_PAST][POLICY_OUT], float *obs) {
  const float x = state->quat[0], y = state->quat[1], z = state->quat[2], w = state->quat[3];
  const float *v = state->vel;
  const float gx = 2 * (x * z - w * y), gy = 2 * (y * z + w * x), gz = 1 - 2 * (x * x + y * y);
  const float vx = 0.6f * ((1 - 2 * (y * y + z * z)) * v[0] + 2 * (x * y + w * z) * v[1] + gx * v[2]);
  const float vy = 0.6f * (2 * (x * y - w * z) * v[0] + (1 - 2 * (x * x + z * z)) * v[1] + gy * v[2]);
  const float vz = 0.6f * (2 * (x * z + w * y) * v[0] + 2 * (y * z - w * x) * v[1] + gz * v[2]);
  const float height = tanhf(state->pos[2] - target_m);
  const float first[20] = {gx,
                           gy,
                           gz,
                           vx,
                           vy,
                           vz,
                           0.15f * state->ang_vel[0],
                           0.15f * state->ang_vel[1],
                           0.15f * state->ang_vel[2],
                           height,
                           0.5f * v[2],
                           past[0][0],
                           past[0][1],
                           past[0][2],
                           past[0][3],
                           gx * gz,
                           gy * gz,
                           height * gz,
                           vx * gz,
                           vy * gz};
  memcpy(obs, first, sizeof first);
  for (int i = 20; i < arch->in; i++) obs[i] = past[1 + (i - 20) / POLICY_OUT][(i - 20) % POLICY_OUT];
}

void policy_canned(const struct policy_arch *arch, float *obs) {
  for (int i = 0; i < arch->in; i++) obs[i] = 0.1f * (float)(i % 7) - 0.3f;
}

/* y = x W + b; returns the parameters behind this layer. */
static const float *layer(const float *params, const float *x, int in, float *y, int out) {
  const float *bias = params + in * out;
  memcpy(y, bias, (size_t)out * sizeof *y);
  for (int i = 0; i < in; i++, params += out) {
    for (int j = 0; j < out; j++) y[j] += params[j] * x[i];
  }
  return bias + out;
}

static void relu(float *y, int n) {
  for (int i = 0; i < n; i++) y[i] = y[i] < 0 ? 0 : y[i]; /* a NaN stays one and is seen below */
}

bool policy_forward(const struct policy_arch *arch, const float *params, const float *obs, float action[POLICY_OUT]) {
  float first[POLICY_MAX_HIDDEN], second[POLICY_MAX_HIDDEN];
  bool finite = true;
  for (int i = 0; i < arch->in; i++) finite = finite && isfinite(obs[i]);
  params = layer(params, obs, arch->in, first, arch->hidden);
  relu(first, arch->hidden);
  params = layer(params, first, arch->hidden, second, arch->hidden);
  relu(second, arch->hidden);
  layer(params, second, arch->hidden, action, POLICY_OUT);
  for (int i = 0; i < POLICY_OUT; i++) {
    finite = finite && isfinite(action[i]);
    action[i] = tanhf(action[i]);
  }
  return finite;
}

float policy_thrust_to_rpm(const struct policy_rotor *rotor, float thrust_N) {
  const float k0 = rotor->rpm2thrust[0], k1 = rotor->rpm2thrust[1], k2 = rotor->rpm2thrust[2];
  const float inside = k1 * k1 - 4 * k2 * (k0 - thrust_N);
  return inside > 0 ? (-k1 + sqrtf(inside)) / (2 * k2) : 0;
}

float policy_rpm(const struct policy_rotor *rotor, float action) {
  const float share = 0.5f * (action + 1);
  return policy_thrust_to_rpm(rotor, rotor->thrust_min_N + share * (rotor->thrust_max_N - rotor->thrust_min_N));
}
