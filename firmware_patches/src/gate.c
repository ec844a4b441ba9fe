/* Who turns the rotors: the control state machine, the gates before a network flies, its lease and its faults. */
#include "gate.h"

#include <math.h>
#include <stddef.h>

#include "control.h"

static const float FAULT_SPEED = 8, FAULT_RATE = 40, FAULT_AGE_S = 0.1f; /* m/s, rad/s, s */
static const float SATURATED = 0.99f;                                   /* |action| at a limit */
enum { FAULT_TICKS = 20, SATURATED_TICKS = 750, SILENCE_MS = 500 };

void gate_init(struct gate *gate) {
  memset(gate, 0, sizeof *gate);
  gate->active = gate->pending.bank = -1;
}

uint8_t gate_control(const struct gate *gate) { return gate->control; }

uint32_t gate_policy_id(const struct gate *gate, const struct weights *weights) {
  const int bank = gate->active >= 0 ? gate->active : gate->pending.bank;
  return bank < 0 ? 0 : weights->bank[bank].policy;
}

static void pin(const struct gate *gate, struct weights *weights) {
  weights->pinned = (uint8_t)((gate->active >= 0 ? 1u << gate->active : 0) |
                              (gate->pending.bank >= 0 ? 1u << gate->pending.bank : 0));
}

void gate_emit(struct gate *gate, const struct weights *weights, uint8_t cause, int bank, uint32_t now_ms) {
  const uint8_t next = (uint8_t)((gate->event_head + 1) % GATE_EVENT_QUEUE);
  if (next == gate->event_tail) return;
  gate->events[gate->event_head] = (struct gate_event){.cause = cause,
                                                       .control = gate->control,
                                                       .bank = bank < 0 ? WIRE_NO_BANK : (uint8_t)bank,
                                                       .policy = bank < 0 ? 0 : weights->bank[bank].policy,
                                                       .tick_ms = now_ms};
  gate->event_head = next;
}

bool gate_next_event(struct gate *gate, uint8_t packet[WIRE_EVENT_SIZE]) {
  if (gate->event_tail == gate->event_head) return false;
  const struct gate_event *event = &gate->events[gate->event_tail];
  packet[0] = WIRE_EVENT_CODE;
  packet[1] = event->control;
  packet[2] = event->cause;
  packet[3] = event->bank;
  wire_put_u32(packet + 4, event->policy);
  wire_put_u32(packet + 8, event->tick_ms);
  gate->event_tail = (uint8_t)((gate->event_tail + 1) % GATE_EVENT_QUEUE);
  return true;
}

static void fly_bank(struct gate *gate, int bank, uint16_t lease_ms, float target_m, uint32_t now_ms) {
  if (gate->active < 0) { /* rotors at idle: what training starts from */
    for (int i = 0; i < POLICY_PAST * POLICY_OUT; i++) gate->past[i / POLICY_OUT][i % POLICY_OUT] = -1;
  }
  gate->active = (int8_t)bank;
  gate->lease_ms = lease_ms;
  gate->lease_until_ms = now_ms + lease_ms;
  gate->target_m = target_m;
  gate->too_fast_ticks = gate->saturated_ticks = 0;
  gate->window.spent = true;
}

/* Does what the table says; `request` is the new pending network of ARM. */
static enum control_action apply(struct gate *gate, struct weights *weights, enum control_event event,
                                 const struct gate_pending *request, uint32_t now_ms) {
  const struct control_cell *cell = &control_table[gate->control][event];
  const struct gate_pending none = {.bank = -1};
  const struct gate_pending pending = gate->pending;
  if (cell->action == REFUSE) return REFUSE;
  gate->control = cell->next;
  switch (cell->action) {
    case ARM:
      gate->pending = *request;
      gate->window.given_up = gate->rolled_back = false;
      break;
    case SWAP:
      fly_bank(gate, pending.bank, pending.lease_ms, pending.target_m, now_ms);
      gate->pending = none;
      break;
    case GIVE_UP:
    case LEAVE:
      gate->window.given_up = true;
      gate->active = -1;
      memset(gate->activate, 0, sizeof gate->activate);
      gate->pending = none;
      break;
    case FORGET:
      memset(gate->activate, 0, sizeof gate->activate);
      gate->pending = none;
      break;
    case OTHER:
      gate->rolled_back = true;
      if (gate->active < 0) {
        gate->pending.bank = 1 - pending.bank;
      } else {
        gate->pending = none;
        fly_bank(gate, 1 - gate->active, gate->lease_ms, gate->target_m, now_ms);
      }
      break;
    default:
      break;
  }
  pin(gate, weights);
  return cell->action;
}

