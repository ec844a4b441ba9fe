"""The report: everything is in it, it is HTML, and it needs nothing from anywhere else."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import numpy as np
import pytest
from plotly.offline import get_plotlyjs

from station import report, result
from station.config import LabConfig
from station.lab import truth as truths
from station.lab.truth import Truth
from station.result import EVENTS, Events, Run

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """Checks that elements close in order, and collects what a test asks for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.rows: list[list[str]] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs) -> None:
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data


def events(i: int) -> Events:
    return Events(
        release=0.0,
        speculated=0.065 + 0.001 * i,
        confirmed=0.125 + 0.001 * i,
        predicted=0.126 + 0.001 * i,
        trained=0.195 + 0.004 * i,
        uploaded=0.221 + 0.004 * i,
        committed=0.226 + 0.004 * i,
        activated=0.262 + 0.02 * i,
        recovered=0.95 + 0.05 * i,
        landed=4.4,
    )


def flight(seed: int) -> Truth:
    """A throw up, a catch and a hover, roughly."""
    draw = np.random.default_rng(seed)
    t = np.arange(-1.0, 4.6, 0.002)
    up, tilt = draw.uniform(2.6, 3.4), draw.uniform(0.2, 0.7)
    height = np.where(t < 0, 1.5 - up / 6 * (1 - np.exp(6 * np.minimum(t, 0.0))), 1.5 + up * t - 4.9 * t**2)
    fall = np.clip(t - 0.6, 0.0, None)
    height = np.where(t > 0.6, 1.2 + (height[np.searchsorted(t, 0.6)] - 1.2 - fall) * np.exp(-4 * fall), height)
    height = np.where(t > 3.4, np.maximum(1.2 - 1.2 * (t - 3.4), 0.02), height)
    vel = np.zeros((len(t), 3))
    vel[:, 2] = np.gradient(height, t)
    angle = tilt * np.exp(-np.clip(t - 0.3, 0, 9) * 5)
    quat = np.stack([np.sin(angle / 2), 0 * t, 0 * t, np.cos(angle / 2)], axis=1)
    pos = np.stack([0 * t, 0 * t, height], axis=1)
    return Truth(t, t, pos, quat, vel, np.zeros((len(t), 3)), np.zeros((len(t), 4)))


def mission(count: int = 4, rate: float = 1.0) -> result.Result:
    runs = []
    for i in range(count):
        caught = i != 2
        runs.append(
            Run(
                seed=7 + i,
                caught=caught,
                reason="" if caught else "below 0.10 m at 0.81 s",
                events_s=events(i) if caught else msgspec.structs.replace(events(i), recovered=None, activated=0.42),
                budgets_ok=caught,
                plant_lag_max_s=0.0012,
                train=result.Train(wall_s=0.09, env_steps=180_000, envs=32, initial_success=0.0, success=0.97),
                upload=result.Upload(wall_s=0.02, packets=23, resent=1),
                truth=result.Truth(file=f"t-run-{i}.npz", min_height_m=0.02),
            )
        )
    return result.summarise(7, rate, LabConfig(), runs)


def curves(count: int) -> list[list[float]]:
    draw = np.random.default_rng(1)
    return [list(0.2 + 4 * np.exp(-np.arange(75) / 14) + 0.05 * draw.random(75)) for _ in range(count)]


def page(outcome: result.Result, trajectories=None, learning=None) -> str:
    count = len(outcome.runs)
    trajectories = [flight(run.seed) for run in outcome.runs] if trajectories is None else trajectories
    return report.render(outcome, trajectories, curves(count) if learning is None else learning)


def test_the_page_is_html_with_every_run_and_every_event() -> None:
    outcome = mission()
    parsed = Page(page(outcome))
    head, *body = parsed.rows
    assert set(EVENTS) <= set(head) and len(body) == 4
    for run, row in zip(outcome.runs, body, strict=True):
        assert row[0] == str(run.seed)
        for name in EVENTS:
            time_s = getattr(run.events_s, name)
            assert row[head.index(name)] == ("–" if time_s is None else f"{1e3 * time_s:.0f}")
    data = json.loads(parsed.scripts[0])
    assert [run["seed"] for run in data["runs"]] == [7, 8, 9, 10]
    assert all(list(run["events"]) == list(EVENTS) for run in data["runs"])
    assert data["budgets_ms"] == dict(result.BUDGETS_MS)


