"""Stages of the air: steady wind, gusts, ground effect, and the downwash of the other drones of a world.

Drag is R C R^T (v - air); the dynamics has the part with v, and each of these adds that of its own moving air.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from sim import rotation
from sim.effects.stage import Stage, need, own
from sim.state import QUAT, ROTOR, Components

STILL = (0.0, 0.0, 0.0)


def air_force(params: Any, x: Components, air: tuple[Any, ...], name: str) -> Components:
    """Force in N, world frame, of air moving at ``air`` (3, world, m/s) on a drone whose drag is a matrix."""
    C = need(params, "drag", name)
    R = rotation.matrix(x[QUAT])
    body = rotation.rotate_back(R, air)
    return rotation.rotate(R, tuple(-sum(C[..., i, j] * body[j] for j in range(3)) for i in range(3)))


def _wind(params: Any, x: Components, command: Components) -> tuple[Components, Components]:
    air = own(params, "wind")
    return air_force(params, x, tuple(air[..., i] for i in range(3)), "wind"), STILL


wind = Stage("wind", "wrench", _wind, default=(0.0, 0.0, 0.0))
"""Steady wind: ``params.effects["wind"]`` is the velocity of the air (..., 3), world frame, m/s."""


def _gusts_start(params: Any, batch: tuple[int, ...], dtype: Any, key: jax.Array) -> Any:
    first, key = jax.random.split(key)
    sigma = own(params, "gusts")["sigma"]
    drawn = jax.random.normal(first, (3, *batch), dtype)
    return {"air": tuple(sigma[..., i] * drawn[i] for i in range(3)), "key": key}


def _gusts_advance(params: Any, memory: Any, x: Components, command: Components, dt: float) -> Any:
    own_params = own(params, "gusts")
    sigma, stay = own_params["sigma"], jnp.exp(-dt / own_params["time_s"])
    key, now = jax.random.split(memory["key"])
    drawn = jax.random.normal(now, (3, *jnp.shape(memory["air"][0])), memory["air"][0].dtype)
    new = jnp.sqrt(1.0 - stay * stay)
    air = tuple(stay * a + new * (sigma[..., i] * drawn[i]) for i, a in enumerate(memory["air"]))
    return {"air": air, "key": key}


def _gusts(params: Any, x: Components, command: Components, memory: Any) -> tuple[Components, Components]:
    return air_force(params, x, memory["air"], "gusts"), STILL


gusts = Stage(
    "gusts",
    "wrench",
    _gusts,
    start=_gusts_start,
    advance=_gusts_advance,
    default={"sigma": (0.5, 0.5, 0.25), "time_s": 0.5},
)
"""Turbulence: each axis of the air's velocity is first-order Gauss-Markov noise, sampled exactly at any step length.

``params.effects["gusts"] = {"sigma": (..., 3) standard deviation, world frame, m/s; "time_s": (...) correlation}``.
The spectrum is the longitudinal one of Dryden's model, with the time L / V as a parameter (MIL-STD-1797A, appendix A,
section 4.9), on all three axes. It starts in its steady state. Memory: the air's velocity (m/s) and a random key.
"""


def rotor_places(params: Any, name: str) -> tuple[tuple[Any, Any], ...]:
    """Where the four rotors are, (x, y) in the body frame, m: as their signs in the roll and pitch torque say."""
    arm, mixing = need(params, "arm_length", name), need(params, "mixing", name)
    return tuple((-arm * mixing[..., 1, i], arm * mixing[..., 0, i]) for i in range(4))


def rotor_thrusts(params: Any, x: Components, name: str) -> tuple[Any, ...]:
    """Thrust of each rotor at its present speed, N."""
    c = need(params, "rpm2thrust", name)
    if (each := getattr(params, "rotors", None)) is not None:
        curves = tuple(each.rpm2thrust[..., i, :] for i in range(4))
    else:
        curves = (c,) * 4
    return tuple(c[..., 0] + n * (c[..., 1] + n * c[..., 2]) for c, n in zip(curves, x[ROTOR], strict=True))


def _ground_effect(params: Any, x: Components, command: Components) -> tuple[Components, Components]:
    name = "ground_effect"
    given = own(params, name)
    radius, strength, above = given["radius"], given["strength"], given["rotor_height"]
    R = rotation.matrix(x[QUAT])
    level = jnp.maximum(R[8], 0.0)
    places, gain = rotor_places(params, name), []
    for (px, py), thrust in zip(places, rotor_thrusts(params, x, name), strict=True):
        height = x[2] + R[6] * px + R[7] * py + R[8] * above
        ratio = radius / (4.0 * jnp.maximum(height, 0.5 * radius))
        lost = strength * ratio * ratio
        gain.append(thrust * level * lost / (1.0 - lost))
    total = gain[0] + gain[1] + gain[2] + gain[3]
    roll = sum(py * g for (_, py), g in zip(places, gain, strict=True))
    pitch = -sum(px * g for (px, _), g in zip(places, gain, strict=True))
    return (R[2] * total, R[5] * total, R[8] * total), (roll, pitch, 0.0)


ground_effect = Stage(
    "ground_effect", "wrench", _ground_effect, default={"radius": 0.0231, "strength": 1.0, "rotor_height": 0.01}
)
"""More thrust near the ground, rotor by rotor: T / T_free = 1 / (1 - k (r / 4 h)^2) with the height h of the rotor.