static uint8_t activate(struct gate *gate, struct weights *weights, const uint8_t *data, uint32_t at_ms,
                        uint32_t now_ms, uint8_t *detail) {
  if (memcmp(gate->activate, data, WIRE_ACTIVATE_SIZE) == 0) return WIRE_OK;
  const uint32_t policy = wire_u32(data + 1), crc = wire_u32(data + 5);
  const uint16_t gates = wire_u16(data + 17);
  struct gate_pending request = {.gates = gates,
                                 .lease_ms = wire_u16(data + 13),
                                 .target_m = 0.001f * wire_i16(data + 15),
                                 .from_ms = at_ms + wire_u16(data + 9),
                                 .until_ms = at_ms + wire_u16(data + 11)};
  if (control_table[gate->control][ACTIVATE].action == REFUSE) return WIRE_BUSY;
  for (*detail = GATES; *detail < 16; ++*detail) {
    if (gates >> *detail & 1) return WIRE_GATE; /* a gate that this firmware does not know can never hold */
  }
  if (request.lease_ms == 0) return WIRE_LEASE;
  uint8_t error;
  const int bank = weights_find(weights, policy, crc, &error);
  if (bank < 0) return error;
  weights->pinned |= (uint8_t)(1u << bank); /* mark first, then look again: a BEGIN may have taken it */
  if (weights_find(weights, policy, crc, &error) != bank) {
    pin(gate, weights);
    return error == WIRE_OK ? WIRE_BUSY : error;
  }
  request.bank = (int8_t)bank;
  apply(gate, weights, ACTIVATE, &request, now_ms);
  memcpy(gate->activate, data, WIRE_ACTIVATE_SIZE);
  return WIRE_OK;
}

static uint8_t rollback(struct gate *gate, struct weights *weights, uint32_t now_ms) {
  if (gate->rolled_back) return WIRE_OK; /* again: not back and forth */
  const int bank = gate->active >= 0 ? gate->active : gate->pending.bank;
  const bool other = bank >= 0 && weights->bank[1 - bank].state == BANK_READY;
  if (apply(gate, weights, other ? ROLLBACK : WITHDRAWN, NULL, now_ms) == OTHER && gate->control == CONTROL_ACTIVE) {
    gate_emit(gate, weights, WIRE_ACTIVATED, gate->active, now_ms);
  }
  return WIRE_OK;
}

static uint8_t set_window(struct gate *gate, struct weights *weights, uint16_t open_ms, uint32_t at_ms,
                          uint32_t now_ms) {
  struct window *window = &gate->window;
  if (open_ms > WIRE_MAX_WINDOW_MS) return WIRE_BAD_SIZE;
  if (open_ms == 0 && gate->control == CONTROL_OFF) return WIRE_OK;
  if (window->open && !window->spent && !window->given_up && window->open_ms == open_ms) return WIRE_OK;
  if (apply(gate, weights, WINDOW, NULL, now_ms) == REFUSE) return WIRE_BUSY;
  window_close(window);
  if (open_ms > 0) window_open(window, open_ms, at_ms + open_ms);
  return WIRE_OK;
}

uint8_t gate_request(struct gate *gate, struct weights *weights, const uint8_t *data, uint32_t at_ms, uint32_t now_ms,
                     uint8_t *detail) {
  switch (data[0]) {
    case WIRE_ACTIVATE:
      return activate(gate, weights, data, at_ms, now_ms, detail);
    case WIRE_HEARTBEAT:
      if (gate->active >= 0 && weights->bank[gate->active].policy == wire_u32(data + 1)) {
        gate->lease_ms = wire_u16(data + 6);
        gate->lease_until_ms = at_ms + gate->lease_ms;
      }
      return WIRE_OK;
    case WIRE_ROLLBACK:
      return rollback(gate, weights, now_ms);
    case WIRE_ABORT:
      if (data[1] > 1) return WIRE_BAD_SIZE;
      apply(gate, weights, data[1] == 0 ? WITHDRAWN : CUT, NULL, now_ms);
      return WIRE_OK;
    case WIRE_WINDOW:
      return set_window(gate, weights, wire_u16(data + 1), at_ms, now_ms);
    case WIRE_RELEASED:
      if (!gate->window.open) {
        *detail = GATE_THROWN;
        return WIRE_GATE;
      }
      if (!gate->window.released) {
        gate->window.released = true;
        gate_emit(gate, weights, WIRE_HAS_RELEASED, -1, now_ms);
      }
      return WIRE_OK;
    default:
      return WIRE_UNKNOWN_COMMAND;
  }
}

void gate_ground(struct gate *gate, uint32_t now_ms) { gate->last_ground_ms = now_ms; }

void gate_accelerometer(struct gate *gate, const float accel[3], uint32_t now_ms) {
  if (window_accelerometer(&gate->window, accel)) gate_emit(gate, NULL, WIRE_FREE_FALL, -1, now_ms);
}

static float norm(const float v[3]) { return sqrtf(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]); }

