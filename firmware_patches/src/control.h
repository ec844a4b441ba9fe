/* The control state machine as a table: what each event does in each state. No code but the look-up. */
#ifndef MIDAIR_CONTROL_H
#define MIDAIR_CONTROL_H

#include <stdint.h>

#include "wire.h"

/* WITHDRAWN: lease over, ABORT 0, ROLLBACK without another bank. CUT: ABORT 1. */
enum control_event {
  ACTIVATE,
  GATES_HOLD,
  VALID_OVER,
  WITHDRAWN,
  FAULT,
  CUT,
  WINDOW,
  ROLLBACK,
  DISARMED,
  CONTROL_EVENTS
};

enum control_action {
  NOTHING,
  ARM,     /* the request becomes the pending network */
  SWAP,    /* the pending network flies */
  GIVE_UP, /* the pending network is forgotten; in a window the motors stay off */
  FORGET,  /* the pending network is forgotten, the old one flies on */
  LEAVE,   /* no network any more */
  OTHER,   /* the other bank takes the place of this one */
  OPEN,    /* the throw window */
  REFUSE
};

struct control_cell {
  uint8_t next, action;
};

extern const struct control_cell control_table[CONTROLS][CONTROL_EVENTS];

#endif
