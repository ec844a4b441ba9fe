"""Stages of the drive: limits of the rotors, a sagging battery, dead time of the motors and delay of their start.

All act on commands of rotor speeds (4, rev/min), so they go with dynamics that has rotors.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from sim import rotor
from sim.dynamics.first_principles import RPM2RAD_S
from sim.effects.stage import Stage, need, own
from sim.errors import ConfigError
from sim.state import ROTOR, Components


def _rotor_limits(params: Any, x: Components, rotor_rpm_cmd: Components) -> Components:
    top = rotor.limits(params)[1][..., 0]
    return tuple(jnp.clip(n, 0.0, top) for n in rotor_rpm_cmd)


rotor_limits = Stage("rotor_limits", "command", _rotor_limits)
"""Commands are held between standstill and the speed of greatest thrust."""


def _battery_power(params: Any, x: Components) -> Any:
    # Aerodynamic power of the rotors, W: torque times speed.
    c = need(params, "rpm2torque", "battery")
    torques = (c[..., 0] + n * (c[..., 1] + n * c[..., 2]) for n in x[ROTOR])
    return sum(jnp.maximum(t, 0.0) * n * RPM2RAD_S for t, n in zip(torques, x[ROTOR], strict=True))


def battery_current(params: Any, x: Components, used_C: Any) -> tuple[Any, Any]:
    """Current in A and voltage in V of the battery with ``used_C`` coulombs drawn.

    The pack is a source behind a resistor: V = E - R I and V I = P give V = (E + sqrt(E^2 - 4 R P)) / 2. Beyond the
    greatest power that the pack can give, E^2 / 4 R, the voltage stays at E / 2.
    """
    given = own(params, "battery")
    left = jnp.clip(1.0 - used_C / given["capacity_C"], 0.0, 1.0)
    source = given["empty_V"] + (given["full_V"] - given["empty_V"]) * left
    resistance = given["resistance_Ohm"]
    under = source * source - 4.0 * resistance * _battery_power(params, x) / given["efficiency"]
    safe = under > 1e-6
    voltage = 0.5 * (source + jnp.where(safe, jnp.sqrt(jnp.where(safe, under, 1.0)), 0.0))
    return (source - voltage) / resistance, voltage


def _battery_start(params: Any, batch: tuple[int, ...], dtype: Any, key: jax.Array) -> Any:
    return {"used_C": jnp.zeros(batch, dtype)}


def _battery_advance(params: Any, memory: Any, x: Components, command: Components, dt: float) -> Any:
    return {"used_C": memory["used_C"] + dt * battery_current(params, x, memory["used_C"])[0]}


def _battery(params: Any, x: Components, rotor_rpm_cmd: Components, memory: Any) -> Components:
    voltage = battery_current(params, x, memory["used_C"])[1]
    top = rotor.limits(params)[1][..., 0] * voltage / own(params, "battery")["full_V"]
    return tuple(jnp.minimum(n, top) for n in rotor_rpm_cmd)


battery = Stage(
    "battery",
    "command",
    _battery,
    start=_battery_start,
    advance=_battery_advance,
    default={"capacity_C": 900.0, "full_V": 4.2, "empty_V": 3.4, "resistance_Ohm": 0.05, "efficiency": 0.5},
)
"""A battery that empties and sags: a rotor reaches at most its top speed times the voltage over the full one.

A source whose voltage falls with the charge used, behind a resistor (the static part of Chen and Rincon-Mora, "Accurate
electrical battery model capable of predicting runtime and I-V performance", IEEE Trans. Energy Conversion 21(2), 2006);
the rotors' power is torque times speed over the efficiency of motor and driver; the speed that a motor reaches at full
throttle goes with its voltage. Commands below that pass, as a firmware compensates the voltage there.
``params.effects["battery"] = {"capacity_C", "full_V", "empty_V", "resistance_Ohm", "efficiency"}``, each (...).
Memory: the charge used, C.
"""


def motor_delay(steps: int) -> Stage:
    """Dead time: a command reaches the rotors ``steps`` steps later; before the first has arrived they are off.

    A pure transport delay, as of the digital link from controller to motor driver,
    on top of the lag of the rotor itself. Memory: the commands on their way.

    Raises:
        ConfigError: ``steps`` is not a whole number from 1 to 64.
    """
    if not (isinstance(steps, int) and 1 <= steps <= 64):
        raise ConfigError(f"motor_delay is {steps!r} steps, but it must be a whole number from 1 to 64")

    def start(params: Any, batch: tuple[int, ...], dtype: Any, key: jax.Array) -> Any:
        return tuple(tuple(jnp.zeros(batch, dtype) for _ in range(4)) for _ in range(steps + 1))

    def advance(params: Any, memory: Any, x: Components, command: Components, dt: float) -> Any:
        now = tuple(jnp.broadcast_to(n, m.shape) for n, m in zip(command, memory[0], strict=True))
        return (*memory[1:], now)

    def apply(params: Any, x: Components, rotor_rpm_cmd: Components, memory: Any) -> Components:
        return memory[0]

    return Stage("motor_delay", "command", apply, start=start, advance=advance)


STOPPED_RPM = 10.0
"""Below this a rotor counts as standing still."""


def _start_start(params: Any, batch: tuple[int, ...], dtype: Any, key: jax.Array) -> Any:
    return tuple(jnp.zeros(batch, dtype) for _ in range(4))


def _start_advance(params: Any, memory: Any, x: Components, command: Components, dt: float) -> Any:
    return tuple(
        jnp.where((n < STOPPED_RPM) & (cmd > 0.0), timer + dt, 0.0)
        for timer, n, cmd in zip(memory, x[ROTOR], command, strict=True)
    )


def _start(params: Any, x: Components, rotor_rpm_cmd: Components, memory: Any) -> Components:
    delay = own(params, "motor_start_delay")
    return tuple(
        jnp.where((n < STOPPED_RPM) & (timer <= delay), 0.0, cmd)
        for timer, n, cmd in zip(memory, x[ROTOR], rotor_rpm_cmd, strict=True)
    )


motor_start_delay = Stage(
    "motor_start_delay", "command", _start, start=_start_start, advance=_start_advance, default=0.1
)
"""A rotor at standstill turns only after its driver has tried for a while; one that turns follows at once.

A sensorless brushless driver aligns and ramps its motor blindly until the back-EMF can be sensed (e.g. Acarnley and
Watson, "Review of position-sensorless operation of brushless permanent-magnet machines", IEEE Trans. Industrial
Electronics 53(2), 2006, section on starting). ``params.effects["motor_start_delay"]`` (...): seconds. Memory: for how
long each driver has tried, s.
"""
