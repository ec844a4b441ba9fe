"""What a `sim.sim.Sim` holds: states, controls, parameters and counts of N worlds with M drones. Moves nothing.

Frozen pytrees with the names and shapes of the peer simulator (PyPI crazyflow 0.4.0), so that scripts written for it
find everything in its place; what is ours alone says so. ``x.replace(...)`` gives a copy with other fields. Arrays of
states and controls are (N, M, k); those of parameters have their own shape, or (N, M) in front of it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import jax
import jax.numpy as jnp

from sim.modes import Control

CORE = "core_ndim"
STATIC = {"static": True}


def _core(ndim: int) -> Any:
    """A field whose arrays have ``ndim`` axes of their own behind the batch."""
    return field(metadata={CORE: ndim})


class Record:
    """A frozen pytree with ``replace``, made quickly: a frozen dataclass sets its fields one by one, at 0.2 us each.

    Fields are given by name, all of them; nothing checks that they are there, as only this package makes records.
    """

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def replace(self, **changes: Any) -> Self:
        """A copy with other values of some fields."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, init=False)
class SimState(Record):
    """Where drones are, how they move, and what acts on them from outside."""

    pos: jax.Array = _core(1)  # (N, M, 3) world, m
    quat: jax.Array = _core(1)  # (N, M, 4) body to world, xyzw
    vel: jax.Array = _core(1)  # (N, M, 3) world, m/s
    ang_vel: jax.Array = _core(1)  # (N, M, 3) body, rad/s
    force: jax.Array = _core(1)  # (N, M, 3) from outside, world, N
    torque: jax.Array = _core(1)  # (N, M, 3) from outside, world, Nm
    rotor_vel: jax.Array = _core(1)  # (N, M, 4) rev/min; collective thrust in N in the so_rpy family


@jax.tree_util.register_dataclass
@dataclass(frozen=True, init=False)
class StateControl(Record):
    """Controller that follows a desired state. Commands are staged until its next tick."""

    cmd: jax.Array = _core(1)  # (N, M, 16)
    staged_cmd: jax.Array = _core(1)  # (N, M, 16)
    steps: jax.Array = _core(1)  # (N, 1) step of its last tick, -1 before the first
    pos_err_i: jax.Array = _core(1)  # (N, M, 3) integral of the position error, m s
    params: dict[str, jax.Array]
    freq: int = field(metadata=STATIC)  # Hz


@jax.tree_util.register_dataclass
@dataclass(frozen=True, init=False)
class AttitudeControl(Record):
    """Controller that follows a desired attitude."""

    cmd: jax.Array = _core(1)  # (N, M, 4)
    staged_cmd: jax.Array = _core(1)  # (N, M, 4)
    ang_vel_des: jax.Array = _core(1)  # (N, M, 3) desired body rates, from a state command
    staged_ang_vel_des: jax.Array = _core(1)  # (N, M, 3)
    steps: jax.Array = _core(1)  # (N, 1)
    r_int_error: jax.Array = _core(1)  # (N, M, 3) integral of the attitude error, s
    prev_ang_vel: jax.Array = _core(1)  # (N, M, 3) body rates at the last tick, rad/s
    params: dict[str, jax.Array]
    freq: int = field(metadata=STATIC)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, init=False)
class BodyRateControl(Record):
    """Controller that follows desired body rates."""

    cmd: jax.Array = _core(1)  # (N, M, 4)
    staged_cmd: jax.Array = _core(1)  # (N, M, 4)
    steps: jax.Array = _core(1)  # (N, 1)
    r_int_error: jax.Array = _core(1)  # (N, M, 3)
    prev_ang_vel: jax.Array = _core(1)  # (N, M, 3)
    params: dict[str, jax.Array]
    freq: int = field(metadata=STATIC)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, init=False)
class ForceTorqueControl(Record):
    """Controller that shares thrust and torques among rotors."""

    cmd: jax.Array = _core(1)  # (N, M, 4)
    staged_cmd: jax.Array = _core(1)  # (N, M, 4)
    steps: jax.Array = _core(1)  # (N, 1)
    params: dict[str, jax.Array]
    freq: int = field(metadata=STATIC)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, init=False)
class SimControls(Record):
    """Controllers of the chosen level and of those below it; None where there is none."""

    state: StateControl | None
    attitude: AttitudeControl | None
    body_rate: BodyRateControl | None
    force_torque: ForceTorqueControl | None
    rotor_vel: jax.Array = _core(1)  # (N, M, 4) commanded, rev/min
    mode: Control = field(metadata=STATIC)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, init=False)