def test_nothing_is_fetched_from_anywhere() -> None:
    text = page(mission())
    parsed = Page(text)
    assert not [a for a in parsed.attributes if a[1] in ("src", "href", "action", "data")]
    own = text.replace(get_plotlyjs(), "")
    assert len(own) < len(text) and not re.search(r"https?:|//[a-z]+\.|@import|url\(|fetch\(|XMLHttp", own)


def test_the_drawn_trajectory_is_the_true_one() -> None:
    truth = flight(7)
    run = json.loads(Page(page(mission(1), [truth])).scripts[0])["runs"][0]
    t = np.array(run["t"])
    assert (np.diff(t) > 0).all() and -0.5 <= t[0] < -0.48 and 200 < len(t) < 1000
    assert np.count_nonzero((t >= 0) & (t < 0.6)) > 250  # the throw itself is drawn densely
    assert np.interp(t, truth.t_host, truth.pos[:, 2]) == pytest.approx(np.array(run["height"]), abs=1e-3)
    assert np.interp(t, truth.t_host, np.abs(truth.vel[:, 2])) == pytest.approx(np.array(run["speed"]), abs=2e-2)
    assert max(run["tilt"]) == pytest.approx(np.degrees(2 * np.arcsin(truth.quat[:, 0].max())), abs=0.01)


def test_it_says_that_nothing_was_flown_and_when_it_was_not_real_time() -> None:
    assert "simulated, not flown; radio modelled at 780 us a packet" in page(mission(1))
    assert "not real time" not in page(mission(1)).replace(get_plotlyjs(), "")
    assert "not real time (rate 0.5)" in page(mission(1, rate=0.5))


def test_a_reason_cannot_break_the_page() -> None:
    evil = "</script><b>&@DATA@ <!--"
    run = Run(seed=7, caught=False, reason=evil, events_s=Events(release=0.0))
    parsed = Page(page(result.summarise(7, 1.0, LabConfig(), [run]), [None], [[]]))
    assert parsed.rows[1][1] == f"not caught: {evil}"
    assert evil in json.loads(parsed.scripts[0])["runs"][0]["outcome"]


def test_runs_without_truth_training_or_numbers_are_still_reported() -> None:
    empty = Run(seed=7, caught=False, plant_lag_max_s=float("nan"))
    outcome = result.summarise(7, 1.0, LabConfig(), [empty])
    parsed = Page(page(outcome, [None], [[float("nan"), 1.0]]))
    data = json.loads(parsed.scripts[0])["runs"][0]
    assert data["t"] == [] and data["curve"] == [1.0] and data["learned"] == "nothing was trained"
    Page(page(result.summarise(7, 1.0, LabConfig(), []), [], []))


def test_a_trajectory_that_is_not_finite_is_drawn_with_gaps() -> None:
    truth = flight(7)
    truth.pos[2000:2100, 2] = np.nan
    text = page(mission(1), [truth])
    assert None in json.loads(Page(text).scripts[0])["runs"][0]["height"]


def test_write_takes_the_truths_from_their_files(tmp_path: Path) -> None:
    outcome = mission(2)
    truths.save(flight(7), tmp_path / "t-run-0.npz")
    (tmp_path / "t-run-1.npz").write_text("not an archive")
    report.write(outcome, [tmp_path / f"t-run-{i}.npz" for i in range(2)], curves(2), tmp_path / "report.html")
    runs = json.loads(Page((tmp_path / "report.html").read_text()).scripts[0])["runs"]
    assert len(runs[0]["t"]) > 200 and runs[1]["t"] == []


def test_every_run_needs_its_curve() -> None:
    with pytest.raises(ValueError, match="zip"):
        page(mission(2), learning=curves(1))
