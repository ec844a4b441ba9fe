"""Steps assembled from control, dynamics, integrator and stages chosen at build time. Holds no physics.

How a step is run many times, and on many drones, is in `sim.pipeline`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp

from sim import effects, onboard, rotation
from sim.dynamics import first_principles, so_rpy
from sim.effects import PLACES, Stage
from sim.effects.stage import remembered
from sim.errors import ConfigError, ShapeError
from sim.integrate import INTEGRATORS
from sim.onboard.cascade import Cascade
from sim.state import QUAT, Components, Params, RpyParams, State, components, from_components

DYNAMICS = {"first_principles": first_principles, "so_rpy": so_rpy, "so_rpy_rotor": so_rpy, "so_rpy_rotor_drag": so_rpy}
RATES = {"state_freq": 100, "attitude_freq": 500, "body_rate_freq": 500, "force_torque_freq": 500}
"""Hz of the onboard controllers where nothing else is said, or that of the steps where those are slower."""

Wrench = tuple[Components, Components]


def step_components(params: Any, x: Components, rotor_rpm_cmd: Components, dt: float) -> Components:
    """One explicit Euler step of the bare first-principles dynamics, on components.

    Args:
        params: `Params`, or `first_principles.coefficients` of them. Values known while
            tracing become constants of the program (2.5 times faster at one drone, 1.7 at 32, equal at 1024; compiled
            anew for other parameters); traced ones stay changeable.
        x: 17 components (see `sim.state`), scalars or arrays with the batch last.
        rotor_rpm_cmd: 4 commanded rotor speeds, rev/min.
        dt: step in s.
    """
    c = params if isinstance(params, first_principles.Coefficients) else first_principles.coefficients(params)
    return INTEGRATORS["euler"](lambda y: first_principles.derivative(c, y, rotor_rpm_cmd), x, dt)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Memory:
    """What a step remembers beside the state."""

    step: jax.Array
    """Steps since the drones were switched on, int32: () for all, or one for each (...)."""
    onboard: dict[str, Components]
    """Of the cascade, by name, components of the shape of the batch; see `sim.onboard.cascade.Cascade.keeps`."""
    effects: dict[str, Any]
    """Of the stages that have one, by name."""


@dataclass(frozen=True, eq=False)  # the same object for the same build, so that calls compare identities only
class Step:
    """A step ready to be called on a `State`, compiled once per shape; `sim.pipeline` runs many.

    Attributes:
        dynamics: its name.
        integrator: its name.
        dt: seconds a step lasts.
        stages: in the order in which they act.
        diagonal: whether inertia and drag are taken for diagonal; None: found out where values are known.
        cascade: the controllers above the dynamics.
    """

    dynamics: str
    integrator: str
    dt: float
    stages: tuple[Stage, ...]
    diagonal: bool | None
    cascade: Cascade

    def __call__(self, params: Params | RpyParams, state: State, command: jax.Array) -> State:
        """State after ``dt`` under ``command`` (..., n), for steps that remember nothing.

        Raises:
            ConfigError: this step has a memory; use `sim.pipeline.fly`.
            ShapeError: an array does not fit.
        """
        if not self.forgets:
            raise ConfigError(
                f"control {self.cascade.control!r} with stages {[s.name for s in self.stages]} has a memory, but a "
                "call takes none; use sim.pipeline.fly"
            )
        return _call(self, self.sees_diagonal(params), params, state, command)

    def sees_diagonal(self, params: Params | RpyParams) -> bool:
        """Decided on the values given, before they become tracers of a compiled function."""
        return first_principles.sees_diagonal(params, self.diagonal)

    def command(self, command: Any) -> Components:
        """Components of commands (..., n).

        Raises:
            ShapeError: the last axis is not that of the control level.
        """
        n = onboard.LEVELS[self.cascade.control]
        if jnp.ndim(command) == 0 or jnp.shape(command)[-1] != n:
            raise ShapeError(
                f"{self.cascade.control} commands have shape {jnp.shape(command)}, but (..., {n}) is expected"
            )
        return tuple(command[..., i] for i in range(n))

    @property
    def forgets(self) -> bool:
        """Whether it remembers nothing."""
        return self.cascade.forgets and all(stage.start is None for stage in self.stages)

    def memory(
        self, params: Params | RpyParams, batch: tuple[int, ...] = (), dtype: Any = None, key: jax.Array | None = None
    ) -> Memory:
        """Memory of drones that were just switched on.

        Args:
            params: parameters, for stages that start from them.
            batch: shape of the batch.
            dtype: of the memory; None takes JAX's present default.
            key: for stages that draw.
        """
        dtype = dtype or jax.dtypes.canonicalize_dtype(float)
        drawn: dict[str, Any] = {}
        if any(stage.start is not None for stage in self.stages):
            drawn = effects.start(self.stages, params, batch, jax.random.key(0) if key is None else key, dtype)
        return Memory(jnp.zeros((), jnp.int32), self.cascade.start(batch, dtype), drawn)

    def coefficients(self, params: Params | RpyParams, diagonal: bool | None) -> tuple[Any, Any]:
        """What `on_components` works with: coefficients of the dynamics and of the cascade."""
        return DYNAMICS[self.dynamics].coefficients(params, diagonal=diagonal), self.cascade.coefficients(params)

    def on_components(
        self,
        params: Params | RpyParams,
        coefficients: tuple[Any, Any],
        prepared: Any,
        x: Components,
        memory: Memory,
        wrench: Wrench | None = None,
    ) -> tuple[Components, Memory]:
        """One step on components (see `sim.state`).

        Args:
            params: for the stages.
            coefficients: of ``params``.
            prepared: the command, through ``cascade.prepare``.
            x: 17 components.
            memory: from the step before.
            wrench: force 3 (N) and torque 3 (Nm) from outside, both in the world frame.
        """
        names = [stage.name for stage in self.stages]
        if unused := set(params.effects if params is not None else ()) - set(names):
            raise ConfigError(f"params.effects has {sorted(unused)}, but this step has only the stages {names}")
        model, advance = DYNAMICS[self.dynamics], INTEGRATORS[self.integrator]
        c_model, c_cascade = coefficients
        on_command, wrenches, on_state = ([s for s in self.stages if s.place == place] for place in PLACES)
        u, kept = self.cascade.run(c_cascade, prepared, x, memory.onboard, memory.step)
        seen = memory.effects
        if seen:
            seen = effects.advance(self.stages, params, seen, x, u, self.dt)
        for stage in on_command:
            u = stage.apply(params, x, u, *remembered(stage, seen))

        def tangent(y: Components) -> Components:
            force = torque = first_principles.ZERO3
            if wrench is not None:
                force, torque = wrench[0], rotation.rotate_back(rotation.matrix(y[QUAT]), wrench[1])
            for stage in wrenches:
                more = stage.apply(params, y, u, *remembered(stage, seen))
                force = tuple(a + b for a, b in zip(force, more[0], strict=True))
                torque = tuple(a + b for a, b in zip(torque, more[1], strict=True))
            return model.derivative(c_model, y, u, force, torque)

        x = advance(tangent, x, self.dt)
        for stage in on_state:
            x = stage.apply(params, x, self.dt, *remembered(stage, seen))
        return x, Memory(memory.step + 1, kept, seen)


@partial(jax.jit, static_argnums=(0, 1))
def _call(step: Step, diagonal: bool, params: Params | RpyParams, state: State, command: jax.Array) -> State:
    c = step.coefficients(params, diagonal)
    prepared = step.cascade.prepare(c[1], step.command(command))
    memory = Memory(jnp.zeros((), jnp.int32), {}, {})
    return from_components(step.on_components(params, c, prepared, components(state), memory)[0])


def build_step(
    *,
    dynamics: str = "first_principles",
    control: str | None = None,
    integrator: str = "euler",
    dt: float | None = None,
    freq: float | None = None,
    state_freq: float | None = None,
    attitude_freq: float | None = None,
    body_rate_freq: float | None = None,
    force_torque_freq: float | None = None,
    stages: Sequence[Stage] = (),
    diagonal: bool | None = None,
    limits: bool = False,
) -> Step:
    """A step for one drone or a batch, pure and differentiable.

    Args:
        dynamics: model of the forces: ``first_principles``, ``so_rpy``, ``so_rpy_rotor`` or ``so_rpy_rotor_drag``.
        control: level of the commands, one of `sim.onboard.LEVELS`; None: that of the dynamics.
        integrator: one of `sim.integrate.INTEGRATORS`.
        dt: seconds a step lasts, 1/500 if neither it nor ``freq`` is given.
        freq: steps per second, instead of ``dt``.
        state_freq: Hz of the position controller; None: as `RATES`, at most that of the steps. So the following.
        attitude_freq: of the attitude controller.
        body_rate_freq: of the body-rate controller.
        force_torque_freq: of the power distribution.
        stages: of `sim.effects` or your own; those of one place act in the order given.
        diagonal: inertia and drag are diagonal, leave their other terms out; None: where it can be seen.
        limits: hold the command to the dynamics between the least and the greatest thrust of the rotors.

    Raises:
        ConfigError: unknown name, step not positive, rates that do not divide, a control level that the dynamics
            cannot follow, or two stages of one name.
    """
    if dynamics not in DYNAMICS:
        raise ConfigError(f"unknown dynamics {dynamics!r}; known are {', '.join(DYNAMICS)}")
    if integrator not in INTEGRATORS:
        raise ConfigError(f"unknown integrator {integrator!r}; known are {', '.join(INTEGRATORS)}")
    if dt is not None and freq is not None:
        raise ConfigError(f"dt is {dt!r} s and freq is {freq!r} Hz, but only one of them can be given")
    if freq is not None:
        if not (isinstance(freq, int | float) and 0.0 < freq < float("inf")):
            raise ConfigError(f"freq is {freq!r} Hz, but it must be a positive number")
        dt = 1.0 / freq
    dt = 1.0 / 500.0 if dt is None else dt
    if not (isinstance(dt, int | float) and 0.0 < dt < float("inf")):
        raise ConfigError(f"dt is {dt!r} s, but it must be a positive number")
    _check_stages(stages)
    given = {
        "state_freq": state_freq, "attitude_freq": attitude_freq, "body_rate_freq": body_rate_freq,
        "force_torque_freq": force_torque_freq,
    }  # fmt: skip
    rates = _rates(given, 1.0 / dt)
    return _built(dynamics, control, integrator, float(dt), tuple(rates.items()), tuple(stages), diagonal, limits)


@lru_cache(maxsize=1024)
def _built(
    dynamics: str,
    control: str | None,
    integrator: str,
    dt: float,
    rates: tuple[tuple[str, float], ...],
    stages: tuple[Stage, ...],
    diagonal: bool | None,
    limits: bool,
) -> Step:
    rotors = dynamics == "first_principles"
    cascade = onboard.build(control, rotors=rotors, dynamics=dynamics, dt=dt, rates=dict(rates), limits=limits)
    return Step(dynamics, integrator, dt, stages, diagonal, cascade)


def _rates(given: Mapping[str, float | None], freq: float) -> dict[str, float]:
    return {name.removesuffix("_freq"): min(RATES[name], freq) if f is None else f for name, f in given.items()}


def _check_stages(stages: Sequence[Stage]) -> None:
    names = [stage.name for stage in stages]
    for stage in stages:
        if names.count(stage.name) > 1:
            raise ConfigError(f"stages has {stage.name!r} twice; a name may act once")
        if stage.place not in PLACES:
            raise ConfigError(f"stage {stage.name!r} is at {stage.place!r}; places are {', '.join(PLACES)}")
