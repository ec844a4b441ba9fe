"""The firmware's cascade of controllers, from desired states down to rotor speeds.

Every level is a pure function ``(gains, memory, state, command) -> (memory, lower command)`` in `sim.onboard.levels`;
inside a step they run together, each at its own rate (`sim.onboard.cascade`).
"""

from sim.gains import Gains
from sim.onboard.cascade import LEVELS, Cascade, build
from sim.onboard.levels import (
    AttitudeMemory,
    StateMemory,
    attitude2force_torque,
    body_rate2force_torque,
    force_torque2rotor_vel,
    state2attitude,
)

__all__ = [
    "LEVELS",
    "AttitudeMemory",
    "Cascade",
    "Gains",
    "StateMemory",
    "attitude2force_torque",
    "body_rate2force_torque",
    "build",
    "force_torque2rotor_vel",
    "state2attitude",
]
