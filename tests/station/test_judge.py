"""The verdict: each rule on a trajectory made for it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from station import judge
from station.lab.truth import Truth

ACTIVATION = 0.4


def flight(end: float = 6.0, **scalars: float) -> Truth:
    """Up from 1.5 m, caught 0.7 s after activation, hovering at 1.2 m from then on."""
    t = np.arange(-1.0, end, 0.002)
    n = len(t)
    moving = t < ACTIVATION + 0.7
    pos, vel, quat = np.zeros((n, 3)), np.zeros((n, 3)), np.zeros((n, 4))
    pos[:, 2] = 1.2
    vel[moving, 2] = 2.0
    quat[:, 3] = 1.0
    base = {"release_plant_s": 0.0, "activation_plant_s": ACTIVATION, "plant_lag_max_s": 0.001}
    return Truth(t, t + 0.0003, pos, quat, vel, np.zeros((n, 3)), np.zeros((n, 4)), base | scalars)


def tilted(deg: float) -> np.ndarray:
    return np.array([math.sin(math.radians(deg) / 2), 0.0, 0.0, math.cos(math.radians(deg) / 2)])


def at(truth: Truth, begin: float, end: float) -> np.ndarray:
    return (truth.t_plant >= begin) & (truth.t_plant < end)


def test_calm_hover_after_a_throw_is_a_catch() -> None:
    verdict = judge.judge(flight())
    assert verdict.caught and verdict.reason == ""
    assert verdict.steady_s == pytest.approx(ACTIVATION + 0.7, abs=0.003)
    assert verdict.final_speed_mps == 0.0 and verdict.final_tilt_deg == 0.0
    assert verdict.min_height_m == pytest.approx(1.2)


@pytest.mark.parametrize("when", [0.1, 1.0, 2.3])
def test_below_10_cm_is_no_catch(when: float) -> None:
    truth = flight()
    truth.pos[at(truth, when, when + 0.004), 2] = 0.099
    verdict = judge.judge(truth)
    assert not verdict.caught and "below 0.10 m" in verdict.reason
    assert verdict.min_height_m == pytest.approx(0.099)


def test_landing_later_than_two_seconds_is_still_a_catch() -> None:
    truth = flight(touchdown_mps=0.4, touchdown_tilt_deg=3.0)
    truth.pos[at(truth, 4.0, 9.0), 2] = 0.0
    assert judge.judge(truth).caught


@pytest.mark.parametrize(("speed", "tilt"), [(1.5, 2.0), (0.4, 80.0)])
def test_crash_after_the_catch_is_no_catch(speed: float, tilt: float) -> None:
    verdict = judge.judge(flight(touchdown_mps=speed, touchdown_tilt_deg=tilt))
    assert not verdict.caught and "crashed" in verdict.reason


def test_never_activated_is_no_catch() -> None:
    verdict = judge.judge(flight(activation_plant_s=math.nan))
    assert not verdict.caught and "activated" in verdict.reason


def test_never_released_is_no_catch() -> None:
    verdict = judge.judge(flight(release_plant_s=math.nan))
    assert not verdict.caught and verdict.reason == "never released"


@pytest.mark.parametrize(
    ("speed", "tilt", "height", "caught"),
    [
        (0.49, 14.0, 1.0, True),
        (0.51, 0.0, 1.0, False),
        (0.0, 16.0, 1.0, False),
        (0.0, 0.0, 0.29, False),
        (0.0, 0.0, 0.31, True),
        (0.0, 0.0, 3.01, False),
        (0.0, 0.0, 2.99, True),
    ],
)
def test_every_bound_of_the_calm(speed: float, tilt: float, height: float, caught: bool) -> None:
    truth = flight()
    truth.vel[:, 0], truth.pos[:, 2], truth.quat[:] = speed, height, tilted(tilt)
    truth.vel[:, 2] = 0.0
    verdict = judge.judge(truth)
    assert verdict.caught is caught
    assert caught or "calm" in verdict.reason


@pytest.mark.parametrize(("last", "caught"), [(0.51, True), (0.48, False)])
def test_calm_must_last_half_a_second_within_two(last: float, caught: bool) -> None:
    truth = flight()
    end = ACTIVATION + judge.WITHIN_S
    truth.vel[:, 0] = 1.0
    truth.vel[at(truth, end - last, 9.0), 0] = 0.0
    truth.vel[:, 2] = 0.0
    assert judge.judge(truth).caught is caught


def test_interrupted_calm_does_not_add_up() -> None:
    truth = flight()
    truth.vel[:, 2] = 0.0
    for begin in np.arange(0.4, 2.5, 0.3):
        truth.vel[at(truth, begin, begin + 0.01), 0] = 1.0
    assert not judge.judge(truth).caught


def test_calm_before_activation_does_not_count() -> None:
    truth = flight()
    truth.vel[:, 2] = 0.0
    truth.vel[at(truth, ACTIVATION, 9.0), 0] = 1.0
    assert not judge.judge(truth).caught


@pytest.mark.parametrize("lag", [0.0051, math.nan])
def test_lagging_plant_never_counts(lag: float) -> None:
    verdict = judge.judge(flight(plant_lag_max_s=lag))
    assert not verdict.caught and "lag" in verdict.reason


def test_truth_that_is_not_finite_never_counts() -> None:
    truth = flight()
    truth.quat[-1, 0] = math.nan
    assert not judge.judge(truth).caught


def test_record_that_ends_early_never_counts() -> None:
    verdict = judge.judge(flight(end=2.0))
    assert not verdict.caught and "record ends" in verdict.reason


def test_prediction_error_is_zero_on_the_truth_whatever_the_quaternions_sign() -> None:
    truth = flight()
    error = judge.prediction_error(
        truth, ACTIVATION, truth.pos[0], -truth.quat[0], np.array([0.0, 0.0, 2.0]), np.zeros(3)
    )
    assert error == judge.PredictionError(0.0, 0.0, 0.0, 0.0)


def test_prediction_error_measures_each_part() -> None:
    truth = flight()
    truth = replace(truth, ang_vel=truth.ang_vel + np.array([0.0, 3.0, 4.0]))
    error = judge.prediction_error(
        truth, 3.0, np.array([0.3, 0.4, 1.2]), tilted(20.0), np.array([0.0, 0.2, 0.0]), np.zeros(3)
    )
    assert (error.pos_m, error.vel_mps) == (pytest.approx(0.5), pytest.approx(0.2))
    assert (error.att_deg, error.rate_rps) == (pytest.approx(20.0), pytest.approx(5.0))
