"""The state of drones, their parameters, and the flat components that a step works on. Holds no physics.

`State`, `Params` and `RpyParams` are frozen pytrees of arrays with the batch in front, as people write them. A step
works on *components* instead: a flat tuple of 17 arrays that broadcast against each other, so that one drone (scalars)
and a batch (arrays with the batch last) run the same code at full speed. Their order is

    pos 3, quat 4 (xyzw), vel 3, ang_vel 3, rotor_rpm 4

The models of the so_rpy family have no rotors; the four last components then hold the collective thrust in N, of which
the first enters the dynamics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from sim.errors import ShapeError
from sim.gains import Gains

Components = tuple[Any, ...]
"""17 arrays that broadcast against each other, in the order of this module's docstring."""

SIZE = 17
POS, QUAT, VEL, ANG_VEL, ROTOR = slice(0, 3), slice(3, 7), slice(7, 10), slice(10, 13), slice(13, 17)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Where a drone is and how it moves."""

    pos: jax.Array  # (..., 3)
    """Centre of mass, world frame (z up), m."""
    quat: jax.Array  # (..., 4)
    """Body to world, xyzw, unit norm."""
    vel: jax.Array  # (..., 3)
    """World frame, m/s."""
    ang_vel: jax.Array  # (..., 3)
    """Body frame, rad/s."""
    rotor_rpm: jax.Array  # (..., 4)
    """Rotor speeds, rev/min; collective thrust, N, in the so_rpy family."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rotors:
    """What rotors of one drone may have each for itself; replaces the fields of the same name of `Params`."""

    arm_length: jax.Array  # (..., 4)
    prop_inertia: jax.Array  # (..., 4)
    rpm2thrust: jax.Array  # (..., 4, 3)
    rpm2torque: jax.Array  # (..., 4, 3)
    rotor_coef: jax.Array  # (..., 4, 4)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Params:
    """Parameters of the first-principles dynamics; every leaf may carry batch axes in front and is traced."""

    mass: jax.Array  # (...)
    """kg"""
    inertia: jax.Array  # (..., 3, 3)
    """Of the whole drone about its centre of mass, body frame, kg m^2."""
    arm_length: jax.Array  # (...)
    """Distance of the motors to the body axes (not to the centre), m."""
    prop_inertia: jax.Array  # (...)
    """Of one propeller with its motor, kg m^2."""
    rpm2thrust: jax.Array  # (..., 3)
    """Thrust of a rotor in N as polynomial in rev/min, constant first."""
    rpm2torque: jax.Array  # (..., 3)
    """Drag torque of a rotor in Nm as polynomial in rev/min, constant first."""
    rotor_coef: jax.Array  # (..., 4)
    """Rise linear (1/s), rise quadratic (1/(rpm s)), fall linear, fall quadratic."""
    mixing: jax.Array  # (..., 3, 4)
    """Signs of the four rotors in roll, pitch and yaw torque."""
    drag: jax.Array  # (..., 3, 3)
    """Force on the body is R C R^T v, N s/m; its entries are negative."""
    thrust_min: jax.Array  # (...)
    """Least thrust of a spinning rotor, N."""
    thrust_max: jax.Array  # (...)
    """Greatest thrust of a rotor, N."""
    rot_damping: jax.Array | float = 0.0  # (...)
    """Rotational damping c in 1/s: the body feels the torque -c J w."""
    gravity: jax.Array | float = 9.81  # (...)
    """m/s^2, along world -z."""
    effects: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the stages of `sim.effects`, by stage name."""
    rotors: Rotors | None = None
    """Rotors that differ from each other; None: all four have the values above."""
    onboard: Gains | None = None
    """Gains of the onboard cascade; control above rotor level needs them."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RpyParams:
    """Parameters of the fitted attitude models (so_rpy family); every leaf may carry batch axes in front."""

    mass: jax.Array  # (...)
    """kg"""
    inertia: jax.Array  # (..., 3, 3)
    """Turns torques from outside into accelerations; the fitted part does without it. kg m^2."""
    acc_coef: jax.Array  # (...)
    """Offset of the collective thrust, N."""
    cmd_f_coef: jax.Array  # (...)
    """Collective thrust in N per N commanded."""
    rpy_coef: jax.Array  # (..., 3)
    """Angular acceleration of roll, pitch, yaw by the angle, 1/s^2."""
    rpy_rates_coef: jax.Array  # (..., 3)
    """By the rate of the angle, 1/s."""
    cmd_rpy_coef: jax.Array  # (..., 3)
    """By the commanded angle, 1/s^2."""
    thrust_min: jax.Array  # (...)
    """Least thrust of a rotor, N."""
    thrust_max: jax.Array  # (...)
    """Greatest thrust of a rotor, N."""
    thrust_dyn_coef: jax.Array | None = None  # (...)
    """Rate at which thrust follows its command, 1/s; None in so_rpy, where it follows at once."""
    drag: jax.Array | None = None  # (..., 3, 3)
    """As in `Params`; None in so_rpy and so_rpy_rotor."""
    gravity: jax.Array | float = 9.81  # (...)
    """m/s^2, along world -z."""
    effects: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the stages of `sim.effects`, by stage name."""
    onboard: Gains | None = None
    """Gains of the onboard cascade; state control needs them."""


def resting(pos: Any = (0.0, 0.0, 0.0), *, rotor_rpm: Any = 0.0, dtype: Any = None) -> State:
    """A level drone at rest at ``pos`` (..., 3), all rotors at ``rotor_rpm`` (scalar or (..., 4))."""
    dtype = dtype or jax.dtypes.canonicalize_dtype(float)
    pos = jnp.asarray(pos, dtype)
    batch = pos.shape[:-1]
    zeros = jnp.zeros((*batch, 3), dtype)
    quat = jnp.broadcast_to(jnp.array([0.0, 0.0, 0.0, 1.0], dtype), (*batch, 4))
    return State(pos, quat, zeros, zeros, jnp.broadcast_to(jnp.asarray(rotor_rpm, dtype), (*batch, 4)))


def components(state: State) -> Components:
    """The 17 components, each with the batch shape of ``state`` (scalars for one drone)."""
    parts = (("pos", 3), ("quat", 4), ("vel", 3), ("ang_vel", 3), ("rotor_rpm", 4))
    flat: list[Any] = []
    for name, size in parts:
        value = getattr(state, name)
        if jnp.ndim(value) == 0 or jnp.shape(value)[-1] != size:
            raise ShapeError(f"state.{name} has shape {jnp.shape(value)}, but (..., {size}) is expected")
        flat.extend(value[..., i] for i in range(size))
    return tuple(flat)


def from_components(x: Components) -> State:
    """The state of 17 components of any shapes that broadcast."""
    if len(x) != SIZE:
        raise ShapeError(f"a state has {SIZE} components, not {len(x)}")
    x = jnp.broadcast_arrays(*x)
    parts = (POS, QUAT, VEL, ANG_VEL, ROTOR)
    return State(*(jnp.stack(x[part], axis=-1) for part in parts))
