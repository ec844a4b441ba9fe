/* Two banks of network weights and the upload into them. Never swaps a network: that is gate.c. */
#include "weights.h"

#include <math.h>
#include <stddef.h>

#include "gate.h"

static const float LARGEST = 64; /* wire: |weight| <= 64 */

void weights_init(struct weights *weights) { memset(weights, 0, sizeof *weights); }

uint32_t weights_crc32(const uint8_t *data, uint32_t size) {
  static const uint32_t nibble[16] = {0x00000000, 0x1DB71064, 0x3B6E20C8, 0x26D930AC, 0x76DC4190, 0x6B6B51F4,
                                      0x4DB26158, 0x5005713C, 0xEDB88320, 0xF00F9344, 0xD6D6A3E8, 0xCB61B38C,
                                      0x9B64C2B0, 0x86D3D2D4, 0xA00AE278, 0xBDBDF21C};
  uint32_t crc = 0xFFFFFFFF;
  for (uint32_t i = 0; i < size; i++) {
    crc ^= data[i];
    crc = crc >> 4 ^ nibble[crc & 15];
    crc = crc >> 4 ^ nibble[crc & 15];
  }
  return ~crc;
}

static int chunks(const struct policy_arch *arch) { return (arch->params + WIRE_CHUNK - 1) / WIRE_CHUNK; }

static bool complete(const struct weights_bank *bank) {
  for (int i = 0; i < chunks(bank->arch); i++) {
    if (!(bank->bitmap[i / 8] >> (i % 8) & 1)) return false;
  }
  return true;
}

/* Bank of this upload: the one that receives it, else the one that holds it; -1 for none. */
static int bank_of(const struct weights *weights, uint8_t xfer) {
  for (int state = BANK_RECV; state <= BANK_READY; state++) {
    for (int i = 0; i < WEIGHTS_BANKS; i++) {
      if (weights->bank[i].state == state && weights->bank[i].begin[1] == xfer) return i;
    }
  }
  return -1;
}

int weights_find(const struct weights *weights, uint32_t policy, uint32_t crc, uint8_t *error) {
  *error = WIRE_UNKNOWN_ID;
  for (int i = 0; i < WEIGHTS_BANKS; i++) {
    const struct weights_bank *bank = &weights->bank[i];
    if (bank->state == BANK_EMPTY || bank->policy != policy) continue;
    if (bank->state == BANK_READY && bank->crc == crc) {
      *error = WIRE_OK;
      return i;
    }
    *error = bank->crc == crc ? WIRE_INCOMPLETE : WIRE_BAD_CRC;
  }
  return -1;
}

/* Which bank a new upload takes: one that already receives this xfer (or two would), else EMPTY, RECV, READY. */
static struct weights_bank *bank_for(struct weights *weights, uint8_t xfer) {
  struct weights_bank *best = NULL;
  for (int i = 0; i < WEIGHTS_BANKS; i++) {
    struct weights_bank *bank = &weights->bank[i];
    if (weights->pinned >> i & 1 || bank->checking) continue;
    if (bank->state == BANK_RECV && bank->begin[1] == xfer) return bank;
    if (best == NULL || bank->state < best->state) best = bank;
  }
  return best;
}

static uint8_t begin(struct weights *weights, const uint8_t *data) {
  for (int i = 0; i < WEIGHTS_BANKS; i++) {
    if (weights->bank[i].state != BANK_EMPTY && memcmp(weights->bank[i].begin, data, WIRE_BEGIN_SIZE) == 0) {
      weights->xfer = data[1];
      return WIRE_OK; /* the same bytes again change nothing */
    }
  }
  const struct policy_arch *arch = policy_arch(wire_u16(data + 3));
  if (data[2] != WIRE_VERSION) return WIRE_BAD_VERSION;
  if (arch == NULL) return WIRE_BAD_ARCH;
  if (wire_u16(data + 5) != arch->params || data[7] != chunks(arch)) return WIRE_BAD_SIZE;
  if (data[1] == 0) return WIRE_UNKNOWN_ID;
  struct weights_bank *bank = bank_for(weights, data[1]);
  if (bank == NULL) return WIRE_BUSY;
  memcpy(bank->begin, data, WIRE_BEGIN_SIZE);
  memset(bank->bitmap, 0, sizeof bank->bitmap);
  bank->arch = arch;
  bank->policy = wire_u32(data + 8);
  bank->crc = wire_u32(data + 12);
  bank->conflict = 0;
  bank->state = BANK_RECV;
  weights->xfer = data[1];
  return WIRE_OK;
}

