"""A rotor's curve between speed and thrust, both ways. Static: the lag of the motor is in `sim.dynamics`."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from sim.state import Params


def thrust(params: Params, rotor_rpm: Any) -> Any:
    """Thrust in N of rotors (..., n) turning at ``rotor_rpm``."""
    c = params.rpm2thrust
    return c[..., 0:1] + rotor_rpm * (c[..., 1:2] + rotor_rpm * c[..., 2:3])


def rpm(params: Params, thrust_N: Any) -> Any:
    """Speed in rev/min at which rotors (..., n) give ``thrust_N``: the greater root of the curve.

    Below the curve's least thrust, where no speed fits, the speed of that least; gradients stay finite there.
    """
    c0, c1, c2 = (params.rpm2thrust[..., i : i + 1] for i in range(3))
    under = c1 * c1 - 4.0 * c2 * (c0 - thrust_N)
    # Double where: the root's slope is infinite at zero, and a where alone would still multiply it in.
    safe = under > 0.0
    root = jnp.where(safe, jnp.sqrt(jnp.where(safe, under, 1.0)), 0.0)
    return (root - c1) / (2.0 * c2)


def limits(params: Params) -> tuple[Any, Any]:
    """Rotor speeds (..., 1) at the least and the greatest thrust, rev/min."""
    least, greatest = (jnp.asarray(thrust)[..., None] for thrust in (params.thrust_min, params.thrust_max))
    return rpm(params, least), rpm(params, greatest)


def hover_rpm(params: Params) -> Any:
    """Speed (..., 1) of four equal rotors that carry the drone, rev/min."""
    return rpm(params, jnp.asarray(params.mass * params.gravity / 4.0)[..., None])
