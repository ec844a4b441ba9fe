"""The levels of the onboard cascade one by one, on arrays with the batch in front. Pure: memory in, memory out.

A step uses the same arithmetic on components (`sim.onboard.mellinger`); these are for controllers of your own, and for
looking at what a level commands the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from sim import rotation
from sim.errors import ShapeError
from sim.gains import Gains
from sim.onboard import mellinger
from sim.state import State


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StateMemory:
    """Of `state2attitude`."""

    pos_err_i: jax.Array  # (..., 3)
    """Integral of the position error, m s."""

    @staticmethod
    def start(batch: tuple[int, ...] = (), dtype: Any = None) -> StateMemory:
        """Of a drone just switched on."""
        return StateMemory(jnp.zeros((*batch, 3), dtype))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class AttitudeMemory:
    """Of `attitude2force_torque` and `body_rate2force_torque`."""

    att_err_i: jax.Array  # (..., 3)
    """Integral of the attitude error, s."""
    ang_vel: jax.Array  # (..., 3)
    """Body rates at the previous call, rad/s."""
    rates: jax.Array  # (..., 3)
    """Desired body rates at the previous call, rad/s."""

    @staticmethod
    def start(batch: tuple[int, ...] = (), dtype: Any = None) -> AttitudeMemory:
        """Of a drone just switched on."""
        zeros = jnp.zeros((*batch, 3), dtype)
        return AttitudeMemory(zeros, zeros, zeros)


def _split(array: Any, size: int, what: str) -> tuple[Any, ...]:
    if jnp.ndim(array) == 0 or jnp.shape(array)[-1] != size:
        raise ShapeError(f"{what} has shape {jnp.shape(array)}, but (..., {size}) is expected")
    return tuple(array[..., i] for i in range(size))


def _joined(parts: tuple[Any, ...]) -> jax.Array:
    return jnp.stack(jnp.broadcast_arrays(*parts), axis=-1)


def state2attitude(
    gains: Gains, memory: StateMemory, state: State, command: jax.Array, *, dt: float = 1.0 / 100.0
) -> tuple[StateMemory, jax.Array]:
    """Position level.

    Args:
        gains: of the firmware.
        memory: from the call before.
        state: pos, vel and quat are read.
        command: (..., 16): pos, vel, acc, quat (its yaw is used), body rates (passed on by a step, not used here).
        dt: seconds between calls.

    Returns:
        Memory and command (..., 4): roll, pitch, yaw in rad, collective thrust in N.

    Raises:
        ShapeError: an array has a wrong last axis.
    """
    pos, vel = _split(state.pos, 3, "state.pos"), _split(state.vel, 3, "state.vel")
    R = rotation.matrix(_split(state.quat, 4, "state.quat"))
    integral, command = _split(memory.pos_err_i, 3, "memory.pos_err_i"), _split(command, 16, "command")
    c = mellinger.position_coefficients(gains, dt)
    attitude, thrust, integral = mellinger.position(c, pos, R, vel, command, integral)
    return StateMemory(_joined(integral)), _joined((*rotation.euler(attitude), thrust))


def attitude2force_torque(
    gains: Gains,
    memory: AttitudeMemory,
    state: State,
    command: jax.Array,
    *,
    dt: float = 1.0 / 500.0,
    rates: Any = None,
) -> tuple[AttitudeMemory, jax.Array]:
    """Attitude level.

    Args:
        gains: of the firmware.
        memory: from the call before.
        state: quat and ang_vel are read.
        command: (..., 4): roll, pitch, yaw in rad, collective thrust in N.
        dt: seconds between calls.
        rates: (..., 3) desired body rates that come with the command, rad/s; None: none.

    Returns:
        Memory and command (..., 4): collective thrust in N, torques in Nm, within the limits of the motors.

    Raises:
        ShapeError: an array has a wrong last axis.
    """
    command = _split(command, 4, "command")
    error = mellinger.attitude_error(rotation.from_euler(command[:3]), _split(state.quat, 4, "state.quat"))
    rates = (0.0, 0.0, 0.0) if rates is None else _split(rates, 3, "rates")
    return _turn(gains, memory, state, error, rates, command[3], dt)


def body_rate2force_torque(
    gains: Gains, memory: AttitudeMemory, state: State, command: jax.Array, *, dt: float = 1.0 / 500.0
) -> tuple[AttitudeMemory, jax.Array]:
    """Body-rate level: the attitude loop levels the drone at its present yaw while the rates are followed.

    Args:
        gains: of the firmware.
        memory: from the call before.
        state: quat and ang_vel are read.
        command: (..., 4): body rates in rad/s, collective thrust in N.
        dt: seconds between calls.

    Returns:
        As `attitude2force_torque`, which also says what is raised.
    """
    command = _split(command, 4, "command")
    error = mellinger.level_error(rotation.matrix(_split(state.quat, 4, "state.quat")))
    return _turn(gains, memory, state, error, command[:3], command[3], dt)


def _turn(
    gains: Gains, memory: AttitudeMemory, state: State, error: Any, rates: Any, force: Any, dt: float
) -> tuple[AttitudeMemory, jax.Array]:
    c, power = mellinger.attitude_coefficients(gains, dt), mellinger.power_coefficients(gains)
    omega, before = _split(state.ang_vel, 3, "state.ang_vel"), _split(memory.rates, 3, "memory.rates")
    kept = _split(memory.att_err_i, 3, "memory.att_err_i"), _split(memory.ang_vel, 3, "memory.ang_vel")
    ahead = tuple(a - b for a, b in zip(rates[:2], before[:2], strict=True))
    torque, integral = mellinger.torques(c, error, (*omega, *rates), kept, ahead)
    lower = mellinger.force_torque(power, mellinger.rotor_forces(c, mellinger.thrust(c, force), torque))
    rates = tuple(jnp.broadcast_to(jnp.asarray(r, w.dtype), jnp.shape(w)) for r, w in zip(rates, omega, strict=True))
    return AttitudeMemory(_joined(integral), state.ang_vel, _joined(rates)), _joined(lower)


def force_torque2rotor_vel(gains: Gains, command: jax.Array) -> jax.Array:
    """Rotor level: speeds (..., 4) in rev/min for a command (..., 4) of collective thrust in N and torques in Nm.

    Raises:
        ShapeError: the command has a wrong last axis.
    """
    c = mellinger.power_coefficients(gains)
    return _joined(mellinger.rotor_speeds(c, mellinger.shares(c, _split(command, 4, "command"))))
