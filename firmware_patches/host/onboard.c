/* One virtual Crazyflie's processor: sensors and packets in, rotor speeds and packets out. */
#include "onboard.h"

#include <math.h>
#include <string.h>

static const float TICK_S = 0.001f, CONTROL_S = 0.002f;
static const float BATTERY_CRITICAL_V = 3.0f;

uint32_t onboard_size(void) { return sizeof(struct onboard); }
uint32_t onboard_snapshot_size(void) { return sizeof(struct onboard_snapshot); }

void onboard_init(struct onboard *onboard, const float figures[26]) {
  struct airframe airframe = {.mass_kg = figures[0],
                              .arm_length_m = figures[4],
                              .rotor = {.thrust_min_N = figures[11], .thrust_max_N = figures[12]},
                              .idle_rpm = figures[25]};
  memcpy(airframe.inertia, figures + 1, sizeof airframe.inertia);
  memcpy(airframe.rotor.rpm2thrust, figures + 5, sizeof airframe.rotor.rpm2thrust);
  memcpy(airframe.rpm2torque, figures + 8, sizeof airframe.rpm2torque);
  memcpy(airframe.mixing, figures + 13, sizeof airframe.mixing);
  memset(onboard, 0, sizeof *onboard);
  estimator_init(&onboard->estimator);
  supervisor_init(&onboard->supervisor);
  stock_init(&onboard->stock, &airframe);
  weights_init(&onboard->weights);
  gate_init(&onboard->gate);
  onboard->stock_has_control = true;
}

void onboard_send(struct onboard *onboard, int port, int channel, const uint8_t *data, int size) {
  const uint16_t next = (uint16_t)((onboard->queue_head + 1) % ONBOARD_QUEUE);
  if (next == onboard->queue_tail) {
    onboard->overflowed++;
    return;
  }
  struct onboard_packet *packet = &onboard->queue[onboard->queue_head];
  packet->port = (uint8_t)port;
  packet->channel = (uint8_t)channel;
  packet->size = (uint8_t)size;
  memcpy(packet->data, data, (size_t)size);
  onboard->queue_head = next;
}

int onboard_transmit(struct onboard *onboard, uint8_t data[WIRE_PACKET]) {
  if (onboard->queue_tail == onboard->queue_head) return -1;
  const struct onboard_packet *packet = &onboard->queue[onboard->queue_tail];
  memcpy(data, packet->data, packet->size);
  onboard->queue_tail = (uint16_t)((onboard->queue_tail + 1) % ONBOARD_QUEUE);
  return packet->port << 16 | packet->channel << 8 | packet->size;
}

void onboard_receive(struct onboard *onboard, int port, int channel, const uint8_t *data, int size) {
  onboard->received++;
  if (size < 0 || size > WIRE_PACKET || port < 0 || port > 15 || channel < 0 || channel > 3) {
    onboard->malformed++;
    return;
  }
  gate_ground(&onboard->gate, onboard->tick_ms);
  if (port == WIRE_PORT) {
    weights_receive(&onboard->weights, channel, data, size, onboard->tick_ms);
  } else {
    onboard_dispatch(onboard, port, channel, data, size);
  }
}

uint16_t onboard_supervisor_bits(const struct onboard *onboard) {
  const struct supervisor *supervisor = &onboard->supervisor;
  const struct stock *stock = &onboard->stock;
  const bool path = stock->mode != STOCK_GROUNDED;
  const bool flying = path || onboard->gate.control == CONTROL_ACTIVE;
  return (uint16_t)((!supervisor->tumbled && !supervisor->estopped ? SUPERVISOR_CAN_BE_ARMED : 0) |
                    (supervisor->armed ? SUPERVISOR_ARMED : 0) |
                    (supervisor_can_fly(supervisor) ? SUPERVISOR_CAN_FLY : 0) | (flying ? SUPERVISOR_FLYING : 0) |
                    (supervisor->tumbled ? SUPERVISOR_TUMBLED : 0) | (supervisor->estopped ? SUPERVISOR_LOCKED : 0) |
                    (path ? SUPERVISOR_HL_ACTIVE : 0) |
                    (path && stock->time_s >= stock->duration_s ? SUPERVISOR_HL_FINISHED : 0));
}

/* The stock controller's turn: takes over from a network, lands when the ground is silent. */
static void fly_stock(struct onboard *onboard, float rpm[4]) {
  const struct vehicle_state *state = &onboard->estimator.state;
  struct stock *stock = &onboard->stock;
  if (!onboard->stock_has_control && !onboard->setpoint_stop) stock_hold(stock, state);
  if (stock->mode == STOCK_FLYING && gate_must_land(&onboard->gate, true, onboard->tick_ms)) {
    stock_land(stock, 99, NAN, 1); /* 99: from the height it has */
  }
  if (stock_step(stock, state, onboard->estimator.age_s, CONTROL_S, rpm)) {
    gate_emit(&onboard->gate, &onboard->weights, WIRE_LANDED, -1, onboard->tick_ms);
  }
}

