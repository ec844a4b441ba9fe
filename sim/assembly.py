"""From a pipeline of named stages to one function of data. Chooses once; what it returns branches on nothing.

The stages that a `Sim` starts with are names only (`Own`): those of one step in their order become one `Turns`, which
runs all steps of a call in one loop of components. A function of one's own among them is called at its place, at every
step, on all data; the rest is then run piece by piece around it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from sim import effects, layout, rotor
from sim.data import SimData
from sim.effects import Stage
from sim.errors import ConfigError
from sim.modes import Control, Dynamics, Integrator, cascade
from sim.pipeline import build_step
from sim.state import Params, RpyParams
from sim.turns import Turns

CLIP, INTEGRATION, FLOOR, COUNT = "clip_rotor_vel_cmd", "integration", "clip_floor_pos", "increment_steps"


@dataclass(frozen=True)
class Own:
    """A stage that is ours, by name."""

    name: str
    level: str | None = None

    def apply(self, data: SimData) -> SimData:
        """Not to be called: it is built into a step."""
        raise ConfigError(f"stage {self.name!r} is built in and cannot be called by itself; use Sim.build_step_fn")


@dataclass(frozen=True)
class Plan:
    """What a simulation was asked to be."""

    dynamics: Dynamics
    control: Control
    integrator: Integrator
    freq: int
    rates: Mapping[str, int]
    thrusts: tuple[float, float]
    bounds: tuple[float, float]

    @property
    def controllers(self) -> tuple[Own, ...]:
        """The controllers, as stages."""
        levels = cascade(self.control, self.dynamics)
        if levels == ("attitude",):
            return (Own("commit_attitude", "attitude"),)
        return tuple(Own(f"{level}_controller", level) for level in levels)

    @property
    def stages(self) -> tuple[Own, ...]:
        """All stages to start with."""
        return (*self.controllers, *(Own(name) for name in (CLIP, INTEGRATION, FLOOR, COUNT)))

    def step(self, control: str, stages: tuple[Stage, ...], *, every: bool = False) -> Any:
        """A step for commands of ``control``, taken at ``every`` step or at the rate of their controller.

        Raises:
            ConfigError: rates that do not divide.
        """
        rates = {f"{level}_freq": self.freq if every else rate for level, rate in self.rates.items()}
        return build_step(
            dynamics=self.dynamics.value, control=control, integrator=self.integrator.value, freq=self.freq,
            stages=stages, **rates,
        )  # fmt: skip


def plan(
    params: Params | RpyParams, dynamics: Dynamics, control: Control, integrator: Integrator, freq: int,
    rates: Mapping[str, int],
) -> Plan:  # fmt: skip
    """The plan of a simulation; the bounds of commands are those of the drone as it is loaded."""
    thrusts = float(params.thrust_min), float(params.thrust_max)
    if isinstance(params, Params):
        bounds = tuple(float(v[0]) for v in rotor.limits(params))
    else:
        bounds = (4.0 * thrusts[0], 4.0 * thrusts[1])
    return Plan(dynamics, control, integrator, freq, rates, thrusts, bounds)


def _none_yet(params: Any, batch: tuple[int, ...], dtype: Any, key: jax.Array) -> Any:
    return tuple(jnp.zeros(batch, dtype) for _ in range(4))


def _now(params: Any, memory: Any, x: Any, command: Any, dt: float) -> Any:
    return tuple(jnp.broadcast_to(v, m.shape) for v, m in zip(command, memory, strict=True))


COMMANDED = Stage(layout.RECORD, "command", lambda params, x, u, memory: u, start=_none_yet, advance=_now)
"""A stage whose memory is the command that it sees."""


def added(pipeline: Mapping[str, Any]) -> tuple[Stage, ...]:
    """The stages of `sim.effects` in a pipeline."""
    return tuple(replace(stage, name=name) for name, stage in pipeline.items() if isinstance(stage, Stage))


def assemble(plan: Plan, pipeline: Mapping[str, Any]) -> tuple[Callable[[SimData, int, bool], SimData], bool]:
    """The function ``(data, n, diagonal) -> data`` of a pipeline, and whether it treats worlds one by one.

    Raises:
        ConfigError: stages that are built in stand in an order that cannot be.
    """
    stages = added(pipeline)
    rest = [(name, stage) for name, stage in pipeline.items() if not isinstance(stage, Stage)]
    for name, stage in rest:
        if isinstance(stage, Own) and stage.name != name:
            raise ConfigError(f"stage {stage.name!r} was put in as {name!r}; it is built in and keeps its name")
    names = [name if isinstance(stage, Own) else None for name, stage in rest]
    whole = [s.name for s in plan.stages]
    kept = [name for name in names if name is not None]
    optional = {CLIP, FLOOR}
    if None not in names and [n for n in whole if n in kept or n not in optional] == kept:
        turns = _turns(plan, plan.control.value, stages, CLIP in kept, FLOOR in kept)
        random = any(stage.start is not None and stage.name != layout.RECORD for stage in stages)
        return turns, not random
    parts = _parts(plan, rest, stages)

    def move(data: SimData, n: int, diagonal: bool) -> SimData:
        def once(data: SimData, _: None) -> tuple[SimData, None]:
            for part in parts:
                data = part(data, diagonal)
            return data, None

        return once(data, None)[0] if n == 1 else jax.lax.scan(once, data, length=n)[0]

    return move, False


def _turns(plan: Plan, control: str, stages: tuple[Stage, ...], clip: bool, floor: bool, record: bool = True) -> Turns:
    record = record and control != "rotor_vel"
    all_stages = (*((COMMANDED,) if record else ()), *stages, *((effects.floor,) if floor else ()))
    couples = any(stage.couples for stage in stages)
    return Turns(plan.step(control, all_stages, every=not record), plan.thrusts, plan.bounds if clip else None, couples)


Part = Callable[[SimData, bool], SimData]


def _parts(plan: Plan, rest: list[tuple[str, Any]], stages: tuple[Stage, ...]) -> list[Part]:
    parts: list[Part] = []
    inner = plan.dynamics == Dynamics.first_principles
    levels = [c.level for c in plan.controllers]
    index = 0
    while index < len(rest):
        name, stage = rest[index]
        index += 1
        if not isinstance(stage, Own):
            parts.append(lambda data, diagonal, stage=stage: stage(data))
        elif stage.level is not None:
            # Controllers run together; those left must be the last of the cascade.
            run = [stage.level]
            while index < len(rest) and isinstance(rest[index][1], Own) and rest[index][1].level is not None:
                run.append(rest[index][1].level)
                index += 1
            if run != levels[len(levels) - len(run) :]:
                raise ConfigError(
                    f"controllers {', '.join(run)} run together, but {', '.join(levels)} belong together; put your "
                    "stage before or after all of them, or replace them from the first on"
                )
            own = _turns(plan, run[0], (), False, False)
            parts.append(lambda data, diagonal, own=own: own.commands(data))
        elif name == CLIP:
            parts.append(lambda data, diagonal: _clipped(data, plan.bounds, inner))
        elif name == INTEGRATION:
            own = _turns(plan, "rotor_vel" if inner else "attitude", stages, False, False, record=False)
            parts.append(lambda data, diagonal, own=own: own.motion(data, diagonal))
        elif name == FLOOR:
            parts.append(lambda data, diagonal: _held(data))
        else:
            parts.append(lambda data, diagonal: data.replace(core=data.core.replace(steps=data.core.steps + 1)))
    return parts


def _clipped(data: SimData, bounds: tuple[float, float], inner: bool) -> SimData:
    c = data.controls
    if inner:
        return data.replace(controls=c.replace(rotor_vel=jnp.clip(c.rotor_vel, *bounds)))
    cmd = c.attitude.cmd.at[..., 3].set(jnp.clip(c.attitude.cmd[..., 3], *bounds))
    return data.replace(controls=c.replace(attitude=c.attitude.replace(cmd=cmd)))


def _held(data: SimData) -> SimData:
    s = data.states
    under = s.pos[..., 2:] < effects.FLOOR_Z
    pos = s.pos.at[..., 2:].set(jnp.where(under, effects.FLOOR_Z, s.pos[..., 2:]))
    return data.replace(states=s.replace(pos=pos, vel=jnp.where(under, 0.0, s.vel)))
