"""Pipelines: named stages in the order in which they act, open to be changed before they are built. Runs nothing.

A `Pipeline` is an ordered mapping from names to stages, so what works on the peer simulator's pipelines works here. A
stage is a function of all data (``SimData -> SimData``; in a reset ``(data, default_data, mask) -> data``) or a `Stage`
of `sim.effects`, which works on components and is the faster of the two.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from sim.errors import ConfigError


class Pipeline(OrderedDict[str, Any]):
    """Stages by name, in order. Names are unique."""

    def append(self, stage: Any, name: str | None = None) -> None:
        """Put ``stage`` last."""
        self._insert(len(self), stage, name)

    def prepend(self, stage: Any, name: str | None = None) -> None:
        """Put ``stage`` first."""
        self._insert(0, stage, name)

    def insert_before(self, anchor: str, stage: Any, name: str | None = None) -> None:
        """Put ``stage`` before the one called ``anchor``."""
        self._insert(self._place(anchor), stage, name)

    def insert_after(self, anchor: str, stage: Any, name: str | None = None) -> None:
        """Put ``stage`` after the one called ``anchor``."""
        self._insert(self._place(anchor) + 1, stage, name)

    def replace(self, name: str, stage: Any) -> None:
        """Put ``stage`` in the place of the one called ``name``."""
        self._place(name)
        self[name] = _callable(stage)

    def remove(self, name: str) -> None:
        """Take out the stage called ``name``."""
        self._place(name)
        del self[name]

    def _place(self, name: str) -> int:
        if name not in self:
            raise ConfigError(f"there is no stage {name!r}; there are {', '.join(self)}")
        return list(self).index(name)

    def _insert(self, place: int, stage: Any, name: str | None) -> None:
        name = name or getattr(stage, "name", None) or getattr(stage, "__name__", None)
        if not isinstance(name, str):
            raise ConfigError(f"stage {stage!r} has no name of its own; give it one")
        if name in self:
            raise ConfigError(f"there is a stage {name!r} already; give this one another name")
        items = [*self.items()]
        items.insert(place, (name, _callable(stage)))
        self.clear()
        self.update(items)


def _callable(stage: Any) -> Any:
    if not (callable(stage) or hasattr(stage, "apply")):
        raise ConfigError(f"stage is {stage!r}, but a function or a Stage of sim.effects is needed")
    return stage


def append_fn(pipeline: Pipeline, fn: Any, name: str | None = None) -> None:
    """`Pipeline.append` as a function, as are those below: the peer's spelling."""
    pipeline.append(fn, name)


def prepend_fn(pipeline: Pipeline, fn: Any, name: str | None = None) -> None:
    """See `append_fn`."""
    pipeline.prepend(fn, name)


def replace_fn(pipeline: Pipeline, fn: Any, name: str) -> None:
    """See `append_fn`."""
    pipeline.replace(name, fn)


def remove_fn(pipeline: Pipeline, name: str) -> None:
    """See `append_fn`."""
    pipeline.remove(name)


def insert_fn_before(pipeline: Pipeline, anchor: str, fn: Any, name: str | None = None) -> None:
    """See `append_fn`."""
    pipeline.insert_before(anchor, fn, name)


def insert_fn_after(pipeline: Pipeline, anchor: str, fn: Any, name: str | None = None) -> None:
    """See `append_fn`."""
    pipeline.insert_after(anchor, fn, name)
