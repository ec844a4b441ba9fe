/* The throw window: when may a rotor turn after the operator hands the drone to a thrower? */
#include "window.h"

#include <string.h>

static const float FREE_FALL = (0.3f * 9.81f) * (0.3f * 9.81f); /* (m/s^2)^2 */

void window_open(struct window *window, uint16_t open_ms, uint32_t until_ms) {
  memset(window, 0, sizeof *window);
  window->open = true;
  window->open_ms = open_ms;
  window->until_ms = until_ms;
  for (int i = 0; i < WINDOW_MEDIAN; i++) window->recent[i] = 1e9f; /* not falling until five samples say so */
}

void window_close(struct window *window) { memset(window, 0, sizeof *window); }

/* Median by counting: v is it when two are smaller and two larger (ties by index). A NaN never counts as smaller. */
static float median(const float *values) {
  for (int i = 0; i < WINDOW_MEDIAN; i++) {
    int below = 0;
    for (int j = 0; j < WINDOW_MEDIAN; j++) below += values[j] < values[i] || (values[j] == values[i] && j < i);
    if (below == WINDOW_MEDIAN / 2) return values[i];
  }
  return 1e9f;
}

bool window_accelerometer(struct window *window, const float accel[3]) {
  if (!window->open || window->fallen) return false;
  const float square = accel[0] * accel[0] + accel[1] * accel[1] + accel[2] * accel[2];
  window->recent[window->next] = square < 1e9f ? square : 1e9f;
  window->next = (uint8_t)((window->next + 1) % WINDOW_MEDIAN);
  window->held = median(window->recent) < FREE_FALL ? (uint16_t)(window->held + 1) : 0;
  window->fallen = window->held >= WINDOW_HOLD_SAMPLES;
  return window->fallen;
}

void window_step(struct window *window, uint32_t now_ms) {
  if (window->open && (int32_t)(now_ms - window->until_ms) >= 0) window_close(window);
}

bool window_thrown(const struct window *window) { return window->open && window->fallen && window->released; }

enum window_motors window_motors(const struct window *window) {
  if (!window->open || window->spent) return WINDOW_FREE;
  return window_thrown(window) && !window->given_up ? WINDOW_IDLE : WINDOW_MOTORS_OFF;
}
