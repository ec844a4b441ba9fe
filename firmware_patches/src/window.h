/* The throw window: when may a rotor turn after the operator hands the drone to a thrower? Knows no network, no radio.
 *
 * Open: motors off. Free fall, |a| < 0.3 g at 1 kHz through a 5-sample median, held for 100 ms, is latched; so is the
 * ground's RELEASED. With both: idle. The first activation spends the window: from then on motors belong to the policy
 * or the stock controller, and only the tumble check stays off until the window's timer ends.
 */
#ifndef MIDAIR_WINDOW_H
#define MIDAIR_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

enum { WINDOW_MEDIAN = 5, WINDOW_HOLD_SAMPLES = 100 };

struct window {
  bool open, spent, given_up;
  bool fallen, released; /* latched until it closes */
  uint16_t open_ms;
  uint32_t until_ms;
  float recent[WINDOW_MEDIAN]; /* |a|^2, m^2/s^4 */
  uint8_t next;
  uint16_t held; /* samples of free fall in a row */
};

enum window_motors { WINDOW_FREE, WINDOW_MOTORS_OFF, WINDOW_IDLE };

void window_open(struct window *window, uint16_t open_ms, uint32_t until_ms);
void window_close(struct window *window);

/* One accelerometer sample at 1 kHz, m/s^2. True once: when free fall is latched. */
bool window_accelerometer(struct window *window, const float accel[3]);

/* Stabilizer task: closes the window when its time is over. */
void window_step(struct window *window, uint32_t now_ms);

enum window_motors window_motors(const struct window *window);

/* Gate bit 1. */
bool window_thrown(const struct window *window);

#endif
