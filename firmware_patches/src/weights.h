/* Two banks of network weights and the upload into them. Never swaps a network: that is gate.c.
 *
 * Two tasks meet here. weights_receive() runs in the radio's receive task: O(1), copies and sets bits. weights_work()
 * runs in the app task, which the receive task may interrupt anywhere and never the other way round. So the app task
 * first marks a bank (`pinned`, `checking`) and then looks at it; the receive task never takes a marked bank.
 */
#ifndef MIDAIR_WEIGHTS_H
#define MIDAIR_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "policy.h"
#include "wire.h"

struct gate;

enum { WEIGHTS_BANKS = 2, WEIGHTS_REQUESTS = 16 };

struct weights_bank {
  uint8_t state;    /* wire_bank */
  uint8_t checking; /* the app task reads it: hands off */
  uint8_t conflict; /* a duplicate chunk had other bytes */
  uint8_t begin[WIRE_BEGIN_SIZE];
  const struct policy_arch *arch;
  uint32_t policy, crc;
  uint8_t bitmap[WIRE_MAX_CHUNK / 8];
  uint8_t image[2 * WIRE_MAX_PARAM];
  float params[POLICY_MAX_PARAM]; /* expanded at COMMIT */
};

struct weights_request {
  uint32_t at_ms;
  uint8_t error; /* decided on receipt (BEGIN) */
  uint8_t size;
  uint8_t data[WIRE_PACKET];
};

struct weights {
  struct weights_bank bank[WEIGHTS_BANKS];
  volatile uint8_t pinned; /* bit i: bank i is ARMED or ACTIVE; written by gate.c */
  uint8_t xfer;            /* of the newest BEGIN */
  struct weights_request ring[WEIGHTS_REQUESTS];
  volatile uint8_t head, tail; /* head: next to write (receive task), tail: next to serve (app task) */
  uint32_t malformed, dropped, ignored;
};

void weights_init(struct weights *weights);

/* Receive task: one packet of port 0x0A. Any size is survived; what cannot be used is counted. */
void weights_receive(struct weights *weights, int channel, const uint8_t *data, int size, uint32_t now_ms);

/* App task: serves one request. Returns true when `status` is to be sent; *served tells whether there was one. */
bool weights_work(struct weights *weights, struct gate *gate, uint32_t now_ms, uint8_t status[WIRE_STATUS_SIZE],
                  bool *served);

/* Bank that holds this network READY; else -1 and why in *error. */
int weights_find(const struct weights *weights, uint32_t policy, uint32_t crc, uint8_t *error);

/* zlib's CRC32. */
uint32_t weights_crc32(const uint8_t *data, uint32_t size);

#endif
