"""Figures: what counts as met, what a report says, and what the bench makes of its raw measurements."""

from __future__ import annotations

import io
import json
import math

import msgspec
import numpy as np
import pytest
from rich.console import Console

from station.bench import agreement, cases, chart, figures, sim
from station.bench.figures import Figure


def figure(value: float | None, op: str = ">=", target: float = 8.0) -> Figure:
    return Figure(name="speed@1", value=value, unit="x", op=op, target=target)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "op", "met"),
    [
        (8.0, ">=", True),
        (7.99, ">=", False),
        (8.0, "<=", True),
        (8.01, "<=", False),
        (None, ">=", None),
        (None, "<=", None),
        (math.inf, ">=", False),
        (math.inf, "<=", False),
        (math.nan, "<=", False),
    ],
)
def test_a_figure_is_met_at_its_target_and_only_when_it_is_a_number(value, op, met) -> None:
    assert figure(value, op).met is met


def test_the_report_has_every_figure_with_null_for_what_was_not_measured() -> None:
    rows = [figure(9.0), figure(None), figure(math.inf)]
    report = figures.document(rows, {"name": "m"}, "abc", {"speed@1": {"x": math.inf}})
    read = json.loads(msgspec.json.encode(report))
    assert set(read) == {"machine", "commit", "figures", "runs"}
    assert [set(row) for row in read["figures"]] == [{"name", "value", "unit", "op", "target", "met"}] * 3
    assert [(row["value"], row["met"]) for row in read["figures"]] == [(9.0, True), (None, None), (None, False)]


def test_one_figure_that_falls_short_decides_the_status_and_an_unmeasured_one_does_not() -> None:
    assert figures.status([figure(9.0), figure(None)]) == 0
    assert figures.status([figure(9.0), figure(7.0)]) == 1
    assert figures.status([figure(math.inf)]) == 1


def test_the_table_names_figure_value_and_verdict() -> None:
    text = io.StringIO()
    Console(file=text, width=100).print(figures.table([figure(7.0), figure(None)], "title"))
    short, missing = text.getvalue().splitlines()[-2:]
    assert short.split() == ["speed@1", "7", "x", ">=", "8", "short"]
    assert missing.split() == ["speed@1", "-", "x", ">=", "8", "not", "measured"]


def raw(ours: list[float], peer: list[float], flagged: list[float], first: float = 1.0) -> dict:
    def one(rounds: list[float], first_s: float) -> dict:
        return {"rounds_s": rounds, "median_s": sorted(rounds)[1], "min_s": min(rounds), "first_s": first_s}

    return {
        "together": False, "ours": one(ours, first), "peer": one(peer, 2.0), "peer, our flags": one(flagged, 4.0)
    }  # fmt: skip


def test_the_peers_better_run_counts_and_rounds_are_compared_pairwise() -> None:
    # The machine slows down by 3 in the last round, for everybody: pairs do not notice.
    run = raw([1.0, 1.0, 3.0], [20.0, 20.0, 60.0], [10.0, 10.0, 30.0])
    assert sim.ratio(run) == pytest.approx(10.0)


