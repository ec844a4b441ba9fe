"""What the station believes of a drone in free flight, as literals. Not the plant, and not the trainer's model.

The processes that read it never load JAX, so the figures stand here a second time; a test holds them equal to the
simulator's. Source: the identified parameters published with crazyflow 0.4.0 (MIT).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from station.config import ConfigError

Vec3 = tuple[float, float, float]

GRAVITY = 9.81


@dataclass(frozen=True, slots=True)
class Airframe:
    """Nominal constants of one type of drone, and how well the poorly known ones are known."""

    mass: float
    """kg."""
    inertia: Vec3
    """Principal moments, kg m^2, body axes."""
    drag: Vec3
    """Linear drag, N s/m, body axes, positive: the force is -R diag(drag) R' v."""
    thrust_min: float
    """N per rotor, at idle."""
    thrust_max: float
    """N per rotor."""
    rotor_rise: float
    """First-order rate of a rotor that spins up, 1/s."""
    drag_spread: float = 0.07
    """Standard deviation of true drag over mass, as a share of nominal."""
    damping: float = 0.6
    """Rotational damping without thrust, 1/s: the torque is -damping J w. A guess until it has been identified."""
    damping_std: float = 0.3


_AIRFRAMES = {
    "cf2x_L250": Airframe(
        mass=0.0328,
        inertia=(1.68e-05, 1.68e-05, 2.98e-05),
        drag=(0.014953790232821078, 0.014953790232821078, 0.013900090000325344),
        thrust_min=0.012817578393224994,
        thrust_max=0.12,
        rotor_rise=7.355623702172756,
    ),
    "cf2x_P250": Airframe(
        mass=0.0318,
        inertia=(1.68e-05, 1.68e-05, 2.98e-05),
        drag=(0.01351483, 0.01351483, 0.01677452),
        thrust_min=0.012817578393224994,
        thrust_max=0.12,
        rotor_rise=5.172596691828673,
    ),
    "cf2x_T350": Airframe(
        mass=0.0379,
        inertia=(1.57e-05, 1.71e-05, 3.0e-05),
        drag=(0.015203241038199845, 0.015203241038199845, 0.02204579179094129),
        thrust_min=0.01922636758983749,
        thrust_max=0.18,
        rotor_rise=11.374753209400291,
    ),
    "cf21B_500": Airframe(
        mass=0.0434,
        inertia=(2.5e-05, 2.8e-05, 4.9e-05),
        drag=(0.021643637770852733, 0.021643637770852733, 0.02477138502714662),
        thrust_min=0.02136263065537499,
        thrust_max=0.2,
        rotor_rise=13.996001897562685,
    ),
}

NAMES = tuple(_AIRFRAMES)


def load(name: str, rot_damping: float = 0.0) -> Airframe:
    """The airframe of a drone type.

    Args:
        name: type of the drone, as in the config.
        rot_damping: identified rotational damping, 1/s; 0: not identified, a broad guess is used.

    Raises:
        ConfigError: no such type.

    """
    if name not in _AIRFRAMES:
        raise ConfigError(f"unknown drone type '{name}'; known are {', '.join(NAMES)}")
    airframe = _AIRFRAMES[name]
    if rot_damping > 0.0:
        return replace(airframe, damping=rot_damping, damping_std=0.05 + 0.1 * rot_damping)
    return airframe
