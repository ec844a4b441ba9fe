"""Some steps of all drones of a `Sim` in one loop, from data to data. Holds no physics and no layout.

Which of the three loops runs is chosen by the number of drones, as in `sim.pipeline`: few travel as one array, more as
one array a component, many in chunks that stay in the cache of a core.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from sim import layout
from sim.data import SimData
from sim.pipeline import CHUNK, STACK_BELOW
from sim.state import Components
from sim.step import Memory, Step


@dataclass(frozen=True)
class Turns:
    """How data is moved on by a step.

    Attributes:
        step: with the recording stage of `recording` where there are controllers.
        thrusts: least and greatest thrust of a rotor, N.
        bounds: of the command to the dynamics: rotor speeds in rev/min, or collective thrust in N.
        couples: the drones of a world feel each other.
    """

    step: Step
    thrusts: tuple[float, float]
    bounds: tuple[float, float] | None
    couples: bool

    @property
    def slow(self) -> bool:
        """Whether a controller ticks less often than the steps."""
        return any(n > 1 for _, n in self.step.cascade.periods)

    @property
    def alone(self) -> bool:
        """Whether no stage but the recording one acts, so that drones may be taken in chunks."""
        return all(stage.name == layout.RECORD for stage in self.step.stages)

    def coefficients(self, params: Any, diagonal: bool) -> Any:
        """Of the dynamics and the cascade, with the bounds."""
        model, cascade = self.step.coefficients(params, diagonal)
        low, high = self.bounds or (None, None)
        return model, cascade._replace(low=low, high=high)

    def __call__(self, data: SimData, n: int, diagonal: bool) -> SimData:
        """Data ``n`` steps later."""
        step = self.step
        batch = layout.batch_of(data, self.couples)
        params = layout.parameters(data, batch, self.thrusts)
        memory = layout.memory(step, data, params, batch, self.slow)
        x, u = layout.state(data, batch), layout.command(data, step.cascade.control, batch)
        wrench = layout.wrench(data, batch)
        size = math.prod(batch)
        if size < STACK_BELOW or not self.alone:
            stacked = size < STACK_BELOW
            x, memory = self._loop(
                n, params, lambda: self.coefficients(params, diagonal), x, memory, u, wrench, stacked
            )
        else:
            c = self.coefficients(params, diagonal)
            run = self._chunked if size >= 2 * CHUNK else self._whole
            x, memory = run(n, c, x, memory, u, wrench)
        moved = layout.moved(step, data, params, x, memory, n)
        if step.cascade.control == "rotor_vel" and self.bounds is not None:
            held = jnp.clip(data.controls.rotor_vel, *self.bounds)
            moved = moved.replace(controls=moved.controls.replace(rotor_vel=held))
        return moved

    def commands(self, data: SimData) -> SimData:
        """Data after the controllers of one step, nothing moved."""
        step = self.step
        batch = layout.batch_of(data, False)
        params = layout.parameters(data, batch, self.thrusts)
        memory = layout.memory(step, data, params, batch, self.slow)
        cascade = step.cascade
        c = cascade.coefficients(params)
        prepared = cascade.prepare(c, layout.command(data, cascade.control, batch))
        command, kept = cascade.run(c, prepared, layout.state(data, batch), memory.onboard, memory.step)
        after = Memory(memory.step, kept, {layout.RECORD: command})
        return data.replace(controls=layout.told(cascade, data, params, after, data.core.steps + 1))

    def motion(self, data: SimData, diagonal: bool) -> SimData:
        """Data after the dynamics of one step under the commands that controllers have left."""
        step, c = self.step, data.controls
        batch = layout.batch_of(data, self.couples)
        params = layout.parameters(data, batch, self.thrusts)
        memory = layout.memory(step, data, params, batch, False)
        u = layout.split(c.rotor_vel if step.cascade.rotors else c.attitude.cmd, batch)
        coefficients = self.coefficients(params, diagonal)
        x = layout.state(data, batch)
        x, memory = step.on_components(params, coefficients, u, x, memory, layout.wrench(data, batch))
        moved = layout.moved(step, data, params, x, memory, 0)
        return data.replace(states=moved.states, memory=moved.memory)

    def _loop(
        self,
        n: int,
        params: Any,
        coefficients: Callable[[], Any],
        x: Components,
        memory: Memory,
        u: Components,
        wrench: Any,
        stacked: bool,
    ) -> tuple[Components, Memory]:
        prepared = self.step.cascade.prepare(coefficients()[1], u)
        pack, unpack = _packing((x, memory)) if stacked else (lambda tree: tree, lambda carry: carry)

        def once(carry: Any, _: None) -> tuple[Any, None]:
            x, memory = unpack(carry)
            return pack(self.step.on_components(params, coefficients(), prepared, x, memory, wrench)), None

        carry = pack((x, memory))
        carry = once(carry, None)[0] if n == 1 else jax.lax.scan(once, carry, None, length=n)[0]
        return unpack(carry)

    def _whole(self, n: int, c: Any, x: Components, memory: Memory, u: Any, wrench: Any) -> tuple[Components, Memory]:
        return self._loop(n, None, lambda: c, x, memory, u, wrench, False)

    def _chunked(self, n: int, c: Any, x: Components, memory: Memory, u: Any, wrench: Any) -> tuple[Components, Memory]:
        size = math.prod(x[0].shape)
        count = -(-size // CHUNK)
        leaves, tree = jax.tree.flatten((c, x, memory, u, wrench))
        many = [jnp.ndim(v) > 0 for v in leaves]

        def split(v: jax.Array) -> jax.Array:
            # The last chunk is filled up with copies of the last drone.
            v = jnp.broadcast_to(v, (size,))
            return jnp.pad(v, (0, count * CHUNK - size), mode="edge").reshape(count, CHUNK)

        def one(chunk: list[jax.Array]) -> tuple[Components, Memory]:
            mine = iter(chunk)
            here = jax.tree.unflatten(tree, [next(mine) if m else v for v, m in zip(leaves, many, strict=True)])
            return self._whole(n, *here)

        moved = jax.lax.map(one, [split(v) for v, m in zip(leaves, many, strict=True) if m])
        return jax.tree.map(lambda v: v.reshape(-1)[:size] if v.ndim > 1 else v[0], moved)


def _packing(tree: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Pack the components of a tree in one array, and what is not a component beside it."""
    leaves, treedef = jax.tree.flatten(tree)
    shape, dtype = jnp.shape(leaves[0]), jnp.result_type(leaves[0])
    fits = [jnp.shape(v) == shape and jnp.result_type(v) == dtype for v in leaves]

    def pack(tree: Any) -> Any:
        leaves = jax.tree.leaves(tree)
        chosen = [jnp.broadcast_to(v, shape) for v, fit in zip(leaves, fits, strict=True) if fit]
        return jnp.stack(chosen), [v for v, fit in zip(leaves, fits, strict=True) if not fit]

    def unpack(carry: Any) -> Any:
        rows, rest = iter(tuple(carry[0])), iter(carry[1])
        return jax.tree.unflatten(treedef, [next(rows) if fit else next(rest) for fit in fits])

    return pack, unpack
