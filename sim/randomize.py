"""Domain randomisation: parameters and initial states drawn from a key, for each world, drone or rotor. Keeps nothing.

Pure functions of arrays with the batch in front; compile them, or call them between steps. They fit the parameters of
`sim.state` and, through `of`, the data of a `Sim`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp

from sim import rotation
from sim.data import AttitudeParams, RotorParams, SimData
from sim.errors import ConfigError

P = TypeVar("P", RotorParams, AttitudeParams)
Per = Literal["world", "drone", "rotor"]

CORE = {
    "mass": 1, "L": 1, "prop_inertia": 1, "J": 2, "rpm2thrust": 2, "rpm2torque": 2, "drag_matrix": 2,
    "rotor_dyn_coef": 2, "rot_damping": 1, "acc_coef": 1, "cmd_f_coef": 1, "rpy_coef": 1, "rpy_rates_coef": 1,
    "cmd_rpy_coef": 1, "thrust_dyn_coef": 1,
}  # fmt: skip
"""Parameters that may be drawn, and how many axes each has of its own."""
_CURVES = ("rpm2thrust", "rpm2torque", "rotor_dyn_coef")
_ROTORS = ("L", "prop_inertia", *_CURVES)
"""Parameters that rotors may have each for itself."""


@dataclass(frozen=True)
class Spread:
    """How far a parameter is drawn from its nominal value.

    Attributes:
        share: greatest (uniform) or standard (normal) relative deviation.
        per: what gets a value of its own: each world, drone, or rotor.
        shape: ``uniform`` or ``normal``, cut at three standard deviations.
    """

    share: float
    per: Per = "drone"
    shape: Literal["uniform", "normal"] = "uniform"


def factors(key: jax.Array, spread: Spread, batch: tuple[int, int], size: tuple[int, ...], dtype: Any) -> jax.Array:
    """Factors around one, (n_worlds, n_drones, *size); drones of a world share theirs if drawn per world."""
    shape = (batch[0], 1 if spread.per == "world" else batch[1], *size)
    if spread.shape == "uniform":
        drawn = jax.random.uniform(key, shape, dtype, -1.0, 1.0)
    else:
        drawn = jax.random.truncated_normal(key, -3.0, 3.0, shape, dtype)
    return jnp.broadcast_to(1.0 + spread.share * drawn, (*batch, *size))


def inertia(key: jax.Array, J: jax.Array, spread: Spread, batch: tuple[int, int]) -> jax.Array:
    """Inertias (n_worlds, n_drones, 3, 3) around ``J`` (..., 3, 3), each of a body that could exist.

    Not the moments are scaled but the second moments of the mass, S = tr(J) / 2 - J, along the body axes, as positive
    ones always make an inertia (Wensing, Kim and Slotine, "Linear matrix inequalities for physically consistent
    inertial parameter identification", RA-L 3(1), 2018).
    """
    J = jnp.broadcast_to(J, (*batch, 3, 3))
    eye = jnp.broadcast_to(jnp.eye(3, dtype=J.dtype), J.shape)
    second = 0.5 * jnp.trace(J, axis1=-2, axis2=-1)[..., None, None] * eye - J
    scale = jnp.sqrt(factors(key, spread, batch, (3,), J.dtype))
    second = second * (scale[..., :, None] * scale[..., None, :])
    return jnp.trace(second, axis1=-2, axis2=-1)[..., None, None] * eye - second


def parameters(key: jax.Array, nominal: P, spreads: Mapping[str, Spread], batch: tuple[int, int]) -> P:
    """Parameters of (n_worlds, n_drones) around ``nominal``.

    Args:
        key: of JAX.
        nominal: of one drone, or with a batch in front.
        spreads: by name of the parameter, see `CORE`. Drag is scaled along the body axes, a curve as a whole.
        batch: (n_worlds, n_drones).

    Raises:
        ConfigError: there is no such parameter, or a spread that it cannot have.
    """
    given = {name: getattr(nominal, name, None) for name in CORE}
    known = [name for name, value in given.items() if value is not None]
    drawn = {}
    for name in sorted(spreads):
        spread, value = spreads[name], given.get(name)
        if value is None:
            raise ConfigError(f"spreads has {name!r}, but {type(nominal).__name__} has {', '.join(known)}")
        if not 0.0 <= spread.share < (1.0 if spread.shape == "uniform" else 1.0 / 3.0):
            raise ConfigError(
                f"spreads[{name!r}].share is {spread.share}, but it must be at least 0 and below "
                f"{'1' if spread.shape == 'uniform' else '1/3'}, or signs would change"
            )
        if spread.per == "rotor" and name not in _ROTORS:
            raise ConfigError(f"spreads[{name!r}] is per rotor, but rotors differ in {', '.join(_ROTORS)} only")
        # A key by name, so that one more parameter does not change the others.
        own = jax.random.fold_in(key, sum(ord(c) * 31**i for i, c in enumerate(name)) % 2**31)
        drawn[name] = _drawn(own, name, value, spread, batch)
    return nominal.replace(**drawn)


def _drawn(key: jax.Array, name: str, value: jax.Array, spread: Spread, batch: tuple[int, int]) -> jax.Array:
    if name == "J":
        return inertia(key, value, spread, batch)
    value = jnp.broadcast_to(value, (*batch, *value.shape[value.ndim - CORE[name] :]))
    if name == "drag_matrix":
        scale = jnp.sqrt(factors(key, spread, batch, (3,), value.dtype))
        return value * (scale[..., :, None] * scale[..., None, :])
    rotors = 4 if spread.per == "rotor" else 1
    if name in _CURVES:
        return value * factors(key, spread, batch, (rotors, 1), value.dtype)
    if name in _ROTORS or value.shape[-1] == 1:
        return value * factors(key, spread, batch, (rotors,), value.dtype)
    return value * factors(key, spread, batch, (value.shape[-1],), value.dtype)


@dataclass(frozen=True)
class Start:
    """Where drones start: uniform in a box, and normal about rest.

    Attributes:
        low: corner of the box, m.
        high: the other corner, m.
        vel: standard deviation of the velocity, each axis, m/s.
        tilt: of the tilt about each horizontal axis, rad.
        yaw: greatest heading to either side, rad.
        ang_vel: standard deviation of the body rates, each axis, rad/s.
        rotor_share: rotor speeds (thrusts in the so_rpy family) are uniform between these shares of what they are.
    """

    low: tuple[float, float, float] = (-1.0, -1.0, 0.5)
    high: tuple[float, float, float] = (1.0, 1.0, 2.0)
    vel: float = 0.5
    tilt: float = 0.2
    yaw: float = 3.141592653589793
    ang_vel: float = 0.5
    rotor_share: tuple[float, float] = (1.0, 1.0)


def states(key: jax.Array, data: SimData, start: Start = Start()) -> SimData:  # noqa: B008  a frozen record
    """``data`` with initial states drawn for every drone of every world.

    Raises:
        ConfigError: the box is inside out.
    """
    if any(a > b for a, b in zip(start.low, start.high, strict=True)):
        raise ConfigError(f"start.low is {start.low} m, but it must not exceed start.high, {start.high} m")
    s = data.states
    batch, dtype = s.pos.shape[:-1], s.pos.dtype
    place, speed, lean, head, spin, turn = jax.random.split(key, 6)
    low, high = jnp.asarray(start.low, dtype), jnp.asarray(start.high, dtype)
    low, high = (jnp.broadcast_to(v, s.pos.shape) for v in (low, high))
    pos = low + (high - low) * jax.random.uniform(place, s.pos.shape, dtype)
    tilt = start.tilt * jax.random.normal(lean, (2, *batch), dtype)
    heading = jax.random.uniform(head, batch, dtype, -start.yaw, start.yaw)
    zero = jnp.zeros_like(heading)
    yaw = (zero, zero, jnp.sin(0.5 * heading), jnp.cos(0.5 * heading))
    quat = jnp.stack(rotation.normalize(rotation.multiply(yaw, rotation.exp((tilt[0], tilt[1], zero)))), axis=-1)
    share = jax.random.uniform(turn, s.rotor_vel.shape, dtype, *start.rotor_share)
    fresh = replace(
        s,
        pos=pos,
        quat=quat,
        vel=start.vel * jax.random.normal(speed, (*batch, 3), dtype),
        ang_vel=start.ang_vel * jax.random.normal(spin, (*batch, 3), dtype),
        rotor_vel=share * s.rotor_vel,
    )
    return data.replace(states=fresh)


def of(key: jax.Array, data: SimData, spreads: Mapping[str, Spread]) -> SimData:
    """``data`` with parameters drawn around its present ones; see `parameters`."""
    return data.replace(params=parameters(key, data.params, spreads, (data.core.n_worlds, data.core.n_drones)))
