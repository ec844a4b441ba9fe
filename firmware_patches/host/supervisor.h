/* Stand-in for upstream's supervisor: may the motors run? Arming, e-stop, tumble. Knows no controller. */
#ifndef MIDAIR_SUPERVISOR_H
#define MIDAIR_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>

/* Bits of its answer on port 9 (protocol 12). */
enum supervisor_bit {
  SUPERVISOR_CAN_BE_ARMED = 1 << 0,
  SUPERVISOR_ARMED = 1 << 1,
  SUPERVISOR_CAN_FLY = 1 << 3,
  SUPERVISOR_FLYING = 1 << 4,
  SUPERVISOR_TUMBLED = 1 << 5,
  SUPERVISOR_LOCKED = 1 << 6,
  SUPERVISOR_HL_ACTIVE = 1 << 8,
  SUPERVISOR_HL_FINISHED = 1 << 9,
};

struct supervisor {
  bool armed;
  bool tumbled;
  bool estopped; /* for good: only a restart clears it */
  uint16_t lying_ms, inverted_ms, upright_ms;
};

void supervisor_init(struct supervisor *supervisor);
/* 1 kHz, m/s^2. `check` off: the throw window. */
void supervisor_accelerometer(struct supervisor *supervisor, const float accel[3], bool check);
/* True when it is as asked afterwards. */
bool supervisor_arm(struct supervisor *supervisor, bool arm);
bool supervisor_recover(struct supervisor *supervisor);
void supervisor_estop(struct supervisor *supervisor);
bool supervisor_can_fly(const struct supervisor *supervisor);

#endif
