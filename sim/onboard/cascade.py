"""The onboard cascade inside a step: which controllers run, each at its own rate, and what they remember.

A command is *staged*: it stands ready until the controller it is for ticks, which takes it over; the last one staged
before a tick counts. Every controller ticks at step 0 and then every so many steps. Works on components.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sim import rotation, rotor
from sim.errors import ConfigError
from sim.onboard import mellinger
from sim.state import ANG_VEL, POS, QUAT, VEL, Components, Params, RpyParams

LEVELS = {"state": 16, "attitude": 4, "body_rate": 4, "force_torque": 4, "rotor_vel": 4}
"""Control levels and the length of their commands: state [pos 3 m, vel 3 m/s, acc 3 m/s^2, quat xyzw 4, body rates 3
rad/s]; attitude [roll, pitch, yaw rad, thrust N]; body_rate [3 rad/s, thrust N]; force_torque [N, Nm 3]; rotor_vel
4 rev/min."""

Memory = dict[str, Components]


class Coefficients(NamedTuple):
    """Of the controllers in use; None where one is not."""

    position: mellinger.Position | None
    attitude: mellinger.Attitude | None
    power: mellinger.Power | None
    low: Any  # bounds of the command to the dynamics
    high: Any


@dataclass(frozen=True)
class Cascade:
    """What runs above the dynamics.

    Attributes:
        control: level of the commands, one of `LEVELS`.
        rotors: whether the dynamics takes rotor speeds; otherwise roll, pitch, yaw and thrust.
        periods: steps between ticks of each controller in use.
        dt: seconds a step lasts.
        limits: hold the command to the dynamics within what the rotors can do.
    """

    control: str
    rotors: bool
    periods: tuple[tuple[str, int], ...]
    dt: float
    limits: bool

    def period(self, level: str) -> int:
        """Steps between ticks of the controller of ``level``."""
        return dict(self.periods)[level]

    @property
    def levels(self) -> tuple[str, ...]:
        """Controllers in use, from the outside in."""
        return tuple(level for level, _ in self.periods)

    @property
    def keeps(self) -> dict[str, int]:
        """Names and lengths of what is remembered from step to step."""
        keeps = {}
        slow = {level for level, n in self.periods if n > 1}
        if self.control != "state" and self.control in slow:
            keeps["command"] = LEVELS[self.control]
        if self.control == "state":
            keeps |= {"pos_err_i": 3} | ({"attitude": 4, "thrust": 1} if self.rotors else {"attitude": 4})
            if not self.rotors:
                return keeps | ({"taken": 4} if "attitude" in slow else {})
            keeps |= {"rates": 3}
        if not self.rotors:
            return keeps
        if self.control in ("state", "attitude", "body_rate"):
            keeps |= {"att_err_i": 3, "ang_vel": 3}
            if self.control != "attitude":
                keeps |= {"rates_taken": 2}
            if slow & {"attitude", "body_rate"}:
                keeps |= {"forces": 4}
            if "force_torque" in slow:
                keeps |= {"forces_taken": 4}
        return keeps

    @property
    def forgets(self) -> bool:
        """Whether nothing is remembered."""
        return not self.keeps

    def coefficients(self, params: Params | RpyParams) -> Coefficients:
        """The coefficients of ``params``.

        Raises:
            ConfigError: the controllers need gains that ``params`` has not.
        """
        needs = [level for level in self.levels if self.rotors or level == "state"]
        if needs and params.onboard is None:
            raise ConfigError(
                f"control {self.control!r} needs gains, but params.onboard is None; load them with onboard=True"
            )
        g, low, high = params.onboard, None, None
        if self.limits and self.rotors:
            low, high = (v[..., 0] for v in rotor.limits(params))
        elif self.limits:
            low, high = 4.0 * params.thrust_min, 4.0 * params.thrust_max
        turning = "attitude" if "attitude" in self.levels else "body_rate"
        return Coefficients(
            position=mellinger.position_coefficients(g, self.period("state") * self.dt) if "state" in needs else None,
            attitude=mellinger.attitude_coefficients(g, self.period(turning) * self.dt) if turning in needs else None,
            power=mellinger.power_coefficients(g) if "force_torque" in needs else None,
            low=low,
            high=high,
        )

    def start(self, batch: tuple[int, ...], dtype: Any) -> Memory:
        """Memory of drones that were just switched on."""
        memory = {name: tuple(jnp.zeros(batch, dtype) for _ in range(n)) for name, n in self.keeps.items()}
        if self.control == "state" and self.rotors:
            memory["attitude"] = (*memory["attitude"][:3], jnp.ones(batch, dtype))
        return memory

    def prepare(self, c: Coefficients, command: Components) -> Any:
        """What follows from a command alone, to be worked out once and not at every step."""
        slow = self.control in self.levels and self.period(self.control) > 1
        if slow or self.control == "state":
            return command
        return self._ready(c, command)

    def _ready(self, c: Coefficients, command: Components) -> Any:
        if self.control == "rotor_vel":
            return self._within(c, command)
        if not self.rotors:
            return self._within(c, command)
        if self.control == "force_torque":
            return self._within(c, mellinger.rotor_speeds(c.power, mellinger.shares(c.power, command)))
        lift = mellinger.thrust(c.attitude, command[3])
        return (rotation.from_euler(command[:3]) if self.control == "attitude" else command[:3]), lift

    def _within(self, c: Coefficients, command: Components) -> Components:
        if c.low is None:
            return command
        if self.rotors:
            return tuple(jnp.clip(v, c.low, c.high) for v in command)
        return (*command[:3], jnp.clip(command[3], c.low, c.high))

    def run(
        self, c: Coefficients, prepared: Any, x: Components, memory: Memory, step: Any
    ) -> tuple[Components, Memory]:
        """One step of all controllers.

        Args:
            c: coefficients.
            prepared: from `prepare`.
            x: 17 components of the state.
            memory: from `start` or the previous step.
            step: number of steps since the drones were switched on: one for all, or one each.

        Returns:
            4 components of the command to the dynamics, the memory.
        """
        memory = dict(memory)
        if self.control != "state" and "command" in memory:
            memory["command"] = self._at(self.control, step, lambda: prepared, memory["command"])
            prepared = self._ready(c, memory["command"])
        if self.control in ("rotor_vel", "force_torque"):
            return prepared, memory
        if self.control == "state":
            names = ("attitude", "thrust", "rates", "pos_err_i") if self.rotors else ("attitude", "pos_err_i")
            after = self._at("state", step, lambda: self._lead(c, prepared, x, memory), tuple(memory[n] for n in names))
            memory |= dict(zip(names, after, strict=True))
        if not self.rotors:
            return self._to_attitude_model(c, prepared, memory, step)
        return self._to_rotors(c, prepared, x, memory, step)

    def _lead(self, c: Coefficients, command: Components, x: Components, memory: Memory) -> tuple[Components, ...]:
        R = rotation.matrix(x[QUAT])
        attitude, thrust, integral = mellinger.position(c.position, x[POS], R, x[VEL], command, memory["pos_err_i"])
        if self.rotors:
            return attitude, (thrust,), command[13:16], integral
        return (*rotation.euler(attitude), thrust), integral

    def _to_attitude_model(
        self, c: Coefficients, prepared: Any, memory: Memory, step: Any
    ) -> tuple[Components, Memory]:
        if self.control == "attitude":
            return prepared, memory
        command = memory["attitude"]
        if "taken" in memory:
            command = memory["taken"] = self._at("attitude", step, lambda: command, memory["taken"])
        return self._within(c, command), memory

    def _to_rotors(
        self, c: Coefficients, prepared: Any, x: Components, memory: Memory, step: Any
    ) -> tuple[Components, Memory]:
        level = "body_rate" if self.control == "body_rate" else "attitude"

        def turn() -> Memory:
            rates, ahead, omega = (0.0, 0.0, 0.0), None, x[ANG_VEL]
            if self.control == "state":
                desired, rates = memory["attitude"], memory["rates"]
                lift = mellinger.thrust(c.attitude, memory["thrust"][0])
            else:
                desired, lift = prepared
            if self.control == "body_rate":
                rates, error = desired, mellinger.level_error(rotation.matrix(x[QUAT]))
            else:
                error = mellinger.attitude_error(desired, x[QUAT])
            if self.control != "attitude":
                ahead = tuple(a - b for a, b in zip(rates[:2], memory["rates_taken"], strict=True))
            torque, integral = mellinger.torques(
                c.attitude, error, (*omega, *rates), (memory["att_err_i"], memory["ang_vel"]), ahead
            )
            forces = mellinger.rotor_forces(c.attitude, lift, torque)
            return {"forces": forces, "att_err_i": integral, "ang_vel": omega} | (
                {} if ahead is None else {"rates_taken": tuple(rates[:2])}
            )

        names = ("forces", "att_err_i", "ang_vel", "rates_taken")
        after = self._at(level, step, turn, {name: memory[name] for name in names if name in memory})
        forces = after["forces"]
        memory |= {name: value for name, value in after.items() if name in memory}
        if "forces_taken" in memory:
            # Force and torque and the four forces say the same, so the latter are what is staged.
            forces = memory["forces_taken"] = self._at("force_torque", step, lambda: forces, memory["forces_taken"])
        return self._within(c, mellinger.rotor_speeds(c.power, forces)), memory

    def _at(self, level: str, step: Any, new: Callable[[], Any], old: Any) -> Any:
        n = self.period(level)
        if n == 1:
            return new()
        due = step % n == 0
        if jnp.ndim(due) == 0:
            return jax.lax.cond(due, lambda: _like(new(), old), lambda: old)

        def some() -> Any:
            return jax.tree.map(lambda a, b: jnp.where(due, a, b), _like(new(), old), old)

        return jax.lax.cond(jnp.any(due), some, lambda: old)


def _like(new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.broadcast_to(jnp.asarray(a, b.dtype), b.shape), new, old)


def build(
    control: str | None, *, rotors: bool, dynamics: str, dt: float, rates: Mapping[str, int | float], limits: bool
) -> Cascade:
    """The cascade from ``control`` down to the dynamics.

    Args:
        control: one of `LEVELS`; None: the level of the dynamics.
        rotors: whether the dynamics takes rotor speeds.
        dynamics: its name, for errors.
        dt: seconds a step lasts.
        rates: Hz of the controllers ``state``, ``attitude``, ``body_rate``, ``force_torque``.
        limits: see `Cascade`.

    Raises:
        ConfigError: unknown level, one that these dynamics cannot follow, or a rate that does not divide the steps.
    """
    control = control or ("rotor_vel" if rotors else "attitude")
    if control not in LEVELS:
        raise ConfigError(f"unknown control {control!r}; known are {', '.join(LEVELS)}")
    if not rotors and control not in ("state", "attitude"):
        raise ConfigError(
            f"control {control!r} works on rotors, which dynamics {dynamics!r} has not; use 'state' or 'attitude', or "
            "dynamics 'first_principles'"
        )
    below = {
        "state": ("state", "attitude", "force_torque"),
        "attitude": ("attitude", "force_torque"),
        "body_rate": ("body_rate", "force_torque"),
        "force_torque": ("force_torque",),
        "rotor_vel": (),
    }[control]
    used = [level for level in below if rotors or level != "force_torque"]
    periods = tuple((level, _period(level, rates[level], dt)) for level in used)
    return Cascade(control, rotors, periods, dt, limits)


def _period(level: str, rate: Any, dt: float) -> int:
    freq = 1.0 / dt
    if not (isinstance(rate, int | float) and 0.0 < rate < float("inf")):
        raise ConfigError(f"{level}_freq is {rate!r}, but it must be a positive number of Hz")
    steps = freq / rate
    if round(steps) < 1 or abs(steps - round(steps)) > 1e-6 * steps:
        raise ConfigError(
            f"{level}_freq is {rate:g} Hz, which does not divide the {freq:g} Hz of the steps; use {freq:g} Hz over a "
            "whole number"
        )
    return round(steps)