static void control(struct onboard *onboard) {
  struct gate *gate = &onboard->gate;
  const bool can_fly = supervisor_can_fly(&onboard->supervisor);
  const struct gate_inputs in = {.state = onboard->estimator.state,
                                 .estimator_age_s = onboard->estimator.age_s,
                                 .armed = onboard->supervisor.armed,
                                 .can_fly = can_fly,
                                 .tumbled = onboard->supervisor.tumbled,
                                 .estopped = onboard->supervisor.estopped,
                                 .battery_ok = onboard->battery_V > BATTERY_CRITICAL_V,
                                 .stopped = onboard->setpoint_stop,
                                 .flying = onboard->stock.mode != STOCK_GROUNDED};
  float rpm[4] = {0};
  gate_step(gate, &onboard->weights, &in, onboard->tick_ms);
  bool policy = gate_motors(gate) == MOTORS_POLICY;
  if (policy) {
    stock_stop(&onboard->stock);
    onboard->stock_has_control = false;
    policy = gate_fly(gate, &onboard->weights, &in.state, &onboard->stock.airframe.rotor, onboard->tick_ms, rpm);
  }
  if (!policy) {
    switch (gate_motors(gate)) {
      case MOTORS_IDLE:
        for (int i = 0; i < 4; i++) rpm[i] = onboard->stock.airframe.idle_rpm;
        stock_stop(&onboard->stock);
        break;
      case MOTORS_STOCK:
        fly_stock(onboard, rpm);
        break;
      default:
        stock_stop(&onboard->stock);
        break;
    }
  }
  onboard->stock_has_control = !policy;
  onboard->setpoint_stop = false;
  if (!can_fly) { /* after the controller, whoever it was */
    memset(rpm, 0, sizeof rpm);
    stock_stop(&onboard->stock);
  }
  memcpy(onboard->rpm, rpm, sizeof rpm);
  stock_follow(&onboard->stock, rpm, CONTROL_S);
}

void onboard_tick(struct onboard *onboard, float gx, float gy, float gz, float ax, float ay, float az, float battery_V,
                  float rpm[4]) {
  const float gyro[3] = {gx, gy, gz}, accel[3] = {ax, ay, az};
  struct gate *gate = &onboard->gate;
  onboard->tick_ms++;
  onboard->battery_V = battery_V;
  estimator_imu(&onboard->estimator, gyro, accel, TICK_S);
  gate_accelerometer(gate, accel, onboard->tick_ms);
  supervisor_accelerometer(&onboard->supervisor, accel, !gate->window.open);
  uint8_t packet[WIRE_PACKET]; /* the app task: once a millisecond, all that waits */
  for (bool served = true; served;) {
    if (weights_work(&onboard->weights, gate, onboard->tick_ms, packet, &served)) {
      onboard_send(onboard, WIRE_PORT, WIRE_DOWN, packet, WIRE_STATUS_SIZE);
    }
  }
  if (onboard->tick_ms % 2 == 0) control(onboard);
  while (gate_next_event(gate, packet)) onboard_send(onboard, WIRE_PORT, WIRE_DOWN, packet, WIRE_EVENT_SIZE);
  memcpy(rpm, onboard->rpm, sizeof onboard->rpm);
}

uint32_t onboard_lights(const struct onboard *onboard) {
  return gate_control(&onboard->gate) | (onboard->gate.window.open ? 0x100u : 0u);
}

void onboard_look(const struct onboard *onboard, struct onboard_snapshot *snapshot) {
  const struct estimator *estimator = &onboard->estimator;
  const struct gate *gate = &onboard->gate;
  memset(snapshot, 0, sizeof *snapshot);
  memcpy(snapshot->pos, estimator->state.pos, sizeof snapshot->pos);
  memcpy(snapshot->quat, estimator->state.quat, sizeof snapshot->quat);
  memcpy(snapshot->vel, estimator->state.vel, sizeof snapshot->vel);
  memcpy(snapshot->ang_vel, estimator->state.ang_vel, sizeof snapshot->ang_vel);
  memcpy(snapshot->gyro_bias, estimator->gyro_bias, sizeof snapshot->gyro_bias);
  memcpy(snapshot->accel_bias, estimator->accel_bias, sizeof snapshot->accel_bias);
  snapshot->estimator_age_s = estimator->age_s;
  snapshot->battery_V = onboard->battery_V;
  snapshot->target_m = gate->target_m;
  snapshot->tick_ms = onboard->tick_ms;
  snapshot->control = gate_control(gate);
  snapshot->bank[0] = onboard->weights.bank[0].state;
  snapshot->bank[1] = onboard->weights.bank[1].state;
  snapshot->policy = gate_policy_id(gate, &onboard->weights);
  snapshot->supervisor = onboard_supervisor_bits(onboard);
  snapshot->stock_mode = onboard->stock.mode;
  snapshot->window_open = gate->window.open;
  snapshot->free_fall = gate->window.fallen;
  snapshot->released = gate->window.released;
  snapshot->active_bank = gate->active < 0 ? WIRE_NO_BANK : (uint32_t)gate->active;
  snapshot->poses_accepted = estimator->accepted;
  snapshot->poses_rejected = estimator->rejected;
  snapshot->poses_refused = estimator->refused;
  snapshot->estimator_resets = estimator->resets;
  snapshot->received = onboard->received;
  snapshot->malformed = onboard->malformed + onboard->weights.malformed;
  snapshot->dropped = onboard->weights.dropped;
  snapshot->ignored = onboard->weights.ignored;
  snapshot->overflowed = onboard->overflowed;
}