int gate_first_failing(const struct gate *gate, const struct gate_inputs *in, uint16_t mask) {
  const bool holds[GATES] = {
      [GATE_CAN_FLY] = in->armed && in->can_fly,
      [GATE_THROWN] = window_thrown(&gate->window),
      [GATE_ESTIMATOR] = in->estimator_age_s < 0.05f,
      [GATE_HEIGHT] = in->state.pos[2] >= 0.2f && in->state.pos[2] <= 3.5f,
      [GATE_SPEED] = norm(in->state.vel) < 6,
      [GATE_RATE] = norm(in->state.ang_vel) < 20,
      [GATE_BATTERY] = in->battery_ok,
      [GATE_UPRIGHT] = !in->tumbled && !in->estopped,
  };
  for (int i = 0; i < GATES; i++) {
    if (mask >> i & 1 && !holds[i]) return i;
  }
  return GATES;
}

static void fault(struct gate *gate, struct weights *weights, uint8_t cause, uint32_t now_ms) {
  const int bank = gate->active;
  apply(gate, weights, FAULT, NULL, now_ms);
  gate_emit(gate, weights, cause, bank, now_ms);
}

void gate_step(struct gate *gate, struct weights *weights, const struct gate_inputs *in, uint32_t now_ms) {
  window_step(&gate->window, now_ms);
  if (gate->was_armed && !in->armed) apply(gate, weights, DISARMED, NULL, now_ms);
  gate->was_armed = in->armed;
  if (gate->control == CONTROL_ACTIVE) {
    const bool too_fast = !(norm(in->state.vel) <= FAULT_SPEED && norm(in->state.ang_vel) <= FAULT_RATE);
    gate->too_fast_ticks = too_fast ? (uint16_t)(gate->too_fast_ticks + 1) : 0;
    if (gate->too_fast_ticks >= FAULT_TICKS || in->estimator_age_s > FAULT_AGE_S || in->stopped || !in->can_fly ||
        in->estopped) {
      fault(gate, weights, WIRE_GATE, now_ms);
    } else if ((int32_t)(now_ms - gate->lease_until_ms) >= 0) {
      const int bank = gate->active;
      apply(gate, weights, WITHDRAWN, NULL, now_ms);
      gate_emit(gate, weights, WIRE_LEASE, bank, now_ms);
    }
  }
  const struct gate_pending *pending = &gate->pending;
  if (pending->bank < 0) return;
  const int bank = pending->bank;
  if ((int32_t)(now_ms - pending->until_ms) > 0) {
    apply(gate, weights, VALID_OVER, NULL, now_ms);
    gate_emit(gate, weights, WIRE_EXPIRED, bank, now_ms);
  } else if ((int32_t)(now_ms - pending->from_ms) >= 0 && gate_first_failing(gate, in, pending->gates) == GATES) {
    apply(gate, weights, GATES_HOLD, NULL, now_ms);
    gate_emit(gate, weights, WIRE_ACTIVATED, bank, now_ms);
  }
}

bool gate_fly(struct gate *gate, struct weights *weights, const struct vehicle_state *state,
              const struct policy_rotor *rotor, uint32_t now_ms, float rpm[POLICY_OUT]) {
  const struct weights_bank *bank = &weights->bank[gate->active];
  float obs[POLICY_MAX_IN], action[POLICY_OUT];
  policy_observe(bank->arch, state, gate->target_m, gate->past, obs);
  if (!policy_forward(bank->arch, bank->params, obs, action)) {
    fault(gate, weights, WIRE_OUTPUT_NOT_FINITE, now_ms);
    return false;
  }
  memmove(gate->past[1], gate->past[0], (POLICY_PAST - 1) * sizeof gate->past[0]);
  memcpy(gate->past[0], action, sizeof gate->past[0]);
  int high = 0, low = 0;
  for (int i = 0; i < POLICY_OUT; i++) {
    rpm[i] = policy_rpm(rotor, action[i]);
    high += action[i] > SATURATED;
    low += action[i] < -SATURATED;
  }
  gate->saturated_ticks = high == POLICY_OUT || low == POLICY_OUT ? (uint16_t)(gate->saturated_ticks + 1) : 0;
  if (gate->saturated_ticks < SATURATED_TICKS) return true;
  fault(gate, weights, WIRE_SATURATED, now_ms);
  return false;
}

bool gate_must_land(const struct gate *gate, bool flying, uint32_t now_ms) {
  return flying && gate->control == CONTROL_STOCK && now_ms - gate->last_ground_ms >= SILENCE_MS;
}

enum gate_motors gate_motors(const struct gate *gate) {
  if (gate->control == CONTROL_OFF) return MOTORS_OFF;
  if (gate->control == CONTROL_ACTIVE) return MOTORS_POLICY;
  switch (window_motors(&gate->window)) {
    case WINDOW_MOTORS_OFF:
      return MOTORS_OFF;
    case WINDOW_IDLE:
      return MOTORS_IDLE;
    default:
      return MOTORS_STOCK;
  }
}
