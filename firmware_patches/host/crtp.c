/* The ports of upstream that the stand-ins answer: localisation 6, setpoint 7, high level 8, supervisor 9. */
#include <math.h>
#include <string.h>

#include "onboard.h"

enum { PORT_LOCALISATION = 6, PORT_SETPOINT = 7, PORT_HIGH_LEVEL = 8, PORT_SUPERVISOR = 9 };
enum { HL_STOP = 3, HL_TAKEOFF = 7, HL_LAND = 8, HL_GOTO = 0x0C };

static bool pose(struct onboard *onboard, const uint8_t *data, int size) {
  if (size != 29) return false;
  float values[7];
  for (int i = 0; i < 7; i++) values[i] = wire_f32(data + 1 + 4 * i);
  estimator_pose(&onboard->estimator, values, values + 3);
  return true;
}

static void stop(struct onboard *onboard) {
  stock_stop(&onboard->stock);
  onboard->setpoint_stop = true;
}

/* Who may be sent where: only when the stock controller has the motors and knows where it is. */
static bool ready(const struct onboard *onboard) {
  return supervisor_can_fly(&onboard->supervisor) && onboard->estimator.age_s < 0.1f &&
         gate_motors(&onboard->gate) == MOTORS_STOCK && onboard->gate.control != CONTROL_ACTIVE;
}

/* Takeoff2, land2: group, height, yaw, use the present yaw, duration.
 * Goto2: group, relative, linear, x y z, yaw, duration. */
static bool high_level(struct onboard *onboard, const uint8_t *data, int size) {
  const int expected = data[0] == HL_STOP ? 2 : data[0] == HL_GOTO ? 24 : 15;
  if ((data[0] != HL_STOP && data[0] != HL_TAKEOFF && data[0] != HL_LAND && data[0] != HL_GOTO) || size != expected) {
    return false;
  }
  uint8_t answer[4] = {data[0], data[1], size > 2 ? data[2] : 0, STOCK_OK};
  if (data[0] == HL_STOP) {
    stop(onboard);
  } else if (!ready(onboard)) {
    answer[3] = STOCK_NOT_READY;
  } else if (data[0] == HL_GOTO) {
    float values[5];
    for (int i = 0; i < 5; i++) values[i] = wire_f32(data + 4 + 4 * i);
    answer[3] = (uint8_t)stock_go_to(&onboard->stock, data[2] != 0, values, values[3], values[4]);
  } else {
    const float height = wire_f32(data + 2), duration = wire_f32(data + 11);
    const float yaw = data[10] ? NAN : wire_f32(data + 6);
    answer[3] = (uint8_t)(data[0] == HL_LAND
                              ? stock_land(&onboard->stock, height, yaw, duration)
                              : stock_take_off(&onboard->stock, &onboard->estimator.state, height, yaw, duration));
  }
  onboard_send(onboard, PORT_HIGH_LEVEL, 0, answer, sizeof answer);
  return true;
}

static bool supervise(struct onboard *onboard, const uint8_t *data, int size) {
  uint8_t answer[3] = {(uint8_t)(WIRE_STATUS_FLAG | data[0])};
  if (data[0] == 0x01 && size == 2) {
    answer[1] = supervisor_arm(&onboard->supervisor, data[1] != 0);
    answer[2] = onboard->supervisor.armed;
  } else if (data[0] == 0x02) {
    answer[1] = supervisor_recover(&onboard->supervisor);
    answer[2] = !onboard->supervisor.tumbled;
  } else if (data[0] == 0x03) {
    supervisor_estop(&onboard->supervisor);
    return true;
  } else {
    return data[0] == 0x04; /* feeding the e-stop watchdog, which is off */
  }
  onboard_send(onboard, PORT_SUPERVISOR, 1, answer, sizeof answer);
  return true;
}

void onboard_dispatch(struct onboard *onboard, int port, int channel, const uint8_t *data, int size) {
  bool understood = false;
  if (size < 1) {
    understood = port < PORT_LOCALISATION || port > PORT_SUPERVISOR;
  } else if (port == PORT_LOCALISATION && channel == 1 && data[0] == 0x08) {
    understood = pose(onboard, data, size);
  } else if (port == PORT_LOCALISATION && channel == 1 && data[0] == 0x03) {
    supervisor_estop(&onboard->supervisor);
    understood = true;
  } else if (port == PORT_SETPOINT && channel == 0 && data[0] == 0) {
    stop(onboard);
    understood = true;
  } else if (port == PORT_SETPOINT && channel == 1 && data[0] == 0) {
    understood = true; /* notify-stop: hands over to the high level, which already has control */
  } else if (port == PORT_HIGH_LEVEL && channel == 0) {
    understood = high_level(onboard, data, size);
  } else if (port == PORT_SUPERVISOR && channel == 0 && data[0] == 0x0C) {
    uint8_t answer[3] = {0x8C};
    wire_put_u16(answer + 1, onboard_supervisor_bits(onboard));
    onboard_send(onboard, PORT_SUPERVISOR, 0, answer, sizeof answer);
    understood = true;
  } else if (port == PORT_SUPERVISOR && channel == 1) {
    understood = supervise(onboard, data, size);
  } else {
    understood = port < PORT_LOCALISATION || port > PORT_SUPERVISOR;
  }
  onboard->malformed += !understood;
}
