"""The choices of a simulation as enums whose members are their own names, so that plain strings do as well."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from sim.errors import ConfigError

E = TypeVar("E", bound=StrEnum)


class Drone(StrEnum):
    """Drones with known parameters (see `sim.drones`)."""

    cf21B_500 = "cf21B_500"  # noqa: N815
    cf2x_L250 = "cf2x_L250"  # noqa: N815
    cf2x_P250 = "cf2x_P250"  # noqa: N815
    cf2x_T350 = "cf2x_T350"  # noqa: N815
    hb_x500 = "hb_x500"


class Dynamics(StrEnum):
    """Models of how a drone accelerates (see `sim.dynamics`)."""

    first_principles = "first_principles"
    so_rpy = "so_rpy"
    so_rpy_rotor = "so_rpy_rotor"
    so_rpy_rotor_drag = "so_rpy_rotor_drag"
    default = first_principles


class Control(StrEnum):
    """Level at which a drone is commanded; the onboard cascade does what lies below."""

    state = "state"
    """16: pos 3 (m), vel 3, acc 3, attitude xyzw 4 (only its yaw counts), body rates 3 (rad/s)."""
    attitude = "attitude"
    """4: roll, pitch, yaw (rad), collective thrust (N)."""
    body_rate = "body_rate"
    """4: body rates 3 (rad/s), collective thrust (N)."""
    force_torque = "force_torque"
    """4: collective thrust (N), torques 3 (Nm)."""
    rotor_vel = "rotor_vel"
    """4: rotor speeds (rev/min)."""
    default = attitude


class Integrator(StrEnum):
    """Integrators (see `sim.integrate`)."""

    euler = "euler"
    rk4 = "rk4"
    rkmk4 = "rkmk4"
    symplectic_euler = "symplectic_euler"
    default = euler


SIZES = {Control.state: 16, Control.attitude: 4, Control.body_rate: 4, Control.force_torque: 4, Control.rotor_vel: 4}
"""Numbers in a command of each level."""

CASCADES: dict[Control, tuple[str, ...]] = {
    Control.state: ("state", "attitude", "force_torque"),
    Control.attitude: ("attitude", "force_torque"),
    Control.body_rate: ("body_rate", "force_torque"),
    Control.force_torque: ("force_torque",),
    Control.rotor_vel: (),
}
"""Controllers that run at each level of command, in order, when the dynamics has rotors."""


def choose(kind: type[E], value: str, argument: str) -> E:
    """The member of ``kind`` that ``value`` names.

    Raises:
        ConfigError: there is none; the text has the argument's name and the choices.
    """
    try:
        return kind(value)
    except ValueError:
        raise ConfigError(f"{argument} is {value!r}, but it must be one of {', '.join(kind)}") from None


def cascade(control: Control, dynamics: Dynamics) -> tuple[str, ...]:
    """Controllers that run for commands of ``control`` with ``dynamics``.

    Raises:
        ConfigError: the dynamics cannot be commanded at that level.
    """
    if dynamics == Dynamics.first_principles:
        return CASCADES[control]
    if control not in (Control.state, Control.attitude):
        raise ConfigError(
            f"control is {control.value!r}, but dynamics {dynamics.value!r} has no rotors and takes attitude or state; "
            "first_principles takes all five levels"
        )
    return ("state", "attitude") if control == Control.state else ("attitude",)
