"""Many steps of many drones in one compiled loop, in the layout that suits their number. Holds no physics.

Few drones travel through the loop as one array with the batch last, since such a loop spends its time starting
operations; more as one array per component; many in chunks that stay in the cache of a core, one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from sim.errors import ShapeError
from sim.state import SIZE, Components, Params, RpyParams, State, components, from_components
from sim.step import DYNAMICS, Memory, Step, build_step, step_components

__all__ = ["DYNAMICS", "Memory", "Step", "build_step", "fly", "rollout", "step_components"]

STACK_BELOW = 128
"""Batch size up to which a loop carries one array: 1.5 times faster at one drone, 1.2 at 32."""
CHUNK = 1024
"""Drones in a chunk; from twice that on there are chunks."""


def rollout(step: Step, params: Params | RpyParams, state: State, commands: jax.Array, *, every: int = 1) -> State:
    """States along a flight of drones that were just switched on: one loop, compiled once per step and shape.

    Args:
        step: from `build_step`.
        params: parameters, for one drone or with the batch in front.
        state: state before the first step, (...) batch.
        commands: (T, ..., n); command k is staged before steps k * every .. (k + 1) * every - 1.
        every: steps a command lasts.

    Returns:
        States after each command, (T, ...).

    Raises:
        ShapeError: state and commands do not go together.
    """
    batch = jnp.shape(state.pos)[:-1]
    memory = step.memory(params, batch, jnp.result_type(state.pos))
    return fly(step, params, memory, state, commands, every=every)[2]


def fly(
    step: Step,
    params: Params | RpyParams,
    memory: Memory,
    state: State,
    commands: jax.Array,
    *,
    every: int = 1,
    wrench: tuple[jax.Array, jax.Array] | None = None,
    record: bool = True,
) -> tuple[Memory, State, State | None]:
    """As `rollout`, from a memory and with a wrench from outside.

    Args:
        step: from `build_step`.
        params: parameters, for one drone or with the batch in front.
        memory: from ``step.memory`` or the flight before.
        state: state before the first step.
        commands: (T, ..., n).
        every: steps a command lasts.
        wrench: force (..., 3) in N and torque (..., 3) in Nm, both in the world frame, held all the time.
        record: keep the states after each command.

    Returns:
        Memory and state after the last step, and the states after each command or None.

    Raises:
        ShapeError: state, commands, memory and wrench do not go together.
    """
    return _fly(step, step.sees_diagonal(params), every, record, params, memory, state, commands, wrench)


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _fly(
    step: Step,
    diagonal: bool,
    every: int,
    record: bool,
    params: Params | RpyParams,
    memory: Memory,
    state: State,
    commands: jax.Array,
    wrench: tuple[jax.Array, jax.Array] | None,
) -> tuple[Memory, State, State | None]:
    x, u = components(state), step.command(commands)
    batch = jnp.broadcast_shapes(*(jnp.shape(v) for v in x))
    if jnp.shape(u[0])[1:] not in ((), batch):
        n = jnp.shape(commands)[-1]
        raise ShapeError(f"commands have shape {jnp.shape(commands)}, but (T, {n}) or (T, *{batch}, {n}) is expected")
    if jnp.ndim(memory.step) and jnp.shape(memory.step) != batch:
        raise ShapeError(f"memory.step has shape {jnp.shape(memory.step)}, but () or {batch} is expected")
    x = tuple(jnp.broadcast_to(v, batch) for v in x)
    forces = None if wrench is None else _wrench(wrench, batch)
    size = math.prod(batch)
    if size < STACK_BELOW:
        x, memory, flown = _loop(step, diagonal, every, record, True, params, None, x, memory, u, forces)
    else:
        c = step.coefficients(params, diagonal)
        x, memory, flown = _chunked(step, every, record, batch, params, c, x, memory, u, forces)
    return memory, from_components(x), from_components(flown) if record else None


def _wrench(wrench: tuple[jax.Array, jax.Array], batch: tuple[int, ...]) -> tuple[Components, Components]:
    for name, v in zip(("force", "torque"), wrench, strict=True):
        if jnp.ndim(v) == 0 or jnp.shape(v)[-1] != 3 or jnp.shape(v)[:-1] not in ((), batch):
            raise ShapeError(f"wrench {name} has shape {jnp.shape(v)}, but (3,) or (*{batch}, 3) is expected")
    force, torque = wrench
    return tuple(force[..., i] for i in range(3)), tuple(torque[..., i] for i in range(3))


def _loop(
    step: Step,
    diagonal: bool | None,
    every: int,
    record: bool,
    stacked: bool,
    params: Any,
    c: Any,
    x: Components,
    memory: Memory,
    u: Components,
    wrench: Any,
) -> tuple[Components, Memory, Any]:
    """The loop itself; ``c`` None: coefficients are worked out in it."""
    pack: Callable = jnp.stack if stacked else tuple

    def advance(carry: Any, u: Components) -> tuple[Any, Any]:
        prepared = step.cascade.prepare((c or step.coefficients(params, diagonal))[1], u)

        def once(carry: Any, _: None) -> tuple[Any, None]:
            # Worked out in the loop, the coefficients need no 45 buffers carried by the loop: 1.5 times faster at one
            # drone, 1.3 at 32, equal at 1024 (interleaved minima on one loaded AVX-512 core).
            here = c or step.coefficients(params, diagonal)
            y, kept = step.on_components(params, here, prepared, tuple(carry[0]), carry[1], wrench)
            return (pack(y), kept), None

        # An inner loop, not an unrolled one: XLA would recompute step k inside step k + 1.
        carry = once(carry, None)[0] if every == 1 else jax.lax.scan(once, carry, None, length=every)[0]
        return carry, carry[0] if record else None

    (last, memory), flown = jax.lax.scan(advance, (pack(x), memory), u)
    if stacked:
        return tuple(last), memory, tuple(flown[:, i] for i in range(SIZE)) if record else None
    return last, memory, flown


def _chunked(
    step: Step,
    every: int,
    record: bool,
    batch: tuple[int, ...],
    params: Any,
    c: Any,
    x: Components,
    memory: Memory,
    u: Components,
    wrench: Any,
) -> tuple[Components, Memory, Any]:
    size = math.prod(batch)
    if size < 2 * CHUNK or step.stages:
        return _loop(step, None, every, record, False, params, c, x, memory, u, wrench)
    count = -(-size // CHUNK)

    def split(v: Any, lead: tuple[int, ...] = ()) -> Any:
        # From (lead, batch) to (chunks, lead, CHUNK); the last chunk is filled up with copies of the last drone.
        v = jnp.broadcast_to(v, (*lead, *batch)).reshape(*lead, size)
        v = jnp.pad(v, [(0, 0)] * len(lead) + [(0, count * CHUNK - size)], mode="edge")
        return jnp.moveaxis(v.reshape(*lead, count, CHUNK), len(lead), 0)

    def join(v: Any, lead: tuple[int, ...] = ()) -> Any:
        return jnp.moveaxis(v, 0, len(lead)).reshape(*lead, count * CHUNK)[..., :size].reshape(*lead, *batch)

    common = {"c": c, "wrench": wrench, "u": u, "step": memory.step}
    leaves, tree = jax.tree.flatten(common)
    steps = jnp.shape(u[0])[0]
    commands = {id(v) for v in u}
    leads = [(steps,) if id(v) in commands else () for v in leaves]
    split_up = [jnp.ndim(v) > len(lead) for v, lead in zip(leaves, leads, strict=True)]
    own = [split(v, lead) for v, lead, is_split in zip(leaves, leads, split_up, strict=True) if is_split]

    def one(chunk: Any) -> Any:
        x, kept, own = chunk
        mine = iter(own)
        here = jax.tree.unflatten(tree, [next(mine) if s else v for v, s in zip(leaves, split_up, strict=True)])
        start = Memory(here["step"], kept, {})
        x, after, flown = _loop(step, None, every, record, False, None, here["c"], x, start, here["u"], here["wrench"])
        return x, after.onboard, after.step, flown

    x, kept = jax.tree.map(split, (x, memory.onboard))
    x, kept, number, flown = jax.lax.map(one, (x, kept, own))
    x, kept = jax.tree.map(join, (x, kept))
    number = join(number) if jnp.ndim(memory.step) else number[0]
    flown = tuple(join(v, (steps,)) for v in flown) if record else None
    return x, Memory(number, kept, {}), flown
