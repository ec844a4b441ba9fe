"""The live timeline of a throw and its verdict, for people. Knows no clock and no socket: it is shown events.

On a terminal the table is redrawn in place; elsewhere (a pipe, a log) each event becomes one plain line when it comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

import msgspec
from rich import box
from rich.console import Console, RenderableType
from rich.live import Live as Screen
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from station.result import BUDGETS_MS, EVENTS, Events, Result, Run
from station.result import verdict as judged

BAR_MS = 500.0
"""Time at the right end of the bars: the stages with a budget lie within it."""
BAR_CELLS = 30

Moments = Events | Mapping[str, float | None]
"""Seconds since release by event name; None or absent: has not happened."""


def moments(events: Moments) -> dict[str, float]:
    """What has happened so far, in the order of the timeline."""
    given = msgspec.structs.asdict(events) if isinstance(events, Events) else events
    return {name: t for name in EVENTS if (t := given.get(name)) is not None}


def mark(name: str, time_s: float | None) -> str:
    """Against the budget: ok or late; empty when there is none, or nothing has happened yet."""
    if time_s is None or name not in BUDGETS_MS:
        return ""
    return "ok" if 1e3 * time_s <= BUDGETS_MS[name] else "late"


def line(name: str, time_s: float) -> str:
    """One event as plain text."""
    text = f"{name:<10} {1e3 * time_s:7.1f} ms"
    if name in BUDGETS_MS:
        text += f"   budget {BUDGETS_MS[name]:3.0f} ms   {mark(name, time_s)}"
    return text


def outcome(run: Run) -> Text:
    """What became of a throw, in one line."""
    text = Text(f"seed {run.seed}: ")
    if run.caught:
        text.append("caught", style="bold green")
    else:
        text.append("refused" if run.refused else "not caught", style="bold red")
        text.append(f": {run.reason}" if run.reason else "")
    text.append(
        ", every budget kept" if run.budgets_ok else ", budgets missed", style="" if run.budgets_ok else "yellow"
    )
    return text


def render(seed: int, events: Moments, run: Run | None = None) -> RenderableType:
    """The whole timeline, one row an event; with ``run`` also what became of the throw."""
    done = moments(events)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption_justify="left")
    table.title, table.title_justify = Text(f"Throw, seed {seed}: ms after release", style="bold"), "left"
    for heading, justify in (("", "left"), ("event", "left"), ("ms", "right"), ("budget", "right")):
        table.add_column(heading, justify=justify, no_wrap=True)
    table.add_column(_cropped(f"0{BAR_MS:>{BAR_CELLS - 1}.0f}"))
    for name in EVENTS:
        table.add_row(*_row(name, done.get(name)))
    if run is not None:
        table.caption = outcome(run)
    elif not done:
        table.caption = Text("waiting for the hand to let go", style="dim")
    return table


def verdict(result: Result) -> RenderableType:
    """The verdict on the whole mission, framed."""
    said = judged(result)
    body = Text(said.text + "\n", style="bold")
    body.append(
        f"{result.drone}, {100 * result.loss:g} % packet loss, parameters within {100 * result.mismatch:g} %; "
        "simulated, not flown; radio modelled at 780 us a packet",
        style="not bold dim",
    )
    style = "green" if said.status == 0 else "red"
    return Panel(body, title="good" if said.status == 0 else "fell short", border_style=style, expand=False)


class Live:
    """The timeline of one throw on a console, from ``with`` to its end."""

    def __init__(self, seed: int, console: Console) -> None:
        self._seed = seed
        self._console = console
        self._said: set[str] = set()
        self._screen: Screen | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._screen = Screen(render(self._seed, {}), console=self._console, refresh_per_second=12)
            self._screen.start()
        else:
            self._print(f"throw, seed {self._seed}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._screen is not None:
            self._screen.stop()

    def show(self, events: Moments, run: Run | None = None) -> None:
        """Bring the console up to these events; ``run`` once the throw has been judged."""
        if self._screen is not None:
            self._screen.update(render(self._seed, events, run))
            return
        for name, time_s in moments(events).items():
            if name not in self._said:
                self._said.add(name)
                self._print("  " + line(name, time_s))
        if run is not None:
            self._print("  " + outcome(run).plain)

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def _row(name: str, time_s: float | None) -> tuple[RenderableType, ...]:
    budget = f"{BUDGETS_MS[name]:.0f}" if name in BUDGETS_MS else ""
    if time_s is None:
        return Text("·", style="dim"), Text(name, style="dim"), "", Text(budget, style="dim"), _bar(name, None)
    late = mark(name, time_s) == "late"
    sign = Text("late", style="bold red") if late else Text("ok" if budget else "•", style="green")
    return sign, name, Text(f"{1e3 * time_s:.1f}", style="red" if late else ""), budget, _bar(name, time_s)


def _bar(name: str, time_s: float | None) -> Text:
    """Time as a bar with the budget as a tick; times beyond its end get an arrow."""
    cells = [" "] * BAR_CELLS
    budget = BUDGETS_MS.get(name)
    end = 0 if time_s is None else round(1e3 * time_s / BAR_MS * BAR_CELLS)
    cells[: min(end, BAR_CELLS)] = ["━"] * min(end, BAR_CELLS)
    if end > BAR_CELLS:
        cells[-1] = "→"
    bar = _cropped("".join(cells), style="red" if mark(name, time_s) == "late" else "cyan")
    if budget is not None:
        at = min(round(budget / BAR_MS * BAR_CELLS), BAR_CELLS - 1)
        bar.plain = bar.plain[:at] + "┃" + bar.plain[at + 1 :]
        bar.stylize("bold white" if end <= at else "bold yellow", at, at + 1)
    return bar


def _cropped(text: str, style: str = "") -> Text:
    """Text that loses its right end, rather than its one line, where a terminal is narrow."""
    return Text(text, style=style, no_wrap=True, overflow="crop")
