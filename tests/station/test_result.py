"""The --json of a mission: names, nulls, budgets and the verdict."""

from __future__ import annotations

import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from station import result
from station.result import Events, Run

IN_TIME = Events(
    release=0.0,
    speculated=0.07,
    confirmed=0.13,
    predicted=0.131,
    trained=0.2,
    uploaded=0.23,
    committed=0.24,
    activated=0.26,
    recovered=0.9,
    landed=4.0,
)


def mission(runs: list[Run], rate: float = 1.0) -> result.Result:
    return result.collect(mission="throw", seed=7, rate=rate, drone="cf21B_500", loss=0.02, mismatch=0.05, runs=runs)


def runs(caught: int, dropped: int, refused: int = 0) -> list[Run]:
    outcomes = [(True, False)] * caught + [(False, False)] * dropped + [(False, True)] * refused
    return [Run(seed=7 + i, caught=c, refused=r, events_s=IN_TIME) for i, (c, r) in enumerate(outcomes)]


def test_the_names_of_the_file_are_these() -> None:
    data = json.loads(msgspec.json.encode(mission(runs(1, 0))))
    assert list(data) == "mission seed rate drone loss mismatch thrown caught refused runs".split()
    run = data["runs"][0]
    assert list(run) == (
        "seed caught refused reason budgets_ok plant_lag_max_s events_s train upload prediction_error truth".split()
    )
    assert tuple(run["events_s"]) == result.STAGES
    assert list(run["train"]) == (
        "wall_s env_steps envs parameters compiled_in_flight initial_sha256 initial_success success".split()
    )
    assert list(run["upload"]) == "wall_s packets resent crc32".split()
    assert list(run["prediction_error"]) == "pos_m vel_mps att_deg rate_rps".split()
    assert list(run["truth"]) == "file min_height_m final_speed_mps final_tilt_deg".split()


def test_the_file_reads_back_and_what_is_not_finite_is_null(tmp_path) -> None:
    lost = Run(seed=8, caught=False, truth=result.Truth(file="t-run-1.npz", min_height_m=math.nan))
    path = tmp_path / "out.json"
    result.write(mission([*runs(1, 0), lost]), path)
    back = result.read(path)
    assert back.runs[0] == mission(runs(1, 0)).runs[0]
    assert back.runs[1].truth == result.Truth(file="t-run-1.npz", min_height_m=None)
    assert "NaN" not in path.read_text()


def test_a_file_with_another_name_in_it_is_refused(tmp_path) -> None:
    path = tmp_path / "out.json"
    result.write(mission(runs(1, 0)), path)
    path.write_text(path.read_text().replace('"caught": 1', '"caugth": 1'))
    with pytest.raises(msgspec.ValidationError, match="caugth"):
        result.read(path)


@pytest.mark.parametrize("stage", list(result.BUDGETS_MS))
def test_a_stage_is_in_time_up_to_its_budget_and_not_a_millisecond_longer(stage: str) -> None:
    limit = result.BUDGETS_MS[stage] * 1e-3
    assert result.budgets_ok(msgspec.structs.replace(IN_TIME, **{stage: limit}))
    assert not result.budgets_ok(msgspec.structs.replace(IN_TIME, **{stage: limit + 0.001}))
    assert not result.budgets_ok(msgspec.structs.replace(IN_TIME, **{stage: None}))


def test_stages_without_a_budget_are_free() -> None:
    assert result.budgets_ok(msgspec.structs.replace(IN_TIME, recovered=None, landed=None, predicted=9.0))


@pytest.mark.parametrize(
    ("caught", "dropped", "refused", "status"),
    [
        (1, 0, 0, 0),
        (0, 1, 0, 1),
        (0, 0, 1, 1),
        (17, 3, 0, 0),
        (16, 4, 0, 1),
        (16, 0, 4, 1),
        (17, 0, 3, 0),
        (1, 1, 0, 1),
    ],
)
def test_the_verdict(caught: int, dropped: int, refused: int, status: int) -> None:
    outcome = mission(runs(caught, dropped, refused))
    assert result.verdict(outcome).status == status
    assert (outcome.thrown, outcome.caught, outcome.refused) == (caught + dropped + refused, caught, refused)
    assert f"caught {caught} of {caught + dropped + refused} thrown" in result.verdict(outcome).text


def test_a_refused_throw_is_not_caught_whatever_the_run_says() -> None:
    assert mission([Run(seed=7, caught=True, refused=True, events_s=IN_TIME)]).caught == 0


def test_a_run_that_never_threw_is_not_good() -> None:
    outcome = mission([*runs(19, 0), Run(seed=26, caught=False, reason="the hand never let go")])
    assert outcome.thrown == 19
    assert result.verdict(outcome).status == 1 and "1 of 20 never thrown" in result.verdict(outcome).text
    assert result.verdict(mission([])).status == 1


def test_a_slowed_mission_says_so() -> None:
    assert "not real time (rate 0.5)" in result.verdict(mission(runs(1, 0), rate=0.5)).text
    assert "real time" not in result.verdict(mission(runs(1, 0))).text


@given(st.integers(2, 300), st.data())
def test_of_several_at_least_85_percent_must_be_caught(asked: int, data: st.DataObject) -> None:
    caught = data.draw(st.integers(0, asked))
    assert (result.verdict(mission(runs(caught, asked - caught))).status == 0) == (
        caught >= math.ceil(0.85 * asked - 1e-9)
    )
