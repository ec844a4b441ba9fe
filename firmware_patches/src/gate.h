/* Who turns the rotors: the control state machine, the gates before a network flies, its lease and its faults.
 *
 * gate_request() runs in the app task, the rest in the stabilizer task, which may interrupt it. Both change `control`
 * only through the table in control.c; on the chip the app task wraps gate_request() in a critical section (a few us).
 */
#ifndef MIDAIR_GATE_H
#define MIDAIR_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "policy.h"
#include "weights.h"
#include "window.h"
#include "wire.h"

enum { GATE_EVENT_QUEUE = 8 };

/* What the stabilizer knows at a 500 Hz tick. */
struct gate_inputs {
  struct vehicle_state state;
  float estimator_age_s;
  bool armed, can_fly, tumbled, estopped, battery_ok;
  bool stopped; /* the firmware's setpoint is a stop or a level-out */
  bool flying;  /* the stock controller's rotors turn */
};

enum gate_motors { MOTORS_STOCK, MOTORS_OFF, MOTORS_IDLE, MOTORS_POLICY };

struct gate_event {
  uint8_t cause, control, bank;
  uint32_t policy, tick_ms;
};

/* A network that waits for its gates. */
struct gate_pending {
  int8_t bank; /* -1: none */
  uint16_t gates, lease_ms;
  float target_m;
  uint32_t from_ms, until_ms;
};

struct gate {
  uint8_t control; /* wire_control */
  int8_t active;   /* bank that flies, -1: none */
  struct gate_pending pending;
  uint8_t activate[WIRE_ACTIVATE_SIZE]; /* the ACTIVATE in force: its repetition changes nothing */
  bool rolled_back, was_armed;
  uint16_t lease_ms;
  uint32_t lease_until_ms, last_ground_ms;
  float target_m;
  struct window window;
  float past[POLICY_PAST][POLICY_OUT];
  uint16_t too_fast_ticks, saturated_ticks;
  struct gate_event events[GATE_EVENT_QUEUE];
  uint8_t event_head, event_tail;
};

void gate_init(struct gate *gate);

uint8_t gate_control(const struct gate *gate);
/* The network that flies, else the one that is armed, else 0. */
uint32_t gate_policy_id(const struct gate *gate, const struct weights *weights);

/* Serves ACTIVATE .. RELEASED of the right size; returns a wire_error, of WIRE_GATE the gate in *detail. */
uint8_t gate_request(struct gate *gate, struct weights *weights, const uint8_t *data, uint32_t at_ms, uint32_t now_ms,
                     uint8_t *detail);

/* Any packet from the ground. */
void gate_ground(struct gate *gate, uint32_t now_ms);

/* 1 kHz. */
void gate_accelerometer(struct gate *gate, const float accel[3], uint32_t now_ms);

/* 500 Hz: timers, faults and the swap. */
void gate_step(struct gate *gate, struct weights *weights, const struct gate_inputs *in, uint32_t now_ms);

/* 500 Hz while ACTIVE: rotor speeds of the network. False: it failed, the stock controller has taken over. */
bool gate_fly(struct gate *gate, struct weights *weights, const struct vehicle_state *state,
              const struct policy_rotor *rotor, uint32_t now_ms, float rpm[POLICY_OUT]);

/* First gate of the mask that does not hold; GATES when all do. */
int gate_first_failing(const struct gate *gate, const struct gate_inputs *in, uint16_t mask);

/* The stock controller flies and the ground has been silent for 500 ms: land. */
bool gate_must_land(const struct gate *gate, bool flying, uint32_t now_ms);

enum gate_motors gate_motors(const struct gate *gate);

void gate_emit(struct gate *gate, const struct weights *weights, uint8_t cause, int bank, uint32_t now_ms);
/* Next EVENT packet down; false when there is none. */
bool gate_next_event(struct gate *gate, uint8_t packet[WIRE_EVENT_SIZE]);

#endif
