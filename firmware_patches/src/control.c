/* The control state machine as a table: what each event does in each state. */
#include "control.h"

#define STOCK CONTROL_STOCK
#define ARMED CONTROL_ARMED
#define ACTIVE CONTROL_ACTIVE
#define OFF CONTROL_OFF

const struct control_cell control_table[CONTROLS][CONTROL_EVENTS] = {
    [STOCK] = {[ACTIVATE] = {ARMED, ARM},
               [GATES_HOLD] = {STOCK, NOTHING},
               [VALID_OVER] = {STOCK, NOTHING},
               [WITHDRAWN] = {STOCK, GIVE_UP},
               [FAULT] = {STOCK, NOTHING},
               [CUT] = {OFF, LEAVE},
               [WINDOW] = {STOCK, OPEN},
               [ROLLBACK] = {STOCK, NOTHING},
               [DISARMED] = {STOCK, NOTHING}},
    [ARMED] = {[ACTIVATE] = {ARMED, ARM},
               [GATES_HOLD] = {ACTIVE, SWAP},
               [VALID_OVER] = {STOCK, GIVE_UP},
               [WITHDRAWN] = {STOCK, GIVE_UP},
               [FAULT] = {ARMED, NOTHING},
               [CUT] = {OFF, LEAVE},
               [WINDOW] = {ARMED, REFUSE},
               [ROLLBACK] = {ARMED, OTHER},
               [DISARMED] = {ARMED, NOTHING}},
    [ACTIVE] = {[ACTIVATE] = {ACTIVE, ARM},
                [GATES_HOLD] = {ACTIVE, SWAP},
                [VALID_OVER] = {ACTIVE, FORGET},
                [WITHDRAWN] = {STOCK, LEAVE},
                [FAULT] = {STOCK, LEAVE},
                [CUT] = {OFF, LEAVE},
                [WINDOW] = {ACTIVE, REFUSE},
                [ROLLBACK] = {ACTIVE, OTHER},
                [DISARMED] = {ACTIVE, NOTHING}},
    [OFF] = {[ACTIVATE] = {OFF, REFUSE},
             [GATES_HOLD] = {OFF, NOTHING},
             [VALID_OVER] = {OFF, NOTHING},
             [WITHDRAWN] = {OFF, NOTHING},
             [FAULT] = {OFF, NOTHING},
             [CUT] = {OFF, NOTHING},
             [WINDOW] = {STOCK, OPEN},
             [ROLLBACK] = {OFF, NOTHING},
             [DISARMED] = {STOCK, NOTHING}},
};
