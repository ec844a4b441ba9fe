"""Pure functions on `sim.data.SimData`: commands of each level. A command is staged until its controller ticks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from sim.data import SimData
from sim.errors import ConfigError, ShapeError
from sim.modes import SIZES, Control


def staged(data: SimData, level: Control, controls: Any) -> SimData:
    """``data`` with the command ``controls`` (n_worlds, n_drones, k) of ``level`` standing ready.

    Raises:
        ConfigError: the simulation is commanded at another level.
        ShapeError: the array has another shape.
    """
    mode = data.controls.mode
    if mode != level:
        raise ConfigError(
            f"{level.value}_control was called, but control is {mode.value!r}; build Sim with control={level.value!r}"
        )
    shape = (data.core.n_worlds, data.core.n_drones, SIZES[level])
    if jnp.shape(controls) != shape:
        raise ShapeError(f"{level.value} commands have shape {jnp.shape(controls)}, but {shape} is expected")
    dtype = data.states.pos.dtype
    if not (isinstance(controls, jax.Array) and controls.dtype == dtype):
        controls = jnp.asarray(controls, dtype)
    if level == Control.rotor_vel:
        return data.replace(controls=data.controls.replace(rotor_vel=controls))
    below = getattr(data.controls, level.value).replace(staged_cmd=controls)
    return data.replace(controls=data.controls.replace(**{level.value: below}))


def state_control(data: SimData, controls: Any) -> SimData:
    """Stage a state command; see `staged` and `sim.modes.Control`."""
    return staged(data, Control.state, controls)


def attitude_control(data: SimData, controls: Any) -> SimData:
    """Stage an attitude command; see `staged` and `sim.modes.Control`."""
    return staged(data, Control.attitude, controls)


def body_rate_control(data: SimData, controls: Any) -> SimData:
    """Stage a body rate command; see `staged` and `sim.modes.Control`."""
    return staged(data, Control.body_rate, controls)


def force_torque_control(data: SimData, controls: Any) -> SimData:
    """Stage a force and torque command; see `staged` and `sim.modes.Control`."""
    return staged(data, Control.force_torque, controls)


def rotor_vel_control(data: SimData, controls: Any) -> SimData:
    """Command rotor speeds; see `staged` and `sim.modes.Control`."""
    return staged(data, Control.rotor_vel, controls)


def controllable(data: SimData) -> jax.Array:
    """Which worlds (N, 1) take over a staged command in the next step."""
    mode = data.controls.mode
    if mode == Control.rotor_vel:
        return jnp.ones_like(data.core.steps, bool)
    control = getattr(data.controls, mode.value)
    return ((data.core.steps - control.steps) * control.freq >= data.core.freq) | (control.steps == -1)
