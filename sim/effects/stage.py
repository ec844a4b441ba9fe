"""One stage of a step: its name, its place and its pure functions of components. Holds no physics.

A stage acts at one of three places: on the command before the dynamics, as a wrench inside the derivative (so that an
integrator sees it at each of its evaluations), or on the state after integration. A stage with parameters of its own
finds them, traced like all others, in ``params.effects[stage.name]``; a step refuses parameters that no stage uses.

A stage with a memory (a filter's state, a charge, a timer) has two more functions: ``start`` makes the memory and
``advance`` moves it on, once a step and before anything acts. Memory is passed in and handed back, never kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp

from sim.errors import ConfigError
from sim.state import Components

PLACES = ("command", "wrench", "state")


@dataclass(frozen=True)
class Stage:
    """One stage of a step.

    Attributes:
        name: unique in a step.
        place: ``command``: ``apply(params, x, command) -> command``;
            ``wrench``: ``apply(params, x, command) -> (force 3 world N, torque 3 body Nm)``;
            ``state``: ``apply(params, x, dt) -> x`` (17).
        apply: the function, on components (see `sim.state`). With a memory it takes that as last argument.
        start: ``(params, batch, dtype, key) -> memory``: a pytree of arrays of shape ``batch`` and of random keys.
        advance: ``(params, memory, x, command, dt) -> memory``.
        default: parameters to use where none are given; None: it has none, or they must be given.
        couples: the drones of a world feel each other; their axis must be the last of the batch.
    """

    name: str
    place: Literal["command", "wrench", "state"]
    apply: Callable[..., Any]
    start: Callable[..., Any] | None = None
    advance: Callable[..., Any] | None = None
    default: Any = field(default=None, compare=False)
    couples: bool = False


def own(params: Any, name: str) -> Any:
    """The parameters of the stage called ``name``.

    Raises:
        ConfigError: there are none.
    """
    if name not in params.effects:
        raise ConfigError(f"stage {name!r} needs params.effects[{name!r}], but there are {sorted(params.effects)}")
    return params.effects[name]


def need(params: Any, field: str, name: str) -> Any:
    """A parameter of the dynamics that the stage called ``name`` builds on.

    Raises:
        ConfigError: the dynamics has no such parameter.
    """
    value = getattr(params, field, None)
    if value is None:
        raise ConfigError(
            f"stage {name!r} needs {field!r}, which {type(params).__name__} does not have; choose dynamics that has it"
        )
    return value


def _is_vector(node: Any) -> bool:
    return isinstance(node, tuple) and all(isinstance(v, float) for v in node)


def defaults(stages: Sequence[Stage], dtype: Any = None) -> dict[str, Any]:
    """Parameters of those of ``stages`` that have defaults, for ``params.effects``."""
    dtype = dtype or jax.dtypes.canonicalize_dtype(float)
    return {
        stage.name: jax.tree.map(lambda v: jnp.asarray(v, dtype), stage.default, is_leaf=_is_vector)
        for stage in stages
        if stage.default is not None
    }


def start(
    stages: Sequence[Stage], params: Any, batch: tuple[int, ...], key: jax.Array, dtype: Any = None
) -> dict[str, Any]:
    """Memories of those of ``stages`` that have one, by name; random ones get keys of their own from ``key``."""
    dtype = dtype or jax.dtypes.canonicalize_dtype(float)
    keeping = [stage for stage in stages if stage.start is not None]
    keys = jax.random.split(key, max(len(keeping), 1))
    return {s.name: s.start(params, batch, dtype, k) for s, k in zip(keeping, keys, strict=False)}


def advance(
    stages: Sequence[Stage], params: Any, memory: Mapping[str, Any], x: Components, command: Components, dt: float
) -> dict[str, Any]:
    """Memories one step of ``dt`` seconds later."""
    after = dict(memory)
    for stage in stages:
        if stage.advance is not None:
            after[stage.name] = stage.advance(params, memory[stage.name], x, command, dt)
    return after


def remembered(stage: Stage, memory: Mapping[str, Any]) -> tuple[Any, ...]:
    """The last arguments of ``stage.apply``: its memory, if it has one."""
    return (memory[stage.name],) if stage.start is not None else ()
