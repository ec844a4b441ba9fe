"""Instruments: size of noise and bias, full scale, latency, the source's own clock."""

from __future__ import annotations

import math

import numpy as np
import pytest

from station import config
from station.lab import sensors

LAB = config.LabConfig()
STILL = [0.0, 0.0, 0.0, 0.0, 0.0, 9.81]


def test_imu_noise_and_bias_are_as_configured() -> None:
    imu = sensors.Imu(LAB, np.random.default_rng(0))
    read = np.array([imu.measure(STILL) for _ in range(20000)]) - STILL
    np.testing.assert_allclose(read.std(0), [0.02] * 3 + [0.3] * 3, rtol=0.05)
    np.testing.assert_allclose(read.mean(0), imu.bias, atol=0.012)
    assert abs(np.corrcoef(read.T) - np.eye(6)).max() < 0.05
    assert abs(np.corrcoef(read[1:, 0], read[:-1, 0])[0, 1]) < 0.05


def test_biases_fill_their_range_over_drones() -> None:
    biases = np.array([sensors.Imu(LAB, np.random.default_rng(seed)).bias for seed in range(300)])
    assert 0.9 * 0.02 < np.abs(biases[:, :3]).max() <= 0.02
    assert 0.9 * 0.2 < np.abs(biases[:, 3:]).max() <= 0.2


def test_imu_clips_at_full_scale() -> None:
    imu = sensors.Imu(LAB, np.random.default_rng(0))
    read = imu.measure([100.0, -100.0, 0.0, 3000.0, -3000.0, 0.0])
    assert read[0] == -read[1] == pytest.approx(math.radians(2000.0))
    assert read[3] == -read[4] == pytest.approx(24 * 9.81)


def test_pose_noise_has_the_configured_size() -> None:
    mocap = sensors.Mocap(LAB, np.random.default_rng(1), 0.0)
    pos, quat = np.array([1.0, 2.0, 3.0]), np.array([0.5, -0.5, 0.5, 0.5])
    seen = [mocap.observe(pos, quat) for _ in range(5000)]
    np.testing.assert_allclose(np.std([p for p, _ in seen], axis=0), 0.0003, rtol=0.05)
    cosine = np.array([abs(q @ quat) for _, q in seen]).clip(max=1.0)
    angle = np.degrees(2 * np.arccos(cosine))
    assert np.sqrt(np.mean(angle**2) / 3) == pytest.approx(0.2, rel=0.05)
    np.testing.assert_allclose([np.linalg.norm(q) for _, q in seen], 1.0, atol=1e-12)


def test_latency_jitters_within_its_range() -> None:
    for seed in range(20):
        mocap = sensors.Mocap(LAB, np.random.default_rng(seed), 0.0)
        latency = np.array([mocap.latency_s() for _ in range(2000)])
        assert 0.003 <= latency.min() and latency.max() <= 0.008
        assert latency.std() > 0.0003


def test_source_clock_has_an_offset_and_a_speed_of_its_own() -> None:
    clocks = [sensors.Mocap(LAB, np.random.default_rng(seed), 5000.0).clock for seed in range(200)]
    offsets = np.array([c.at(5000.0) - 5000.0 for c in clocks])
    drifts = np.array([(c.at(5100.0) - c.at(5000.0)) / 100.0 - 1.0 for c in clocks])
    assert 900.0 < np.abs(offsets).max() <= 1000.0 and (offsets < 0).any() and (offsets > 0).any()
    assert 45e-6 < np.abs(drifts).max() <= 50e-6 + 1e-9 and (drifts < 0).any() and (drifts > 0).any()


def test_source_stamps_are_positive_on_a_young_host() -> None:
    assert min(sensors.Mocap(LAB, np.random.default_rng(s), 20.0).clock.at(20.0) for s in range(200)) > 0.0