def test_figures_are_those_of_the_area_and_carry_what_was_measured() -> None:
    runs = {
        "rotor_vel@1": raw([1.0, 1.0, 1.0], [9.0, 9.0, 9.0], [10.0, 10.0, 10.0]),
        "dispatch@1": raw([1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [4.0, 4.0, 4.0]),
        "state@32": {"together": False, "failure": "ours: no such level"},
    }
    memory = {"ours": 100.0, "peer": 400.0, "peer, our flags": 200.0}
    apart = [agreement.Apart("a", 1e-12, 1e-8), agreement.Apart("b", 1e-11, 1e-9)]
    found = {f.name: f for f in sim.figures_of(runs, memory, apart)}
    assert len(found) == 31 and list(found)[-4:] == ["memory", "compile", "agree_first10", "agree_400"]
    assert found["rotor_vel@1"].value == pytest.approx(9.0)
    assert found["dispatch@1"].value == pytest.approx(0.5)
    assert found["state@32"].met is False
    assert found["state@1"].met is None
    assert found["memory"].value == pytest.approx(0.5)
    assert found["compile"].value == pytest.approx(2.0 / 4.0)
    assert (found["agree_first10"].value, found["agree_400"].value) == (1e-11, 1e-8)


def test_compilation_side_by_side_says_nothing_about_compile_time() -> None:
    run = raw([1.0, 1.0, 1.0], [9.0, 9.0, 9.0], [10.0, 10.0, 10.0])
    assert sim.compile_ratio({"a": {**run, "together": True}}) is None
    assert sim.compile_ratio({}) is None


def test_targets_are_those_agreed_on() -> None:
    targets = {case.name: (case.op, case.target) for case in cases.speed()}
    assert {n: t for n, t in targets.items() if t == (">=", 12.0)}.keys() == {
        "rotor_vel@1024", "rotor_vel@16384", "rotor_vel@65536"
    }  # fmt: skip
    assert targets["dispatch@1"] == ("<=", 1.0)
    assert all(t == (">=", 8.0) for n, t in targets.items() if n not in {"dispatch@1"} and t[1] != 12.0)
    assert set(cases.QUICK) <= set(targets)


def test_all_that_goes_together_is_compared_and_nothing_else() -> None:
    titles = [cases.title(spec) for spec in cases.agreement()]
    assert len(titles) == len(set(titles)) == (4 * (5 + 3 * 2) + 3 * 2) * 3
    assert not [t for t in titles if t.startswith("hb_x500-first_principles")]
    assert {cases.title(spec) for spec in cases.quick_agreement()} < set(titles)
    assert len(cases.quick_agreement()) == 4


def flight(scale: float = 1.0) -> dict:
    rng = np.random.default_rng(0)
    quat = rng.normal(size=(80, 4, 1, 4))
    made = {key: rng.normal(size=(80, 4, 1, 3)) for key in ("pos", "vel", "ang_vel")}
    return made | {
        "quat": quat / np.linalg.norm(quat, axis=-1, keepdims=True),
        "rotor_vel": 1e4 * np.ones((80, 4, 1, 4)),
    }


def test_equal_flights_are_not_apart_and_the_sign_of_a_quaternion_says_nothing() -> None:
    a, b = flight(), flight()
    a["quat"] = -a["quat"]
    result = agreement.apart("t", "attitude", a, b)
    assert (result.first10, result.all400) == (0.0, 0.0)


def test_errors_are_relative_to_large_values_and_late_ones_are_not_in_the_first_ten_steps() -> None:
    a, b = flight(), flight()
    a["rotor_vel"] = a["rotor_vel"].copy()
    a["rotor_vel"][2] += 1.0
    result = agreement.apart("t", "attitude", a, b)
    assert result.first10 == 0.0
    assert result.all400 == pytest.approx(1e-4)
    assert agreement.apart("t", "state", a, b).all400 == pytest.approx(1e-5)  # its tolerance is ten times wider


def test_what_is_not_finite_or_of_another_shape_is_infinitely_apart() -> None:
    a, b = flight(), flight()
    a["vel"] = np.full_like(a["vel"], np.nan)
    assert agreement.apart("t", "attitude", a, b).all400 == math.inf
    assert agreement.error(np.zeros(3), np.zeros(4)) == math.inf
    assert agreement.quat_error(np.zeros((2, 4)), np.zeros((3, 4))) == math.inf


def test_the_plot_is_one_page_with_a_panel_a_kind(tmp_path) -> None:
    runs = {
        "rotor_vel@1": raw([1.0] * 3, [2.0] * 3, [3.0] * 3),
        "rotor_vel@32": raw([1.0] * 3, [2.0] * 3, [3.0] * 3),
        "gradient10@1": raw([1.0] * 3, [2.0] * 3, [3.0] * 3),
        "swarm@64x64": raw([1.0] * 3, [2.0] * 3, [3.0] * 3),
        "memory": {"ours": 1.0},
        "state@1": {"together": False, "failure": "no"},
    }
    report = figures.document([], {"cpu": "c", "cores": 2}, "abcdef", runs)
    assert chart.rates(report) == {
        "rotor_vel": {
            1: {"ours": 50.0, "peer": 25.0, "peer, our flags": 50.0 / 3.0},
            32: {"ours": 1600.0, "peer": 800.0, "peer, our flags": 1600.0 / 3.0},
        },
        "gradient10": {1: {"ours": 10.0, "peer": 5.0, "peer, our flags": 10.0 / 3.0}},
    }
    chart.write(report, tmp_path / "plot.html")
    page = (tmp_path / "plot.html").read_text(encoding="utf-8")
    assert "rotor_vel" in page and "gradient10" in page and "<script src=" not in page
