"""The onboard estimator on a drone that is carried, thrown and flown; and on poses that lie."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

G, DT = 9.81, 1e-3
UP = np.array([0.0, 0.0, G])


def motion(t):
    """World acceleration and body rate: carry, wind-up, free fall from 3.3 to 4.0 s, powered flight."""
    wobble = np.array([math.sin(3 * t), math.cos(2.3 * t), math.sin(4.1 * t + 1)])
    if t < 3.0:
        return 3 * wobble, 1.5 * np.roll(wobble, 1)
    if t < 3.3:
        return np.array([0.5, -0.3, 18 * math.sin((t - 3.0) / 0.3 * math.pi)]), 3 * np.roll(wobble, 1)
    if t < 4.0:
        return -UP, np.array([3.0, -2.5, 1.5])
    return np.array([1.5, 1.2, 4.0]) * wobble, 4 * np.roll(wobble, 2)


class Carried:
    """Truth, sensors and poses of one drone, fed to an Onboard."""

    def __init__(self, onboard, seed=0, sensors=True) -> None:
        self.onboard, self.rng = onboard, np.random.default_rng(seed)
        self.pos, self.vel = np.array([0.3, -0.2, 1.0]), np.array([0.2, 0.5, -0.3])
        self.rot = Rotation.random(random_state=seed)
        self.gyro_bias = self.rng.choice([-1, 1], 3) * 0.02 * sensors
        self.accel_bias = self.rng.choice([-1, 1], 3) * 0.2 * sensors
        self.noise = float(sensors)
        self.ms = 0
        self.offset = np.zeros(3)
        self.pose_changes = lambda pos, quat: (pos, quat)

    def step(self, acc, rate, pose=True) -> None:
        mid = self.rot * Rotation.from_rotvec(0.5 * DT * rate)
        force = mid.inv().apply(acc + UP)
        self.pos = self.pos + DT * self.vel + 0.5 * DT**2 * acc
        self.vel = self.vel + DT * acc
        self.rot = mid * Rotation.from_rotvec(0.5 * DT * rate)
        self.ms += 1
        gyro = rate + self.gyro_bias + self.noise * self.rng.normal(0, 0.02, 3)
        force = force + self.accel_bias + self.noise * self.rng.normal(0, 0.3, 3)
        self.onboard.tick(gyro, force, 4.0)
        if pose and self.ms % 10 == 0:
            pos = self.pos + self.offset + self.noise * self.rng.normal(0, 0.003, 3)
            rot = self.rot * Rotation.from_rotvec(self.noise * self.rng.normal(0, 0.01, 3))
            pos, quat = self.pose_changes(pos, rot.as_quat() * self.rng.choice([-1, 1]))
            self.onboard.receive(6, 1, struct.pack("<B7f", 8, *pos, *quat))

    def errors(self):
        """(m, m/s, deg)."""
        seen = self.onboard.snapshot()
        angle = (Rotation.from_quat(seen.quat).inv() * self.rot).magnitude()
        return (
            np.linalg.norm(np.array(seen.pos) - self.pos),
            np.linalg.norm(np.array(seen.vel) - self.vel),
            math.degrees(angle),
        )


@pytest.mark.parametrize("seed", range(3))
def test_carried_thrown_and_flown(onboard, seed):
    drone = Carried(onboard, seed)
    worst = np.zeros(3)
    for i in range(7000):
        drone.step(*motion(i * DT))
        if i > 1000 and i % 4 == 0:
            worst = np.maximum(worst, drone.errors())
    assert worst[0] < 0.02 and worst[1] < 0.15 and worst[2] < 2.0, worst
    seen = onboard.snapshot()
    assert seen.poses_rejected == 0 and seen.estimator_resets == 1
    assert np.abs(np.array(seen.gyro_bias) - drone.gyro_bias).max() < 0.015


def test_first_second_already_serves(onboard):
    """From the first pose, in motion and in any attitude."""
    drone = Carried(onboard, 5)
    for i in range(300):
        drone.step(*motion(i * DT))
    pos, vel, att = drone.errors()
    assert pos < 0.02 and vel < 0.2 and att < 3.0


def test_perfect_sensors_leave_only_rounding(onboard):
    drone = Carried(onboard, 1, sensors=False)
    for i in range(3000):
        drone.step(*motion(i * DT))
    pos, vel, att = drone.errors()
    assert pos < 1e-3 and vel < 5e-3 and att < 0.1


def test_dead_reckoning_for_100_ms_in_free_fall(onboard):
    drone = Carried(onboard, 2)
    for i in range(3400):
        drone.step(*motion(i * DT))
    for i in range(3400, 3500):
        drone.step(*motion(i * DT), pose=False)
    pos, vel, att = drone.errors()
    assert pos < 0.03 and vel < 0.2 and att < 2.5
    assert onboard.snapshot().estimator_age_s == pytest.approx(0.1, abs=0.012)


def test_age_before_any_pose_is_huge(onboard):
    drone = Carried(onboard)
    for i in range(50):
        drone.step(*motion(i * DT), pose=False)
    seen = onboard.snapshot()
    assert seen.estimator_age_s > 1e5 and seen.poses_accepted == 0
    assert np.isfinite([*seen.pos, *seen.vel, *seen.quat]).all()


def test_single_glitches_are_rejected(onboard):
    drone = Carried(onboard, 3)
    glitches = np.random.default_rng(0)
    for i in range(3000):
        wrong = i > 1000 and drone.ms % 70 == 69
        drone.offset = glitches.normal(0, 1, 3) if wrong else np.zeros(3)
        drone.step(*motion(i * DT))
        if i > 1000 and i % 5 == 0:
            assert drone.errors()[0] < 0.02
    seen = onboard.snapshot()
    assert seen.poses_rejected > 20 and seen.estimator_resets == 1


def test_a_lasting_jump_is_believed_after_several_poses(onboard):
    drone = Carried(onboard, 4)
    for i in range(1000):
        drone.step(*motion(i * DT))
    drone.pos = drone.pos + np.array([1.0, -0.5, 0.3])  # another frame of reference
    for i in range(1000, 1030):
        drone.step(*motion(i * DT))
    assert drone.errors()[0] > 0.5
    for i in range(1030, 1700):
        drone.step(*motion(i * DT))
    pos, vel, att = drone.errors()
    assert pos < 0.02 and vel < 0.15 and att < 2.0
    assert onboard.snapshot().estimator_resets == 2


def test_a_bad_stream_ages(onboard):
    """Poses that agree with nothing never reset the filter; they let it grow old."""
    drone = Carried(onboard, 6)
    for i in range(1000):
        drone.step(*motion(i * DT))
    chaos = np.random.default_rng(1)
    drone.pose_changes = lambda pos, quat: (pos + chaos.normal(0, 2, 3), quat)
    for i in range(1000, 1200):
        drone.step(*motion(i * DT))
    seen = onboard.snapshot()
    assert seen.estimator_resets == 1 and seen.estimator_age_s > 0.15


def test_broken_imu_samples_are_skipped(onboard):
    drone = Carried(onboard, 7)
    for i in range(2000):
        drone.step(*motion(i * DT))
        if i % 50 == 0:
            onboard.tick((math.nan, 0, 0), (0, math.inf, 0), 4.0)
    assert drone.errors()[0] < 0.03
