"""The timeline as text: marks, order, and what a pipe gets to see."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from station import result, timeline
from station.config import LabConfig
from station.result import BUDGETS_MS, EVENTS, Events, Run

IN_TIME = Events(
    release=0.0, speculated=0.07, confirmed=0.13, trained=0.2, uploaded=0.23, committed=0.24, activated=0.26
)


def text(renderable, width: int = 120, terminal: bool = False) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=terminal, color_system=None, legacy_windows=False).print(renderable)
    return out.getvalue()


def test_every_event_has_a_row_with_its_budget() -> None:
    rows = text(timeline.render(7, IN_TIME)).splitlines()
    for name in EVENTS:
        (row,) = [row for row in rows[1:] if name in row.split()]
        assert name not in BUDGETS_MS or f"{BUDGETS_MS[name]:.0f}" in row.split()
    assert "seed 7" in rows[0]


@pytest.mark.parametrize(
    ("name", "time_s", "mark"),
    [("activated", 0.4, "ok"), ("activated", 0.401, "late"), ("speculated", 9.0, ""), ("activated", None, "")],
)
def test_marks(name: str, time_s: float | None, mark: str) -> None:
    assert timeline.mark(name, time_s) == mark
    rows = text(timeline.render(7, {name: time_s})).splitlines()
    (row,) = [row for row in rows if name in row.split()]
    assert ("late" in row.split(), "ok" in row.split()) == (mark == "late", mark == "ok")


def test_a_bar_grows_with_time_and_never_leaves_its_column() -> None:
    lengths = [timeline._bar("recovered", t).plain.count("━") for t in (None, 0.0, 0.1, 0.3, 0.5, 5.0)]
    assert lengths == [0, 0, 6, 18, 30, 29]  # the last one ends in an arrow
    for name in EVENTS:
        for t in (None, 0.0, 0.123, 0.5, 99.0):
            assert len(timeline._bar(name, t).plain) == timeline.BAR_CELLS


def test_a_pipe_gets_each_event_once_as_a_plain_line() -> None:
    out = io.StringIO()
    with timeline.Live(7, Console(file=out, width=40)) as live:
        live.show({})
        live.show({"release": 0.0, "speculated": 0.071})
        live.show({"release": 0.0, "speculated": 0.071, "confirmed": 0.1512})
        live.show(IN_TIME, Run(seed=7, caught=False, reason="below 0.10 m at 0.81 s"))
    lines = out.getvalue().splitlines()
    assert lines[:4] == [
        "throw, seed 7",
        "  release        0.0 ms",
        "  speculated    71.0 ms",
        "  confirmed    151.2 ms   budget 150 ms   late",
    ]
    assert lines[-1] == "  seed 7: not caught: below 0.10 m at 0.81 s, budgets missed"
    assert "\x1b" not in out.getvalue() and len(lines) == 1 + 7 + 1


def test_a_terminal_sees_the_last_state() -> None:
    out = io.StringIO()
    with timeline.Live(7, Console(file=out, width=120, force_terminal=True)) as live:
        live.show(IN_TIME)
        live.show(IN_TIME, Run(seed=7, caught=True, budgets_ok=True, events_s=IN_TIME))
    assert "260.0" in out.getvalue() and "caught" in out.getvalue()


def test_a_narrow_terminal_still_shows_names_and_times() -> None:
    narrow = text(timeline.render(7, IN_TIME), width=60)
    assert "activated" in narrow and "260.0" in narrow


def test_the_verdict_says_what_it_rests_on() -> None:
    run = Run(seed=7, caught=True, budgets_ok=True, events_s=IN_TIME)
    good = text(timeline.verdict(result.summarise(7, 1.0, LabConfig(), [run])))
    assert "good" in good and "caught 1 of 1" in good and "simulated, not flown" in good and "780 us" in good
    bad = text(timeline.verdict(result.summarise(7, 0.5, LabConfig(), [Run(seed=7, caught=False)])))
    assert "fell short" in bad and "not real time" in bad
