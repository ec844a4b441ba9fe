"""Steps assembled from dynamics, integrator and stages chosen at build time, and rollouts of them. Holds no physics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from sim.dynamics import first_principles
from sim.effects import Stage
from sim.errors import ConfigError, ShapeError
from sim.integrate import INTEGRATORS
from sim.state import SIZE, Components, Params, State, components, from_components

DYNAMICS = {"first_principles": first_principles}
PLACES = ("command", "wrench", "state")

STACK_BELOW = 128
"""Batch size up to which a rollout carries one (17, B) array rather than 17: a loop over few drones spends its time
starting operations (1.5 times faster at one drone, 1.2 at 32), one over many moving memory."""


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


@dataclass(frozen=True)
class Step:
    """A step ready to be called on a `State`, compiled once per shape; ``on_components`` is the same on components.

    Attributes:
        dt: seconds a step lasts.
        stages: in the order in which they act.
        diagonal: whether inertia and drag are taken for diagonal; None: found out where values are known.
        on_components: ``(params, coefficients, x, rotor_rpm_cmd) -> x``; the coefficients are those of ``params``.
        coefficients: ``(params, diagonal) -> coefficients``.
    """

    dt: float
    stages: tuple[Stage, ...]
    diagonal: bool | None
    on_components: Callable[[Params, Any, Components, Components], Components]
    coefficients: Callable[[Params, bool], Any]

    def __call__(self, params: Params, state: State, rotor_rpm_cmd: jax.Array) -> State:
        """State after ``dt`` under ``rotor_rpm_cmd`` (..., 4)."""
        return _step(self, _sees_diagonal(self, params), params, state, rotor_rpm_cmd)


def _sees_diagonal(step: Step, params: Params) -> bool:
    # Decided on the values given, before they become tracers of the compiled function.
    if step.diagonal:
        first_principles.refuse_off_diagonal(params)
    return first_principles.is_diagonal(params) if step.diagonal is None else step.diagonal


@partial(jax.jit, static_argnums=(0, 1))
def _step(step: Step, diagonal: bool, params: Params, state: State, rotor_rpm_cmd: jax.Array) -> State:
    x, u = components(state), _commands(rotor_rpm_cmd)
    return from_components(step.on_components(params, step.coefficients(params, diagonal), x, u))


def build_step(
    *,
    dynamics: str = "first_principles",
    integrator: str = "euler",
    dt: float = 1.0 / 500.0,
    stages: Sequence[Stage] = (),
    diagonal: bool | None = None,
) -> Step:
    """A step ``(params, state, rotor_rpm_cmd) -> state`` for one drone or a batch, pure and differentiable.

    Args:
        dynamics: model of the forces; there is ``first_principles``.
        integrator: ``euler``, ``symplectic_euler`` or ``rk4``.
        dt: seconds a step lasts.
        stages: of `sim.effects` or your own; those of one place act in the order given.
        diagonal: inertia and drag are diagonal, leave their other terms out; None: where it can be seen.

    Raises:
        ConfigError: unknown name, step not positive, or two stages of one name.
    """
    if dynamics not in DYNAMICS:
        raise ConfigError(f"unknown dynamics {dynamics!r}; known are {', '.join(DYNAMICS)}")
    if integrator not in INTEGRATORS:
        raise ConfigError(f"unknown integrator {integrator!r}; known are {', '.join(INTEGRATORS)}")
    if not (isinstance(dt, int | float) and 0.0 < dt < float("inf")):
        raise ConfigError(f"dt is {dt!r} s, but it must be a positive number")
    names = [stage.name for stage in stages]
    for stage in stages:
        if names.count(stage.name) > 1:
            raise ConfigError(f"stages has {stage.name!r} twice; a name may act once")
        if stage.place not in PLACES:
            raise ConfigError(f"stage {stage.name!r} is at {stage.place!r}; places are {', '.join(PLACES)}")
    model, advance, dt = DYNAMICS[dynamics], INTEGRATORS[integrator], float(dt)
    on_command, wrenches, on_state = ([s for s in stages if s.place == place] for place in PLACES)

    def on_components(params: Params, coefficients: Any, x: Components, u: Components) -> Components:
        unused = set(params.effects) - set(names)
        if unused:
            raise ConfigError(f"params.effects has {sorted(unused)}, but this step has only the stages {names}")
        for stage in on_command:
            u = stage.apply(params, x, u)

        def tangent(y: Components) -> Components:
            force = torque = first_principles.ZERO3
            for stage in wrenches:
                more = stage.apply(params, y, u)
                force = tuple(a + b for a, b in zip(force, more[0], strict=True))
                torque = tuple(a + b for a, b in zip(torque, more[1], strict=True))
            return model.derivative(coefficients, y, u, force, torque)

        x = advance(tangent, x, dt)
        for stage in on_state:
            x = stage.apply(params, x, dt)
        return x

    def coefficients(params: Params, diagonal: bool) -> Any:
        return model.coefficients(params, diagonal=diagonal)

    return Step(dt, tuple(stages), diagonal, on_components, coefficients)


def rollout(step: Step, params: Params, state: State, commands: jax.Array, *, every: int = 1) -> State:
    """States along a flight: one loop, compiled once per step and shape.

    Args:
        step: from `build_step`.
        params: parameters, for one drone or with the batch in front.
        state: state before the first step, (...) batch.
        commands: (T, ..., 4) rotor speeds, rev/min; command k holds during steps k * every .. (k + 1) * every - 1.
        every: steps a command lasts.

    Returns:
        States after each command, (T, ...).

    Raises:
        ShapeError: state and commands do not go together.
    """
    return _rollout(step, _sees_diagonal(step, params), every, params, state, commands)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _rollout(step: Step, diagonal: bool, every: int, params: Params, state: State, commands: jax.Array) -> State:
    x, u = components(state), _commands(commands)
    batch = jnp.broadcast_shapes(*(jnp.shape(v) for v in x))
    if jnp.shape(u[0])[1:] not in ((), batch):
        raise ShapeError(f"commands have shape {jnp.shape(commands)}, but (T, 4) or (T, *{batch}, 4) is expected")
    x = tuple(jnp.broadcast_to(v, batch) for v in x)
    stacked = math.prod(batch) < STACK_BELOW
    pack: Callable = jnp.stack if stacked else tuple

    def advance(carry: Any, u: Components) -> tuple[Any, Any]:
        def once(carry: Any, _: None) -> tuple[Any, None]:
            # Worked out in the loop, the coefficients need no 45 buffers carried by the loop: 1.5 times faster at one
            # drone, 1.3 at 32, equal at 1024 (interleaved minima on one loaded AVX-512 core).
            coefficients = step.coefficients(params, diagonal)
            return pack(step.on_components(params, coefficients, tuple(carry), u)), None

        # An inner loop, not an unrolled one: XLA would recompute step k inside step k + 1.
        carry = once(carry, None)[0] if every == 1 else jax.lax.scan(once, carry, None, length=every)[0]
        return carry, carry

    _, flown = jax.lax.scan(advance, pack(x), u)
    return from_components(tuple(flown[:, i] for i in range(SIZE)) if stacked else flown)


def _commands(commands: Any) -> Components:
    if jnp.ndim(commands) == 0 or jnp.shape(commands)[-1] != 4:
        raise ShapeError(f"rotor commands have shape {jnp.shape(commands)}, but (..., 4) is expected")
    return tuple(commands[..., i] for i in range(4))
