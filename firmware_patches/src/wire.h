/* The upload wire, byte by byte (CRTP port 0x0A). No state, no logic: numbers, names and little-endian access.
 *
 * A CRTP packet is one header byte (port << 4 | 0x0C | channel) and at most 30 bytes. Everything is little endian.
 *
 *   channel 0, up: requests           byte 0  1     2        3  4   5  6     7        8 ..
 *     HELLO      (1)                      00
 *     BEGIN     (16)                      01 xfer  version arch(2) n_param(2) n_chunk policy(4) crc(4)
 *     COMMIT    (16)                      02 xfer  crc(4)  expected 4 x fp16  tolerance fp16
 *     ACTIVATE  (19)                      03 policy(4) crc(4) delay_ms(2) valid_ms(2) lease_ms(2) target_mm(2)
 *                                         gates(2)        target_mm is signed
 *     HEARTBEAT  (8)                      04 policy(4) seq lease_ms(2)                                  (not answered)
 *     ROLLBACK   (1)                      05
 *     ABORT      (2)                      06 mode   0: STOCK, 1: OFF
 *     WINDOW     (3)                      07 open_ms(2)   0 closes
 *     RELEASED   (1)                      08
 *   channel 1, up: DATA (30)              xfer index 14 x fp16                                          (not answered)
 *   channel 3, down:
 *     STATUS    (30)   80|command xfer control bank0 bank1 error policy(4) crc(4) bitmap(16)
 *        of HELLO, in the bitmap's place: version max_param(2) arch_count arch(2)...
 *        of error 9, in the bitmap's first byte: the gate that cannot hold
 *     EVENT     (12)   40 control cause bank policy(4) tick(4)      bank 255: no bank concerned
 *
 * The sizes in brackets count the command byte.
 */
#ifndef MIDAIR_WIRE_H
#define MIDAIR_WIRE_H

#include <stdint.h>
#include <string.h>

enum {
  WIRE_PORT = 0x0A,
  WIRE_VERSION = 1,
  WIRE_PACKET = 30,       /* bytes behind the header */
  WIRE_CHUNK = 14,        /* fp16 numbers in one DATA */
  WIRE_MAX_CHUNK = 128,
  WIRE_MAX_PARAM = WIRE_CHUNK * WIRE_MAX_CHUNK,
  WIRE_MAX_WINDOW_MS = 30000,
};

enum wire_channel { WIRE_REQUEST = 0, WIRE_DATA = 1, WIRE_DOWN = 3 };

enum wire_command {
  WIRE_HELLO = 0,
  WIRE_BEGIN = 1,
  WIRE_COMMIT = 2,
  WIRE_ACTIVATE = 3,
  WIRE_HEARTBEAT = 4,
  WIRE_ROLLBACK = 5,
  WIRE_ABORT = 6,
  WIRE_WINDOW = 7,
  WIRE_RELEASED = 8,
  WIRE_COMMANDS = 9,
};

enum wire_size {
  WIRE_BEGIN_SIZE = 16,
  WIRE_COMMIT_SIZE = 16,
  WIRE_ACTIVATE_SIZE = 19,
  WIRE_HEARTBEAT_SIZE = 8,
  WIRE_STATUS_SIZE = 30,
  WIRE_EVENT_SIZE = 12,
};

enum wire_error {
  WIRE_OK = 0,
  WIRE_BAD_VERSION = 1,
  WIRE_BAD_ARCH = 2,
  WIRE_BAD_SIZE = 3,
  WIRE_BUSY = 4,
  WIRE_INCOMPLETE = 5,
  WIRE_BAD_CRC = 6,
  WIRE_NOT_FINITE = 7,
  WIRE_CANNED_MISMATCH = 8,
  WIRE_GATE = 9,
  WIRE_LEASE = 10,
  WIRE_EXPIRED = 11,
  WIRE_UNKNOWN_COMMAND = 12,
  WIRE_UNKNOWN_ID = 13,
  WIRE_CONFLICT = 14,
};

/* Causes of an EVENT: the error codes above, and these. */
enum wire_cause {
  WIRE_ACTIVATED = 32,
  WIRE_LANDED = 33,
  WIRE_SATURATED = 34,
  WIRE_OUTPUT_NOT_FINITE = 35,
  WIRE_HAS_RELEASED = 36,
  WIRE_FREE_FALL = 37,
};

enum wire_bank { BANK_EMPTY = 0, BANK_RECV = 1, BANK_READY = 2 };
enum wire_control { CONTROL_STOCK = 0, CONTROL_ARMED = 1, CONTROL_ACTIVE = 2, CONTROL_OFF = 3, CONTROLS = 4 };

enum wire_gate {
  GATE_CAN_FLY = 0,
  GATE_THROWN = 1, /* free fall latched in this window, and RELEASED */
  GATE_ESTIMATOR = 2,
  GATE_HEIGHT = 3,
  GATE_SPEED = 4,
  GATE_RATE = 5,
  GATE_BATTERY = 6,
  GATE_UPRIGHT = 7, /* not tumbled and not e-stopped */
  GATES = 8,
};

enum { WIRE_NO_BANK = 255, WIRE_STATUS_FLAG = 0x80, WIRE_EVENT_CODE = 0x40 };

static inline uint16_t wire_u16(const uint8_t *b) { return (uint16_t)(b[0] | b[1] << 8); }
static inline int16_t wire_i16(const uint8_t *b) {
  int32_t v = wire_u16(b);
  return (int16_t)(v > 0x7FFF ? v - 0x10000 : v);
}
static inline uint32_t wire_u32(const uint8_t *b) { return wire_u16(b) | (uint32_t)wire_u16(b + 2) << 16; }
static inline float wire_f32(const uint8_t *b) {
  uint32_t bits = wire_u32(b);
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline void wire_put_u16(uint8_t *b, uint16_t v) {
  b[0] = (uint8_t)v;
  b[1] = (uint8_t)(v >> 8);
}
static inline void wire_put_u32(uint8_t *b, uint32_t v) {
  wire_put_u16(b, (uint16_t)v);
  wire_put_u16(b + 2, (uint16_t)(v >> 16));
}

#endif
