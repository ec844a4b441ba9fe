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
CHUNK = 1040
"""Greatest number of drones in a chunk."""


def chunks(size: int) -> tuple[int, int]:
    """Number of chunks for ``size`` drones, and drones in a chunk, the last one filled up.

    Whole vectors, and no multiple of 2 KiB: rows of arrays that far apart share the places of the cache, and a step
    reads sixty of them (1024 drones took 1.5 times as long as 1040, with the cascade 2.2 times; AMD Zen 4).
    """
    chunk = -(-size // -(-size // CHUNK))
    chunk = -(-chunk // 16) * 16
    chunk += 16 * (chunk % 512 == 0)
    return -(-size // chunk), chunk


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
    c = step.coefficients(params, diagonal)
    packed = Packed((c, forces), batch, jnp.result_type(x[0]))
    odd = any(jnp.ndim(v) for v in packed.arrays[2])  # of another type than the state, and not the same for all drones
    if size < STACK_BELOW or chunks(size) == (1, size) or step.stages or odd:
        x, memory, flown = _loop(step, every, record, size < STACK_BELOW, params, packed, packed.arrays, x, memory, u)
    else:
        x, memory, flown = _chunked(step, every, record, batch, packed, x, memory, u)
    return memory, from_components(x), from_components(flown) if record else None


def _wrench(wrench: tuple[jax.Array, jax.Array], batch: tuple[int, ...]) -> tuple[Components, Components]:
    for name, v in zip(("force", "torque"), wrench, strict=True):
        if jnp.ndim(v) == 0 or jnp.shape(v)[-1] != 3 or jnp.shape(v)[:-1] not in ((), batch):
            raise ShapeError(f"wrench {name} has shape {jnp.shape(v)}, but (3,) or (*{batch}, 3) is expected")
    force, torque = wrench
    return tuple(force[..., i] for i in range(3)), tuple(torque[..., i] for i in range(3))


class Packed:
    """A pytree of components as two arrays: what all drones share (n,), and what each has (n, batch).

    A loop then has two constants instead of sixty, and XLA fewer buffers to tell apart. What has another type than the
    batch stays as it is, Python numbers stay part of the program.
    """

    def __init__(self, tree: Any, batch: tuple[int, ...], dtype: Any) -> None:
        leaves, self.tree = jax.tree.flatten(tree)
        self.kinds = [self._kind(v, dtype) for v in leaves]
        groups = {kind: [v for v, k in zip(leaves, self.kinds, strict=True) if k == kind] for kind in range(4)}
        self.fixed = groups[3]
        self.arrays = (
            jnp.stack(groups[0]) if groups[0] else (),
            jnp.stack([jnp.broadcast_to(v, batch) for v in groups[1]]) if groups[1] else (),
            tuple(groups[2]),
        )

    @staticmethod
    def _kind(v: Any, dtype: Any) -> int:
        if isinstance(v, float):
            return 3
        return 2 if jnp.result_type(v) != dtype else min(jnp.ndim(v), 1)

    def open(self, arrays: Any) -> Any:
        """The pytree of arrays made like ``self.arrays``."""
        groups = [iter(group) for group in (*arrays, self.fixed)]
        return jax.tree.unflatten(self.tree, [next(groups[kind]) for kind in self.kinds])


def _loop(
    step: Step,
    every: int,
    record: bool,
    stacked: bool,
    params: Any,
    packed: Packed,
    constants: Any,
    x: Components,
    memory: Memory,
    u: Components,
) -> tuple[Components, Memory, Any]:
    """The loop itself."""
    pack: Callable = jnp.stack if stacked else tuple
    batch = jnp.shape(x[0])

    def advance(carry: Any, u: Components) -> tuple[Any, Any]:
        command = Packed(step.cascade.prepare(packed.open(constants)[0][1], u), batch, jnp.result_type(x[0]))

        def once(carry: Any, _: None) -> tuple[Any, None]:
            c, wrench = packed.open(constants)
            prepared = command.open(command.arrays)
            y, kept = step.on_components(params, c, prepared, tuple(carry[0]), carry[1], wrench)
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
    packed: Packed,
    x: Components,
    memory: Memory,
    u: Components,
) -> tuple[Components, Memory, Any]:
    size = math.prod(batch)
    count, chunk = chunks(size)

    def split(v: Any) -> Any:
        # From (n, batch) to (count, n, chunk); the last chunk is filled up with copies of the last drone.
        v = jnp.pad(v.reshape(v.shape[0], size), [(0, 0), (0, count * chunk - size)], mode="edge")
        return jnp.moveaxis(v.reshape(-1, count, chunk), 1, 0)

    def join(v: Any) -> Any:
        v = jnp.moveaxis(v, 0, 1)
        return v.reshape(v.shape[0], count * chunk)[:, :size].reshape(-1, *batch)

    kept, tree = jax.tree.flatten(memory.onboard)
    moving = split(jnp.stack([*x, *kept]))
    own = split(packed.arrays[1]) if len(packed.arrays[1]) else ()
    steps = jnp.shape(u[0])[0]
    commanded = jnp.ndim(u[0]) > 1
    commands = split(jnp.stack(u, 1).reshape(steps * len(u), size)) if commanded else ()
    number = split(memory.step.reshape(1, size)) if jnp.ndim(memory.step) else ()

    def one(some: Any) -> Any:
        moving, own, commands, number = some
        mine = tuple(jnp.moveaxis(commands.reshape(steps, len(u), chunk), 1, 0)) if commanded else u
        start = Memory(
            memory.step if isinstance(number, tuple) else number[0], jax.tree.unflatten(tree, list(moving[SIZE:])), {}
        )
        x, after, flown = _loop(
            step,
            every,
            record,
            False,
            None,
            packed,
            (packed.arrays[0], own, packed.arrays[2]),
            tuple(moving[:SIZE]),
            start,
            mine,
        )
        last = jnp.stack([*x, *jax.tree.leaves(after.onboard)])
        flown = jnp.stack(flown, 1).reshape(steps * SIZE, chunk) if record else None
        return last, after.step if isinstance(number, tuple) else after.step[None], flown

    last, number, flown = jax.lax.map(one, (moving, own, commands, number))
    last = join(last)
    number = join(number)[0] if jnp.ndim(memory.step) else number[0]
    flown = tuple(jnp.moveaxis(join(flown).reshape(steps, SIZE, *batch), 1, 0)) if record else None
    return tuple(last[:SIZE]), Memory(number, jax.tree.unflatten(tree, list(last[SIZE:])), {}), flown
