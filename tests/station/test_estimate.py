"""The filter's errors are small and as large as it says; outliers, flips, gaps and losses do what they should."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from station import estimate
from tests.station import motions

NOISE = estimate.Noise(0.0003, 0.0035)
DT = 0.005


def figure_eight(seconds, dt=DT):
    """Times, positions, attitudes, velocities and body rates of an agile flight."""
    t = np.arange(round(seconds / dt)) * dt
    pos = np.stack([np.sin(2 * t), np.sin(4 * t) / 2, 1.2 + 0.3 * np.sin(3 * t)], -1)
    vel = np.stack([2 * np.cos(2 * t), 2 * np.cos(4 * t), 0.9 * np.cos(3 * t)], -1)
    rate = np.stack([3 * np.sin(5 * t), 3 * np.cos(4 * t), 2 * np.sin(2 * t)], -1)
    quat = [np.array([0.0, 0.0, 0.0, 1.0])]
    for now in t[:-1]:
        middle = now + dt / 2
        mid = np.array([3 * np.sin(5 * middle), 3 * np.cos(4 * middle), 2 * np.sin(2 * middle)])
        quat.append(motions.multiply(quat[-1], motions.exp(dt * mid)))
    return t, pos, np.array(quat), vel, rate


def measure(pos, quat, seed, outlier=0.0, flip=0.0):
    rng = np.random.default_rng(seed)
    n = len(pos)
    pos = pos + 0.0003 * rng.standard_normal((n, 3))
    quat = motions.multiply(quat, motions.exp(0.0035 * rng.standard_normal((n, 3))))
    bad = rng.uniform(size=n) < outlier
    pos[bad] += rng.choice([-0.05, 0.05], (bad.sum(), 3))
    turned = rng.uniform(size=n) < flip
    quat[turned] = motions.multiply(quat[turned], np.array([1.0, 0.0, 0.0, 0.0]))
    quat[rng.uniform(size=n) < 0.5] *= -1.0
    return pos, quat, bad, turned


def follow(t, pos, quat, state=None):
    """Filter and innovation after each frame."""
    state = state or estimate.init(NOISE)
    for when, p, q in zip(t.tolist(), pos.tolist(), quat.tolist(), strict=True):
        state, innovation = estimate.step(state, when, tuple(p), tuple(q))
        yield state, innovation


def test_velocity_and_rate_of_an_agile_flight():
    t, pos, quat, vel, rate = figure_eight(4.0)
    states = [state for state, _ in follow(t, *measure(pos, quat, 1)[:2])][100:]
    speed = np.array([state.vel for state in states]) - vel[100:]
    turn = np.array([state.ang_vel for state in states]) - rate[100:]
    assert np.sqrt((speed**2).mean()) < 0.04
    assert np.sqrt((turn**2).mean()) < 0.35


def test_covariance_says_what_the_errors_are():
    """Normalised errors of position and velocity, attitude and rate: on average their dimension, within a factor."""
    t, pos, quat, vel, rate = figure_eight(4.0)
    nees = []
    for i, (state, _) in enumerate(follow(t, *measure(pos, quat, 2)[:2])):
        if i >= 100 and i % 5 == 0:
            at = estimate.predict_to(state, t[i])
            turn = estimate.quaternion.difference(at.quat, tuple(quat[i].tolist()))
            error = np.concatenate([pos[i] - at.pos, turn, vel[i] - at.vel, rate[i] - at.ang_vel])
            nees.append(error @ np.linalg.solve(at.cov, error))
    assert 4.0 < np.mean(nees) < 18.0


def test_outliers_and_flips_change_nothing():
    t, pos, quat, vel, _ = figure_eight(4.0)
    spoilt_pos, spoilt_quat, bad, turned = measure(pos, quat, 3, outlier=0.01, flip=0.01)
    assert bad[100:].sum() > 3 and turned[100:].sum() > 3
    errors, refused = [], 0
    for i, (state, innovation) in enumerate(follow(t, spoilt_pos, spoilt_quat)):
        if i < 100:
            continue
        assert innovation.position_used != bad[i]
        if not bad[i]:
            assert innovation.flip == turned[i]
            refused += not innovation.attitude_used and not turned[i]
        errors.append(np.subtract(state.vel, vel[i]))
    assert refused == 0
    assert np.sqrt(np.mean(np.square(errors))) < 0.045


def test_start_waits_for_frames_that_agree():
    t, pos, quat, vel, _ = figure_eight(0.2)
    pos, quat, _, _ = measure(pos, quat, 4)
    pos[3] += 3.0
    states = [state for state, _ in follow(t, pos, quat)]
    assert not states[8].started and states[12].started
    assert max(math.dist(state.vel, v) for state, v in zip(states[20:], vel[20:], strict=True)) < 0.5


def test_a_hit_is_followed_after_three_frames():
    """Ten metres a second within one frame: refused as an outlier at first, then believed."""
    t = np.arange(120) * DT
    pos = np.zeros((120, 3))
    pos[60:, 0] = 10.0 * (t[60:] - t[59])
    quat = np.tile([0.0, 0.0, 0.0, 1.0], (120, 1))
    states = [state for state, _ in follow(t, *measure(pos, quat, 5)[:2])]
    assert math.dist(states[64].pos, pos[64]) < 0.005
    assert abs(states[75].vel[0] - 10.0) < 0.5


def test_gap_coasts_then_is_lost_then_starts_anew_far_away():
    t, pos, quat, _, _ = figure_eight(1.0)
    pos, quat, _, _ = measure(pos, quat, 6)
    *_, (state, _) = follow(t, pos, quat)
    end = t[-1]
    assert [estimate.mode(state, end + gap) for gap in (0.0, 0.06, 0.16)] == ["TRACK", "COAST", "LOST"]
    later = end + 1.0 + np.arange(20) * DT
    far = np.array([2.0, -2.0, 0.5]) + 0.0003 * np.random.default_rng(0).standard_normal((20, 3))
    *_, (state, _) = follow(later, far, quat[:20], state)
    assert estimate.mode(state, later[-1]) == "TRACK"
    assert math.dist(state.pos, (2.0, -2.0, 0.5)) < 0.002
    assert math.hypot(*state.vel) < 0.2


def test_a_pose_that_moved_away_at_once_is_refused_until_the_old_one_is_lost():
    t = np.arange(100) * DT
    pos = np.zeros((100, 3))
    pos[50:] = (1.5, 0.0, 0.0)
    seen = [
        estimate.mode(state, when)
        for (state, _), when in zip(follow(t, *measure(pos, np.tile([0, 0, 0, 1.0], (100, 1)), 7)[:2]), t, strict=True)
    ]
    assert seen[49] == "TRACK" and "COAST" in seen[50:] and "INIT" in seen[50:]
    assert seen[-1] == "TRACK"


def test_a_lasting_flip_is_not_believed_for_150_ms():
    t = np.arange(120) * DT
    quat = np.tile([0.0, 0.0, 0.0, 1.0], (120, 1))
    quat[60:] = (1.0, 0.0, 0.0, 0.0)
    states = [state for state, _ in follow(t, *measure(np.zeros((120, 3)), quat, 8)[:2])]
    tilt = [abs(math.hypot(*estimate.quaternion.log(state.quat))) for state in states]
    assert max(tilt[20:89]) < 0.25
    assert tilt[-1] > 3.0


def test_old_and_repeated_stamps_change_nothing():
    t, pos, quat, _, _ = figure_eight(0.5)
    *_, (state, _) = follow(t, pos, quat)
    for stamp in (t[-1], t[-1] - 0.1, t[0]):
        same, innovation = estimate.step(state, float(stamp), (9.0, 9.0, 9.0), (1.0, 0.0, 0.0, 0.0))
        assert same == state and not innovation.position_used


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(2e-4, 0.12), min_size=30, max_size=60), st.integers(0, 1000))
def test_any_frame_times_keep_state_finite_and_covariance_positive(gaps, seed):
    t = np.cumsum(gaps)
    rng = np.random.default_rng(seed)
    pos = rng.normal(size=(len(t), 3))
    quat = rng.normal(size=(len(t), 4))
    quat /= np.linalg.norm(quat, axis=1, keepdims=True)
    for state, _ in follow(t, pos, quat):
        at = estimate.predict_to(state, state.t + 0.1)
        assert np.isfinite([*at.pos, *at.quat, *at.vel, *at.ang_vel]).all()
        assert np.linalg.eigvalsh(at.cov).min() > -1e-12 * np.abs(at.cov).max()
        assert abs(math.hypot(*at.quat) - 1.0) < 1e-9


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_prediction_follows_the_motion(sign):
    t, pos, quat, _, _ = figure_eight(1.0)
    *_, (state, _) = follow(t[:-2], pos[:-2], sign * quat[:-2])
    at = estimate.predict_to(state, t[-1])
    assert math.dist(at.pos, pos[-1]) < 0.002
    assert motions.angle_between(at.quat, quat[-1]) < 0.01
