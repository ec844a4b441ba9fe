"""Stages of what surrounds a drone: a force and torque from outside, and a floor. No contact model."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from sim.effects.stage import Stage, own
from sim.state import Components


def _external_wrench(params: Any, x: Components, command: Components) -> tuple[Components, Components]:
    force, torque = own(params, "external_wrench")
    return tuple(force[..., i] for i in range(3)), tuple(torque[..., i] for i in range(3))


external_wrench = Stage("external_wrench", "wrench", _external_wrench, default=((0.0,) * 3, (0.0,) * 3))
"""A force and a torque from outside: ``params.effects["external_wrench"] = (force (..., 3) world N, torque (..., 3)
body Nm)``."""


FLOOR_Z = -0.001
"""Height in m at which the floor holds a drone: just below zero, so that a drone set on the floor is not touching."""


def _floor(params: Any, x: Components, dt: float) -> Components:
    under = x[2] < FLOOR_Z
    held = tuple(jnp.where(under, 0.0, v) for v in x[7:10])
    return (*x[0:2], jnp.where(under, FLOOR_Z, x[2]), *x[3:7], *held, *x[10:17])


floor = Stage("floor", "state", _floor)
"""A floor that holds position and stops velocity below `FLOOR_Z`; it does not turn the drone. No contact model."""
