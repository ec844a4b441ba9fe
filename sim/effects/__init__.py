"""What may be added to a step when it is built: named stages, each with parameters and, if it needs one, a memory.

A stage that is not in a step costs nothing. Stages of the air are in `sim.effects.air`, of the motors and their battery
in `sim.effects.drive`, of what surrounds the drone in `sim.effects.surroundings`; `Stage` itself is in
`sim.effects.stage`.
"""

from sim.effects.air import downwash, ground_effect, gusts, wind
from sim.effects.drive import battery, motor_delay, motor_start_delay, rotor_limits
from sim.effects.stage import PLACES, Stage, advance, defaults, start
from sim.effects.surroundings import FLOOR_Z, external_wrench, floor

__all__ = [
    "FLOOR_Z",
    "PLACES",
    "Stage",
    "advance",
    "battery",
    "defaults",
    "downwash",
    "external_wrench",
    "floor",
    "ground_effect",
    "gusts",
    "motor_delay",
    "motor_start_delay",
    "rotor_limits",
    "start",
    "wind",
]
