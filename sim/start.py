"""The data that a `Sim` starts with: worlds of drones at rest on a grid, with default parameters. Moves nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sim import drones, layout
from sim.data import (
    AttitudeControl,
    AttitudeParams,
    BodyRateControl,
    ForceTorqueControl,
    RotorParams,
    SimControls,
    SimCore,
    SimData,
    SimState,
    StateControl,
    per_world,
)
from sim.gains import Gains
from sim.modes import SIZES, Control, Dynamics, cascade
from sim.state import Params, RpyParams


def load(drone: str | Mapping[str, Any], dynamics: Dynamics, control: Control, dtype: Any) -> Params | RpyParams:
    """Parameters of a drone, with gains where a controller runs.

    Raises:
        ConfigError: see `sim.drones.load`.
    """
    levels = cascade(control, dynamics)
    needed = bool(levels) if dynamics == Dynamics.first_principles else "state" in levels
    drone = drone if isinstance(drone, Mapping) else str(drone)
    return drones.load(drone, dtype, dynamics=dynamics.value, onboard=needed)


def parameters(p: Params | RpyParams) -> RotorParams | AttitudeParams:
    """Parameters of a drone in the shapes of data."""
    one = {"mass": p.mass, "gravity_vec": np.asarray([0.0, 0.0, -float(p.gravity)], p.mass.dtype), "J": p.inertia}
    if isinstance(p, Params):
        own = {
            "L": p.arm_length, "prop_inertia": p.prop_inertia, "rpm2thrust": p.rpm2thrust[None],
            "rpm2torque": p.rpm2torque[None], "mixing_matrix": p.mixing, "drag_matrix": p.drag,
            "rotor_dyn_coef": p.rotor_coef[None], "rot_damping": p.rot_damping,
        }  # fmt: skip
        return RotorParams(**{k: jnp.atleast_1d(v) for k, v in (one | own).items()})
    fitted = ("acc_coef", "cmd_f_coef", "rpy_coef", "rpy_rates_coef", "cmd_rpy_coef", "thrust_dyn_coef")
    own = {name: getattr(p, name) for name in fitted} | {"drag_matrix": p.drag}
    return AttitudeParams(**{k: None if v is None else jnp.atleast_1d(v) for k, v in (one | own).items()})


def controls(
    control: Control,
    dynamics: Dynamics,
    gains: Gains | None,
    rates: Mapping[str, int],
    shape: tuple[int, int],
    dtype: Any,
) -> SimControls:
    """Controllers that have not ticked yet, all commands zero."""

    def zeros(size: int) -> jax.Array:
        return jnp.zeros((*shape, size), dtype)

    def fresh() -> jax.Array:
        return jnp.full((shape[0], 1), -1, jnp.int32)

    def of(names: Mapping[str, str]) -> dict[str, jax.Array]:
        return {theirs: jnp.asarray(getattr(gains, ours)) for ours, theirs in names.items()} if gains else {}

    levels = cascade(control, dynamics)
    made: dict[str, Any] = dict.fromkeys(("state", "attitude", "body_rate", "force_torque"))
    turning = (
        layout.TURNING | {k: k for k in ("thrust_max", "pwm_min", "pwm_max", "thrust2torque")} | {"arm_length": "L"}
    )
    for level in levels:
        size = SIZES[Control(level)]
        common = {"cmd": zeros(size), "staged_cmd": zeros(size), "steps": fresh(), "freq": rates[level]}
        if level == "state":
            upright = zeros(size).at[..., 12].set(1.0)
            common |= {"cmd": upright, "staged_cmd": upright.copy()}
            names = layout.POSITION | {k: k for k in ("mass", "mass_thrust", "thrust_max", "pwm_max")}
            made[level] = StateControl(**common, pos_err_i=zeros(3), params=of(names))
        elif level == "attitude":
            rates_des = {"ang_vel_des": zeros(3), "staged_ang_vel_des": zeros(3)}
            kept = {"r_int_error": zeros(3), "prev_ang_vel": zeros(3)}
            own = of(turning) if dynamics == Dynamics.first_principles else {}
            made[level] = AttitudeControl(**common, **rates_des, **kept, params=own)
        elif level == "body_rate":
            kept = {"r_int_error": zeros(3), "prev_ang_vel": zeros(3)}
            made[level] = BodyRateControl(**common, **kept, params=of(turning))
        else:
            names = {k: k for k in ("thrust_min", "thrust_max", "rpm2thrust", "thrust2torque")} | {"arm_length": "L"}
            made[level] = ForceTorqueControl(**common, params=of(names))
    return SimControls(**made, rotor_vel=zeros(4), mode=control)


def data(
    params: Params | RpyParams,
    dynamics: Dynamics,
    control: Control,
    rates: Mapping[str, int],
    freq: int,
    shape: tuple[int, int],
    key: jax.Array,
    dtype: Any,
) -> SimData:
    """All data at the start; several drones of a world stand a metre apart around the origin."""
    n, m = shape
    pos = jnp.broadcast_to(grid(m, dtype), (n, m, 3))
    quat = jnp.zeros((n, m, 4), dtype).at[..., 3].set(1.0)
    zeros = [jnp.zeros((n, m, k), dtype) for k in (3, 3, 3, 3, 4)]
    core = SimCore(steps=jnp.zeros((n, 1), jnp.int32), rng_key=key, freq=freq, n_worlds=n, n_drones=m)
    made = controls(control, dynamics, params.onboard, rates, shape, dtype)
    names = ("vel", "ang_vel", "force", "torque", "rotor_vel")
    states = SimState(pos=pos, quat=quat, **dict(zip(names, zeros, strict=True)))
    own = parameters(params)
    return SimData(states=states, controls=made, params=own, core=core, plugins={}, effects={}, memory={})


def grid(count: int, dtype: Any) -> jax.Array:
    """Places (count, 3) on the floor, a metre apart in a square around the origin, the nearest first, m.

    Places at one distance come in the order in which rounding puts them, as the peer's do.
    """
    side = math.isqrt(count - 1) + 1
    half = 0.5 * (side - 1)
    line = jnp.linspace(-half, half, side, dtype=dtype)
    flat = jnp.stack([v.ravel() for v in jnp.meshgrid(line, line)], axis=-1)
    nearest = flat[jnp.argsort(jnp.linalg.norm(flat, axis=-1))[:count]]
    return jnp.concatenate([nearest, jnp.zeros((count, 1), dtype)], axis=-1)


def again(data: SimData, default_data: SimData, mask: jax.Array | None = None) -> SimData:
    """Data of a reset: everything by default but random keys; under a mask (N,) only what belongs to its worlds."""

    def back(now: Any, default: Any, own: bool) -> Any:
        if jnp.issubdtype(default.dtype, jax.dtypes.prng_key):
            return now
        if mask is None:
            return default
        return jnp.where(mask.reshape(-1, *(1,) * (now.ndim - 1)), default, now) if own else now

    return jax.tree.map(back, data, default_data, per_world(data))
