"""The scripted hand: ranges, continuity, sameness for a seed, and feints that stay in the hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from station import config
from station.lab import hand
from station.lab import motion as motions

RANGES = config.Hand()
FREE = np.array([0.3, -0.2, -11.2, 1.0, -2.0, 0.5])
SEEDS = range(200)


def thrown(seed: int, t_open: float = 1.5, ranges: config.Hand = RANGES) -> tuple[hand.Script, motions.Motion]:
    script = hand.draw(ranges, np.random.default_rng(seed))
    return script, hand.throw(script, hand.carry(script), t_open, FREE)


def rotation(quat: np.ndarray) -> np.ndarray:
    x, y, z, w = np.moveaxis(quat, -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(rows), (0, 1), (-2, -1))


def test_release_states_fill_their_ranges() -> None:
    scripts = [thrown(seed)[0] for seed in SEEDS]
    height = np.array([s.release.pos[2] for s in scripts])
    up = np.array([s.release.vel[2] for s in scripts])
    sideways = np.array([np.hypot(*s.release.vel[:2]) for s in scripts])
    tilt = np.array([math.degrees(math.acos(rotation(s.release.quat)[2, 2])) for s in scripts])
    spin = np.array([s.release.ang_vel for s in scripts])
    for values, low, high in ((height, 1.3, 1.8), (up, 2.5, 3.5), (sideways, 0.0, 1.0), (tilt, 0.0, 40.0)):
        assert low <= values.min() < low + 0.15 * (high - low)
        assert high - 0.15 * (high - low) < values.max() <= high
    assert 3.7 < np.abs(spin).max() <= 4.0
    assert 0.2 < np.mean([s.feint for s in scripts]) < 0.4


def test_last_moment_in_the_hand_is_exactly_the_drawn_release() -> None:
    for seed in SEEDS:
        script, motion = thrown(seed)
        pos, quat, vel, ang_vel, acc = (x[0] for x in motions.evaluate(motion, np.array([motion.t_release])))
        np.testing.assert_allclose(pos, script.release.pos, atol=1e-9)
        np.testing.assert_allclose(vel, script.release.vel, atol=1e-9)
        np.testing.assert_allclose(ang_vel, script.release.ang_vel, atol=1e-9)
        np.testing.assert_allclose(acc, FREE[:3], atol=1e-7)
        assert abs(float(quat @ script.release.quat)) == pytest.approx(1.0, abs=1e-12)


def test_release_falls_on_the_grid_of_the_plant() -> None:
    for seed in SEEDS:
        t = thrown(seed, t_open=1.234)[1].t_release
        assert t / hand.TICK_S == pytest.approx(round(t / hand.TICK_S), abs=1e-6)


@pytest.mark.parametrize("seed", range(0, 200, 10))
def test_value_rate_and_acceleration_agree_where_segments_meet(seed: int) -> None:
    motion = thrown(seed)[1]
    for before, after in zip(motion.segments, motion.segments[1:], strict=False):
        assert before.t1 == after.t0
        one, other = (
            motions.track(motions.Motion(motion.quat, (s,)), np.array([after.t0]))[0] for s in (before, after)
        )
        np.testing.assert_allclose(one[0], other[0], atol=1e-10)
        np.testing.assert_allclose(one[1], other[1], atol=1e-9)
        np.testing.assert_allclose(one[2], other[2], atol=1e-7)


@pytest.mark.parametrize("seed", range(0, 200, 10))
def test_rates_are_the_derivatives_of_the_pose(seed: int) -> None:
    h = 1e-4
    motion = thrown(seed)[1]
    t = np.arange(0.5, motion.t_release - 2 * h, 0.004)
    middle, later, sooner = (motions.evaluate(motion, t + shift) for shift in (0.0, h, -h))
    np.testing.assert_allclose((later[0] - sooner[0]) / (2 * h), middle[2], atol=2e-4)
    np.testing.assert_allclose((later[2] - sooner[2]) / (2 * h), middle[4], atol=2e-2)
    turned = np.swapaxes(rotation(sooner[1]), -1, -2) @ rotation(later[1])
    skew = (turned - np.swapaxes(turned, -1, -2)) / 2 / (2 * h)
    rate = np.stack([skew[:, 2, 1], skew[:, 0, 2], skew[:, 1, 0]], axis=-1)
    np.testing.assert_allclose(rate, middle[3], atol=2e-3)
    np.testing.assert_allclose(np.linalg.norm(middle[1], axis=1), 1.0, atol=1e-12)
    # Body rate without jumps: steps of 4 ms change it by no more than a hand's angular acceleration could.
    assert np.abs(np.diff(middle[3], axis=0)).max() < 0.004 * 150.0


def test_hand_moves_like_a_hand() -> None:
    for seed in SEEDS:
        motion = thrown(seed)[1]
        pos, _, _, ang_vel, acc = motions.evaluate(motion, np.arange(0.0, motion.t_release, 0.002))
        assert pos[:, 2].min() > 0.5
        assert np.abs(pos[:, :2]).max() < 1.5
        assert np.abs(acc).max() < 40.0
        assert np.abs(ang_vel).max() < 8.0


def test_same_seed_same_hand_whenever_the_window_opens() -> None:
    for seed in range(20):
        (one, early), (other, late) = thrown(seed, 1.0), thrown(seed, 7.0)
        assert early.t_release - 1.0 == pytest.approx(late.t_release - 7.0, abs=1.1 * hand.TICK_S)
        for name in ("pos", "quat", "vel", "ang_vel"):
            np.testing.assert_array_equal(getattr(one.release, name), getattr(other.release, name))
    assert not np.allclose(thrown(1)[0].release.pos, thrown(2)[0].release.pos)


def test_wait_before_the_wind_up_differs_from_throw_to_throw() -> None:
    waits = [thrown(seed)[1].t_release for seed in SEEDS]
    assert np.std(waits) > 0.5


def test_feint_rises_like_a_throw_and_stays_in_the_hand() -> None:
    always = config.Hand(feint_share=1.0)
    for seed in range(50):
        script, motion = thrown(seed, ranges=always)
        assert script.feint
        t = np.arange(1.5, motion.t_release - script.swing_s - script.windup_s, 0.002)
        pos, _, vel, _, acc = motions.evaluate(motion, t)
        assert vel[:, 2].max() == pytest.approx(script.feint_mps, rel=0.35)
        assert motion.t_release > t[-1]
        # Afterwards the hand is back where the wind-up starts, with nothing left of the feint.
        np.testing.assert_allclose(pos[-1], script.start[:3], atol=0.03)
        assert np.abs(acc[-1]).max() < 2.5


def test_no_throw_without_an_open_window() -> None:
    script = hand.draw(RANGES, np.random.default_rng(3))
    motion = hand.carry(script)
    assert motion.t_release == math.inf
    pos = motions.evaluate(motion, np.array([0.0, 60.0, 3600.0]))[0]
    assert np.linalg.norm(pos - script.carry_centre[:3], axis=1).max() < 0.5


@pytest.mark.parametrize("before_release", [3.0, 0.4, 0.1, 0.01])
def test_window_that_closes_stops_the_throw_smoothly(before_release: float) -> None:
    for seed in range(20):
        script, motion = thrown(seed)
        t = motion.t_release - before_release
        stopped = hand.stop(script, motion, t)
        assert stopped.t_release == math.inf
        before, after = motions.track(motion, np.array([t]))[0], motions.track(stopped, np.array([t]))[0]
        np.testing.assert_allclose(before, after, atol=1e-7)
        pos, _, vel, _, _ = motions.evaluate(stopped, np.array([t + 2.0, t + 100.0]))
        np.testing.assert_allclose(pos, np.tile(script.start[:3], (2, 1)), atol=0.01)
        assert np.abs(vel).max() < 0.1
