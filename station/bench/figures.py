"""A figure: one number that a bench measures, and the target it must reach. Measures nothing itself."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec
from rich.table import Table


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measured number.

    Attributes:
        name: as people and files call it; ``area-of-the-figure@size``.
        value: what was measured, in ``unit``; None: not measured. Infinity stands for a result that is no number.
        unit: of ``value`` and ``target``; ``x`` is a ratio.
        op: how ``value`` must stand to ``target``.
        target: what has to be reached.
    """

    name: str
    value: float | None
    unit: str
    op: Literal["<=", ">="]
    target: float

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None: not measured."""
        if self.value is None:
            return None
        if not math.isfinite(self.value):
            return False
        return self.value <= self.target if self.op == "<=" else self.value >= self.target


def document(
    figures: Iterable[Figure], machine: Mapping[str, Any], commit: str, runs: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What ``--json`` writes.

    Args:
        figures: in the order in which they are to stand.
        machine: what they were measured on.
        commit: of the sources, with ``+`` behind when files differed from it.
        runs: the raw measurements behind the figures, by name.
    """
    rows = [
        {
            "name": figure.name,
            # JSON has no infinity; null with "met": false says that what was measured is no number.
            "value": figure.value if figure.value is not None and math.isfinite(figure.value) else None,
            "unit": figure.unit,
            "op": figure.op,
            "target": figure.target,
            "met": figure.met,
        }
        for figure in figures
    ]
    return {"machine": dict(machine), "commit": commit, "figures": rows, "runs": dict(runs or {})}


def table(figures: Iterable[Figure], title: str) -> Table:
    """The figures for people."""
    shown = Table(title=title, title_justify="left", title_style="bold", pad_edge=False, box=None)
    for heading, justify in (("figure", "left"), ("value", "right"), ("", "left"), ("target", "right"), ("", "left")):
        shown.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for figure in figures:
        verdict = {True: "[green]met[/]", False: "[red]short[/]", None: "[dim]not measured[/]"}[figure.met]
        value = "-" if figure.value is None else number(figure.value)
        shown.add_row(figure.name, value, figure.unit, f"{figure.op} {number(figure.target)}", verdict)
    return shown


def number(value: float) -> str:
    """Three digits, whatever the size."""
    if not math.isfinite(value):
        return "no number"
    if value == 0.0 or 0.01 <= abs(value) < 1e5:
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    return f"{value:.2e}"


def status(figures: Iterable[Figure]) -> int:
    """Exit status: 0 when every measured figure is met, 1 when one fell short."""
    return 1 if any(figure.met is False for figure in figures) else 0
