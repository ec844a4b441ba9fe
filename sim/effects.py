"""What may be added to a step when it is built: named stages. Each is a pure function of components.

A stage acts at one of three places: on the command before the dynamics, as a wrench inside the derivative (so that an
integrator sees it at each of its evaluations), or on the state after integration. A stage with parameters of its own
finds them, traced like all others, in ``params.effects[stage.name]``; a step refuses parameters that no stage uses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp

from sim import rotation, rotor
from sim.errors import ConfigError
from sim.state import Components, Params


@dataclass(frozen=True)
class Stage:
    """One stage of a step.

    Attributes:
        name: unique in a step.
        place: ``command``: ``apply(params, x, rotor_rpm_cmd) -> rotor_rpm_cmd`` (4);
            ``wrench``: ``apply(params, x, rotor_rpm_cmd) -> (force 3 world N, torque 3 body Nm)``;
            ``state``: ``apply(params, x, dt) -> x`` (17).
        apply: the function, on components (see `sim.state`).
    """

    name: str
    place: Literal["command", "wrench", "state"]
    apply: Callable[..., Any]


def _own(params: Params, name: str) -> Any:
    if name not in params.effects:
        raise ConfigError(f"stage {name!r} needs params.effects[{name!r}], but there are {sorted(params.effects)}")
    return params.effects[name]


def _external_wrench(params: Params, x: Components, rotor_rpm_cmd: Components) -> tuple[Components, Components]:
    force, torque = _own(params, "external_wrench")
    return tuple(force[..., i] for i in range(3)), tuple(torque[..., i] for i in range(3))


external_wrench = Stage("external_wrench", "wrench", _external_wrench)
"""A force and a torque from outside: ``params.effects["external_wrench"] = (force (..., 3) world N, torque (..., 3)
body Nm)``."""


def _wind(params: Params, x: Components, rotor_rpm_cmd: Components) -> tuple[Components, Components]:
    # Drag is R C R^T (v - wind); the dynamics has the part with v.
    wind = _own(params, "wind")
    R = rotation.matrix(x[3:7])
    body = rotation.rotate_back(R, tuple(wind[..., i] for i in range(3)))
    drag = tuple(-sum(params.drag[..., i, j] * body[j] for j in range(3)) for i in range(3))
    return rotation.rotate(R, drag), (0.0, 0.0, 0.0)


wind = Stage("wind", "wrench", _wind)
"""Steady wind: ``params.effects["wind"]`` is the velocity of the air (..., 3), world frame, m/s."""


def _rotor_limits(params: Params, x: Components, rotor_rpm_cmd: Components) -> Components:
    top = rotor.limits(params)[1][..., 0]
    return tuple(jnp.clip(n, 0.0, top) for n in rotor_rpm_cmd)


rotor_limits = Stage("rotor_limits", "command", _rotor_limits)
"""Commands are held between standstill and the speed of greatest thrust."""


FLOOR_Z = -0.001
"""Height in m at which the floor holds a drone: just below zero, so that a drone set on the floor is not touching."""


def _floor(params: Params, x: Components, dt: float) -> Components:
    under = x[2] < FLOOR_Z
    held = tuple(jnp.where(under, 0.0, v) for v in x[7:10])
    return (*x[0:2], jnp.where(under, FLOOR_Z, x[2]), *x[3:7], *held, *x[10:17])


floor = Stage("floor", "state", _floor)
"""A floor that holds position and stops velocity below `FLOOR_Z`; it does not turn the drone. No contact model."""
