/* Stand-in for upstream's supervisor: may the motors run? Arming, e-stop, tumble. Knows no controller. */
#include "supervisor.h"

#include <math.h>
#include <string.h>

static const float G = 9.81f;
/* Upstream's limits: acc.z < 0.5 g for 1 s or < -0.2 g for 0.1 s; free fall (all axes below 0.1 g) is no tumble. */
enum { LYING_MS = 1000, INVERTED_MS = 100, UPRIGHT_MS = 500 };

void supervisor_init(struct supervisor *supervisor) { memset(supervisor, 0, sizeof *supervisor); }

static uint16_t count(bool yes, uint16_t value) { return yes ? (uint16_t)(value + (value < 60000)) : 0; }

void supervisor_accelerometer(struct supervisor *supervisor, const float accel[3], bool check) {
  const bool falling = fabsf(accel[0]) < 0.1f * G && fabsf(accel[1]) < 0.1f * G && fabsf(accel[2]) < 0.1f * G;
  const bool watched = check && !falling;
  supervisor->lying_ms = count(watched && accel[2] < 0.5f * G, supervisor->lying_ms);
  supervisor->inverted_ms = count(watched && accel[2] < -0.2f * G, supervisor->inverted_ms);
  supervisor->upright_ms = count(accel[2] >= 0.5f * G, supervisor->upright_ms);
  if (supervisor->lying_ms > LYING_MS || supervisor->inverted_ms > INVERTED_MS) {
    supervisor->tumbled = true;
    supervisor->armed = false;
  } else if (supervisor->upright_ms > UPRIGHT_MS) {
    supervisor->tumbled = false;
  }
}

bool supervisor_arm(struct supervisor *supervisor, bool arm) {
  if (!arm) {
    supervisor->armed = false;
  } else if (!supervisor->tumbled && !supervisor->estopped) {
    supervisor->armed = true;
  }
  return supervisor->armed == arm;
}

bool supervisor_recover(struct supervisor *supervisor) {
  if (supervisor->upright_ms > 0) supervisor->tumbled = false;
  return !supervisor->tumbled;
}

void supervisor_estop(struct supervisor *supervisor) {
  supervisor->estopped = true;
  supervisor->armed = false;
}

bool supervisor_can_fly(const struct supervisor *supervisor) {
  return supervisor->armed && !supervisor->tumbled && !supervisor->estopped;
}