static bool receive_chunk(struct weights *weights, const uint8_t *data, int size) {
  const int i = size == WIRE_PACKET ? bank_of(weights, data[0]) : -1;
  if (i < 0) return false;
  struct weights_bank *bank = &weights->bank[i];
  const int index = data[1];
  if (bank->state != BANK_RECV || index >= chunks(bank->arch)) return false;
  uint8_t *place = bank->image + 2 * WIRE_CHUNK * index;
  const uint8_t bit = (uint8_t)(1u << (index % 8));
  if (bank->bitmap[index / 8] & bit) {
    if (memcmp(place, data + 2, 2 * WIRE_CHUNK) != 0) bank->conflict = 1;
    return true;
  }
  memcpy(place, data + 2, 2 * WIRE_CHUNK);
  bank->bitmap[index / 8] |= bit;
  return true;
}

void weights_receive(struct weights *weights, int channel, const uint8_t *data, int size, uint32_t now_ms) {
  if (size < 1 || size > WIRE_PACKET || (channel != WIRE_REQUEST && channel != WIRE_DATA)) {
    weights->malformed++;
    return;
  }
  if (channel == WIRE_DATA) {
    if (!receive_chunk(weights, data, size)) weights->ignored++;
    return;
  }
  uint8_t head = weights->head, next = (uint8_t)((head + 1) % WEIGHTS_REQUESTS);
  const uint8_t error = data[0] == WIRE_BEGIN && size == WIRE_BEGIN_SIZE ? begin(weights, data) : WIRE_OK;
  if (next == weights->tail) {
    weights->dropped++;
    if (data[0] != WIRE_ABORT) return;
    next = head; /* an ABORT always finds a place: that of the newest request */
    head = (uint8_t)((head + WEIGHTS_REQUESTS - 1) % WEIGHTS_REQUESTS);
  }
  struct weights_request *request = &weights->ring[head];
  request->at_ms = now_ms;
  request->error = error;
  request->size = (uint8_t)size;
  memcpy(request->data, data, (size_t)size);
  weights->head = next;
}

/* Everything that makes a bank READY. The receive task leaves a bank alone whose `checking` is set. */
static uint8_t check(struct weights_bank *bank, const uint8_t *data) {
  if (bank->conflict) return WIRE_CONFLICT;
  if (!complete(bank)) return WIRE_INCOMPLETE;
  if (wire_u32(data + 2) != bank->crc || weights_crc32(bank->image, 2u * bank->arch->params) != bank->crc) {
    return WIRE_BAD_CRC;
  }
  for (int i = 0; i < bank->arch->params; i++) {
    bank->params[i] = policy_half_to_float(wire_u16(bank->image + 2 * i));
    if (!(fabsf(bank->params[i]) <= LARGEST)) return WIRE_NOT_FINITE;
  }
  float obs[POLICY_MAX_IN], action[POLICY_OUT];
  const float tolerance = policy_half_to_float(wire_u16(data + 14));
  policy_canned(bank->arch, obs);
  bool match = policy_forward(bank->arch, bank->params, obs, action) && isfinite(tolerance);
  for (int i = 0; i < POLICY_OUT; i++) {
    match = match && fabsf(action[i] - policy_half_to_float(wire_u16(data + 6 + 2 * i))) <= tolerance;
  }
  if (!match) return WIRE_CANNED_MISMATCH;
  return bank->conflict ? WIRE_CONFLICT : WIRE_OK; /* a conflict may have come while we looked */
}