class RotorParams(Record):
    """Parameters of the first-principles dynamics. An axis of rotors is 1 where all four are alike, else 4."""

    mass: jax.Array = _core(1)  # (1,) kg
    L: jax.Array = _core(1)  # (1,) or (4,) distance of the motors to the body axes, m
    prop_inertia: jax.Array = _core(1)  # (1,) or (4,) kg m^2
    gravity_vec: jax.Array = _core(1)  # (3,) m/s^2
    J: jax.Array = _core(2)  # (3, 3) kg m^2; its inverse is worked out
    rpm2thrust: jax.Array = _core(2)  # (1, 3) or (4, 3) N by rev/min, constant first
    rpm2torque: jax.Array = _core(2)  # (1, 3) or (4, 3) Nm by rev/min
    mixing_matrix: jax.Array = _core(2)  # (3, 4)
    drag_matrix: jax.Array = _core(2)  # (3, 3) N s/m, body frame, negative
    rotor_dyn_coef: jax.Array = _core(2)  # (1, 4) or (4, 4) rise linear, quadratic, fall linear, quadratic
    rot_damping: jax.Array = _core(1)  # (1,) 1/s; ours

    @property
    def J_inv(self) -> jax.Array:  # noqa: N802  the peer's name
        """Inverse of the inertia, 1/(kg m^2)."""
        return jnp.linalg.inv(self.J)

    def replace(self, **changes: Any) -> Self:
        """A copy with other values of some fields; ``J_inv`` is taken and left unused, as it follows from ``J``."""
        changes.pop("J_inv", None)
        return super().replace(**changes)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, init=False)
class AttitudeParams(Record):
    """Parameters of the so_rpy family; None where the model has no such term."""

    mass: jax.Array = _core(1)  # (1,) kg
    gravity_vec: jax.Array = _core(1)  # (3,)
    J: jax.Array = _core(2)  # (3, 3) kg m^2, for torques from outside
    acc_coef: jax.Array = _core(1)  # (1,) N
    cmd_f_coef: jax.Array = _core(1)  # (1,)
    rpy_coef: jax.Array = _core(1)  # (3,) 1/s^2
    rpy_rates_coef: jax.Array = _core(1)  # (3,) 1/s
    cmd_rpy_coef: jax.Array = _core(1)  # (3,) 1/s^2
    thrust_dyn_coef: jax.Array | None = _core(1)  # (1,) 1/s
    drag_matrix: jax.Array | None = _core(2)  # (3, 3) N s/m

    J_inv = RotorParams.J_inv

    def replace(self, **changes: Any) -> Self:
        """A copy with other values of some fields; ``J_inv`` is taken and left unused, as it follows from ``J``."""
        changes.pop("J_inv", None)
        return super().replace(**changes)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, init=False)
class SimCore(Record):
    """Counts and keys."""

    steps: jax.Array = _core(1)  # (N, 1) since the last reset
    rng_key: jax.Array = _core(0)
    freq: int = field(metadata=STATIC)  # Hz
    n_worlds: int = field(metadata=STATIC)
    n_drones: int = field(metadata=STATIC)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, init=False)
class SimData(Record):
    """Everything a step reads and writes."""

    states: SimState
    controls: SimControls
    params: RotorParams | AttitudeParams
    core: SimCore
    plugins: dict[str, Any]
    """For stages of one's own; not touched by a reset of some worlds."""
    effects: Mapping[str, Any]
    """Parameters of the stages of `sim.effects` by name, each leaf with or without (N, M) in front; ours."""
    memory: Mapping[str, Any]
    """Memories of those stages by name, (N, M) and random keys; ours."""

    @property
    def finite(self) -> jax.Array:
        """Whether all numbers of a world are finite, (N, 1): of its states and of what its controllers remember; ours.

        A command that is not a number may show in the memory first.
        """
        s, c = self.states, self.controls
        arrays = [s.pos, s.quat, s.vel, s.ang_vel, s.rotor_vel]
        levels = (level for level in (c.state, c.attitude, c.body_rate) if level is not None)
        for level in levels:
            arrays += [v for name in ("pos_err_i", "r_int_error") if (v := getattr(level, name, None)) is not None]
        rows = (jnp.isfinite(v).reshape(self.core.n_worlds, -1).all(axis=1, keepdims=True) for v in arrays)
        return functools.reduce(jnp.logical_and, rows)


def per_world(data: SimData) -> SimData:
    """Which arrays of ``data`` have the axis of worlds in front: the same tree, of bools."""
    lead = (data.core.n_worlds, data.core.n_drones)
    plugins = jax.tree.map(lambda _: False, data.plugins)
    effects, memory = (jax.tree.map(lambda v: v.shape[:2] == lead, own) for own in (data.effects, data.memory))
    return dataclasses.replace(_flagged(data), plugins=plugins, effects=effects, memory=memory)


def _flagged(node: Any) -> Any:
    changes = {}
    for f in dataclasses.fields(node):
        value = getattr(node, f.name)
        if f.metadata.get("static") or value is None:
            continue
        if CORE in f.metadata:
            changes[f.name] = value.ndim > f.metadata[CORE]
        elif dataclasses.is_dataclass(value):
            changes[f.name] = _flagged(value)
        else:  # parameters of controllers: those of one drone
            changes[f.name] = jax.tree.map(lambda _: False, value)
    return dataclasses.replace(node, **changes)