Cheeseman and Bennett, "The effect of the ground on a helicopter rotor in forward flight", ARC R&M 3021, 1955; k > 1 for
several rotors as in Sanchez-Cuevas et al., "Characterization of the aerodynamic ground effect and its influence in
multirotor control", Int. J. Aerospace Engineering, 2017. h is held above r / 2, below which the formula was not
measured, and the gain fades with the tilt. A tilted drone is turned level. ``params.effects["ground_effect"] =
{"radius": of a rotor, m; "strength": k; "rotor_height": of the rotors over the centre of mass, m}``, each (...).
"""

AIR_DENSITY = 1.2
"""kg/m^3, at 20 degrees C and sea level."""
JET_DECAY, JET_SPREAD = 5.9, 0.095
"""Centreline decay B and growth S of the half-width of a round turbulent jet."""


def _jet_thrust(params: Any, x: Components) -> Any:
    if getattr(params, "rpm2thrust", None) is None:
        return params.mass * params.gravity + 0.0 * x[2]
    return jnp.maximum(sum(rotor_thrusts(params, x, "downwash")), 0.0)


def _downwash(params: Any, x: Components, command: Components) -> tuple[Components, Components]:
    given = own(params, "downwash")
    radius, strength = given["radius"], given["strength"]
    x = jnp.broadcast_arrays(*x)
    up = rotation.matrix(x[QUAT])[2::3]
    # Far wake of four rotors of area A = 4 pi r^2: twice the induced speed sqrt(T / 2 rho A) over half of A.
    thrust = _jet_thrust(params, x)
    moving = thrust > 1e-6
    speed = jnp.where(moving, jnp.sqrt(jnp.where(moving, thrust, 1.0) / (2.0 * math.pi * AIR_DENSITY)) / radius, 0.0)
    core = JET_DECAY * math.sqrt(8.0) * radius * jnp.ones_like(speed)
    # Axes: (..., drone that feels, drone that blows).
    away = tuple(p[..., :, None] - p[..., None, :] for p in x[0:3])
    axis = tuple(jnp.broadcast_to(u[..., None, :], away[0].shape) for u in up)
    below = -(away[0] * axis[0] + away[1] * axis[1] + away[2] * axis[2])
    aside = away[0] * away[0] + away[1] * away[1] + away[2] * away[2] - below * below
    core = jnp.broadcast_to(core[..., None, :], below.shape)
    reach = jnp.maximum(below, core)
    width = JET_SPREAD * reach
    shape = jnp.exp(-math.log(2.0) * aside / (width * width)) * core / reach
    flow = jnp.where(below > 0.0, shape * jnp.broadcast_to((strength * speed)[..., None, :], shape.shape), 0.0)
    air = tuple(-(flow * a).sum(-1) for a in axis)
    return air_force(params, x, air, "downwash"), STILL


downwash = Stage("downwash", "wrench", _downwash, default={"radius": 0.0231, "strength": 1.0}, couples=True)
"""Each drone blows a round turbulent jet down its thrust axis, and the drag of the drones below feels its velocity.

At the rotors the jet has the far-wake speed of momentum theory (Leishman, "Principles of Helicopter Aerodynamics", 2nd
ed., section 2.2); on its axis it is constant over the core and then decays as B d / s, its half-width grows as S s
(Pope, "Turbulent Flows", 2000, section 5.1); below quadrotors it was found so by Bauersfeld et al., "Robotics meets
fluid dynamics: a characterization of the induced airflow below a quadrotor as a turbulent jet", 2024. Jets add; they do
not deflect each other. Without rotor speeds in the dynamics each drone blows as at hover. ``params.effects["downwash"]
= {"radius": of a rotor, m; "strength": factor on the velocity}``. The last axis of the batch is the drones of a world.
"""