static uint8_t commit(struct weights *weights, const uint8_t *data) {
  const int i = bank_of(weights, data[1]);
  if (i < 0) return WIRE_UNKNOWN_ID;
  struct weights_bank *bank = &weights->bank[i];
  bank->checking = 1;
  uint8_t error;
  if (bank->begin[1] != data[1]) {
    error = WIRE_UNKNOWN_ID; /* a BEGIN took the bank before we marked it */
  } else if (bank->state == BANK_READY) {
    error = wire_u32(data + 2) == bank->crc ? WIRE_OK : WIRE_BAD_CRC; /* again: answered, not repeated */
  } else {
    error = check(bank, data);
    if (error == WIRE_OK) bank->state = BANK_READY;
  }
  bank->checking = 0;
  return error;
}

static void fill_status(const struct weights *weights, const struct gate *gate, uint8_t command, uint8_t xfer,
                        uint8_t error, uint8_t detail, uint8_t status[WIRE_STATUS_SIZE]) {
  const int i = bank_of(weights, xfer);
  memset(status, 0, WIRE_STATUS_SIZE);
  status[0] = WIRE_STATUS_FLAG | command;
  status[1] = xfer;
  status[2] = gate_control(gate);
  status[3] = weights->bank[0].state;
  status[4] = weights->bank[1].state;
  status[5] = error;
  wire_put_u32(status + 6, gate_policy_id(gate, weights));
  wire_put_u32(status + 10, i < 0 ? 0 : weights->bank[i].crc);
  uint8_t *tail = status + 14;
  if (command == WIRE_HELLO && error == WIRE_OK) {
    tail[0] = WIRE_VERSION;
    wire_put_u16(tail + 1, WIRE_MAX_PARAM);
    tail[3] = POLICY_ARCHS;
    for (int a = 0; a < POLICY_ARCHS; a++) wire_put_u16(tail + 4 + 2 * a, policy_archs[a].id);
  } else if (error == WIRE_GATE) {
    tail[0] = detail;
  } else if (i >= 0) {
    memcpy(tail, weights->bank[i].bitmap, sizeof weights->bank[i].bitmap);
  }
}

bool weights_work(struct weights *weights, struct gate *gate, uint32_t now_ms, uint8_t status[WIRE_STATUS_SIZE],
                  bool *served) {
  static const uint8_t size[WIRE_COMMANDS] = {
      [WIRE_HELLO] = 1,    [WIRE_BEGIN] = WIRE_BEGIN_SIZE,         [WIRE_COMMIT] = WIRE_COMMIT_SIZE,
      [WIRE_ROLLBACK] = 1, [WIRE_ACTIVATE] = WIRE_ACTIVATE_SIZE,   [WIRE_ABORT] = 2,
      [WIRE_WINDOW] = 3,   [WIRE_HEARTBEAT] = WIRE_HEARTBEAT_SIZE, [WIRE_RELEASED] = 1,
  };
  *served = weights->tail != weights->head;
  if (!*served) return false;
  const struct weights_request request = weights->ring[weights->tail];
  weights->tail = (uint8_t)((weights->tail + 1) % WEIGHTS_REQUESTS);
  const uint8_t command = request.data[0];
  uint8_t error = request.error, detail = 0, xfer = weights->xfer;
  if (command >= WIRE_COMMANDS) {
    error = WIRE_UNKNOWN_COMMAND;
  } else if (request.size != size[command]) {
    weights->malformed++;
    error = WIRE_BAD_SIZE;
  } else if (command == WIRE_BEGIN) {
    xfer = request.data[1];
  } else if (command == WIRE_COMMIT) {
    xfer = request.data[1];
    error = commit(weights, request.data);
  } else if (command != WIRE_HELLO) {
    error = gate_request(gate, weights, request.data, request.at_ms, now_ms, &detail);
  }
  if (command == WIRE_HEARTBEAT) return false;
  fill_status(weights, gate, command & 0x7F, xfer, error, detail, status);
  return true;
}
