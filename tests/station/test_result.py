"""The --json of a mission: names, nulls, budgets and the verdict."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from station import judge, messages, result
from station.config import LabConfig
from station.lab.truth import Truth as Trajectory
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
    return result.summarise(7, rate, LabConfig(), runs)


def runs(caught: int, dropped: int, refused: int = 0) -> list[Run]:
    outcomes = [(True, False)] * caught + [(False, False)] * dropped + [(False, True)] * refused
    return [
        Run(seed=7 + i, caught=c, refused=r, events_s=IN_TIME, budgets_ok=True) for i, (c, r) in enumerate(outcomes)
    ]


def heard(**changes) -> SimpleNamespace:
    """Everything went well, on a host clock that stood at 100 s at the release."""
    image = messages.PolicyImage(
        t=100.2,
        drone="cf1",
        job=1,
        policy=9,
        arch=1,
        halves=b"\0" * 552,
        crc=0x1F,
        expected=(0.0,) * 4,
        tolerance=0.01,
        target_m=1.2,
        success=0.97,
        initial_success=0.0,
        initial_sha256="ab",
        initial_std=(1.0, 1.0, 1.0),
        curve=(3.0, 1.0),
        wall_s=0.11,
        env_steps=180_000,
        envs=32,
        parameters=276,
        compiled_in_flight=False,
        sha256="cd",
    )
    upload = messages.UploadStatus(t=100.24, drone="cf1", policy=9, state="READY", packets=23, resent=1, wall_s=0.02)
    events = {name: 100.0 + t for name, t in msgspec.structs.asdict(IN_TIME).items() if name != "release"}
    well = {"events": events, "image": image, "upload": upload, "outcome": "", "refused": False}
    return SimpleNamespace(**well | changes)


def truth(**scalars: float) -> Trajectory:
    rows = np.zeros(1)
    return Trajectory(
        rows, rows, *(np.zeros((1, n)) for n in (3, 4, 3, 3, 4)), scalars={"plant_lag_max_s": 0.001} | scalars
    )


CAUGHT = judge.Verdict(True, "", 0.9, 0.1, 2.0, 0.6)
DROPPED = judge.Verdict(False, "below 0.10 m at 0.81 s", 0.02, 3.0, 80.0, None)
OFF = judge.PredictionError(0.01, 0.05, 1.5, 0.2)


def test_a_run_is_assembled_from_the_truth_and_from_what_was_heard() -> None:
    run = result.assemble(8, "t-run-1.npz", truth(), CAUGHT, 100.0, heard(), OFF)
    assert run.caught and run.budgets_ok and not run.refused and run.seed == 8
    assert msgspec.structs.asdict(run.events_s) == pytest.approx(msgspec.structs.asdict(IN_TIME))
    assert run.train == result.Train(
        wall_s=0.11,
        env_steps=180_000,
        envs=32,
        parameters=276,
        compiled_in_flight=False,
        initial_sha256="ab",
        initial_success=0.0,
        success=0.97,
    )
    assert run.upload == result.Upload(wall_s=0.02, packets=23, resent=1, crc32="0000001f")
    assert run.prediction_error == result.PredictionError(pos_m=0.01, vel_mps=0.05, att_deg=1.5, rate_rps=0.2)
    assert run.truth.file == "t-run-1.npz" and run.truth.min_height_m == 0.9


def test_what_never_happened_is_null() -> None:
    silent = heard(events={"speculated": 100.07}, image=None, upload=None, outcome="no image in time")
    run = result.assemble(7, "t.npz", truth(), DROPPED, 100.0, silent, None)
    assert not run.caught and not run.budgets_ok and run.reason == f"{DROPPED.reason} (no image in time)"
    assert run.events_s == Events(release=0.0, speculated=run.events_s.speculated)
    assert run.train == result.Train() and run.upload == result.Upload()
    assert run.prediction_error == result.PredictionError()


@pytest.mark.parametrize("released", [None, math.nan])
def test_without_a_release_there_are_no_events(released: float | None) -> None:
    assert result.assemble(7, "t.npz", truth(), DROPPED, released, heard(), None).events_s == Events()


def test_a_refused_throw_is_not_caught_whatever_the_truth_says() -> None:
    run = result.assemble(7, "t.npz", truth(), CAUGHT, 100.0, heard(refused=True, outcome="no room to stop"), None)
    assert run.refused and not run.caught and run.reason == "no room to stop"


def test_the_names_of_the_file_are_these() -> None:
    data = json.loads(msgspec.json.encode(mission(runs(1, 0))))
    assert list(data) == "mission seed rate drone loss mismatch thrown caught refused runs".split()
    run = data["runs"][0]
    assert list(run) == (
        "seed caught refused reason budgets_ok plant_lag_max_s events_s train upload prediction_error truth".split()
    )
    assert tuple(run["events_s"]) == result.EVENTS
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
