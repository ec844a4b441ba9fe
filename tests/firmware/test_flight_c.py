"""The stock controller on a rigid body with lagging rotors that is not what it believes: hold, go, catch, land."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest

G, DT = 9.81, 1e-3
COEF = (13.996001897562685, 0.00011093207920685363, 5.933168530682111, 0.00031951312393561264)
LANDED = 33


def rotation(q):
    x, y, z, w = q
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


class Plant:
    """A quadrotor over a floor at z = 0, its sensors, and the poses of the ground at 100 Hz."""

    def __init__(self, onboard, airframe, seed=0, mass=1.05, thrust=0.95) -> None:
        self.onboard, self.airframe, self.rng = onboard, airframe, np.random.default_rng(seed)
        self.mass, self.thrust = airframe.mass_kg * mass, thrust
        self.inertia, self.mixing = np.array(airframe.inertia), np.array(airframe.mixing, float)
        self.pos, self.vel, self.w = np.zeros(3), np.zeros(3), np.zeros(3)
        self.quat, self.rpm = np.array([0.0, 0, 0, 1]), np.zeros(4)
        self.gyro_bias, self.accel_bias = self.rng.normal(0, 0.02, 3), self.rng.normal(0, 0.1, 3)
        self.ms, self.poses, self.beats = 0, True, True
        self.touch_speed: float | None = None
        self.touch_ms: int | None = None
        self.events: list[int] = []
        self.command = np.zeros(4)

    def step(self) -> None:
        k, drag = self.airframe, np.array([-0.02164, -0.02164, -0.02477])
        up = self.command > self.rpm
        lin, quad = np.where(up, COEF[0], COEF[2]), np.where(up, COEF[1], COEF[3])
        self.rpm = self.rpm + DT * (lin * (self.command - self.rpm) + quad * (self.command**2 - self.rpm**2))
        f = self.thrust * (k.rpm2thrust[1] * self.rpm + k.rpm2thrust[2] * self.rpm**2)
        f = np.maximum(f, 0)
        torque = k.rpm2torque[1] * self.rpm + k.rpm2torque[2] * self.rpm**2
        R = rotation(self.quat)
        force = np.array([0, 0, f.sum()]) + drag * (R.T @ self.vel)
        specific = force / self.mass
        acc = R @ specific - np.array([0, 0, G])
        moment = np.array([*(k.arm_length_m * self.mixing[:2] @ f), self.mixing[2] @ torque])
        alpha = (moment - np.cross(self.w, self.inertia * self.w)) / self.inertia
        self.pos = self.pos + DT * self.vel
        self.vel = self.vel + DT * acc
        self.w = self.w + DT * alpha
        x, y, z, w = self.quat
        p, q, r = 0.5 * DT * self.w
        turned = [x + p * w + r * y - q * z, y + q * w - r * x + p * z, z + r * w + q * x - p * y]
        self.quat = np.array([*turned, w - p * x - q * y - r * z])
        self.quat = self.quat / np.linalg.norm(self.quat)
        if self.pos[2] <= 0 and self.vel[2] <= 0:  # an inelastic floor
            if self.touch_speed is None and self.ms > 500:
                self.touch_speed, self.touch_ms = -self.vel[2], self.ms
            self.pos[2], self.vel, self.w = 0.0, np.zeros(3), np.zeros(3)
            specific = R.T @ np.array([0, 0, G])
        self.ms += 1
        gyro = self.w + self.gyro_bias + self.rng.normal(0, 0.02, 3)
        accel = specific + self.accel_bias + self.rng.normal(0, 0.3, 3)
        if self.ms % 10 == 0 and self.poses:
            pos = self.pos + self.rng.normal(0, 0.003, 3)
            quat = self.quat + np.array([*self.rng.normal(0, 0.005, 3), 0])
            self.onboard.receive(6, 1, struct.pack("<B7f", 8, *pos, *(quat / np.linalg.norm(quat))))
        if self.ms % 100 == 0 and self.beats:
            self.onboard.receive(9, 0, b"\x0c")
        self.command = np.array(self.onboard.tick(gyro.tolist(), accel.tolist(), 4.0))
        while (packet := self.onboard.transmit()) is not None:
            if packet[0] == 10 and packet[2][0] == 0x40:
                self.events.append(packet[2][2])

    def run(self, seconds) -> None:
        for _ in range(round(seconds * 1000)):
            self.step()

    def tilt(self):
        return math.degrees(math.acos(min(1.0, rotation(self.quat)[2, 2])))

    def take_off(self, height=1.0) -> None:
        self.run(0.2)
        self.onboard.receive(9, 1, b"\x01\x01")
        self.onboard.receive(8, 0, struct.pack("<BBff?f", 7, 0, height, 0.0, True, 1.5))


@pytest.mark.parametrize(("mass", "thrust"), [(1.05, 0.95), (0.95, 1.05)])
def test_take_off_hold_go_land(onboard, airframe, mass, thrust):
    drone = Plant(onboard, airframe, 0, mass, thrust)
    drone.take_off()
    drone.run(4.0)
    assert abs(drone.pos - [0, 0, 1]).max() < 0.05
    assert np.linalg.norm(drone.vel) < 0.1 and drone.tilt() < 3
    onboard.receive(8, 0, struct.pack("<BBBBfffff", 0x0C, 0, 0, 0, 0.7, -0.4, 1.4, 0.8, 2.0))
    drone.run(4.0)
    R = rotation(drone.quat)
    assert abs(drone.pos - [0.7, -0.4, 1.4]).max() < 0.05
    assert math.atan2(R[1, 0], R[0, 0]) == pytest.approx(0.8, abs=0.06)
    onboard.receive(8, 0, struct.pack("<BBff?f", 8, 0, 0.0, 0.0, True, 2.5))
    drone.run(5.5)
    assert drone.touch_speed is not None and drone.touch_speed < 0.4
    assert drone.events == [LANDED] and not drone.command.any()
    assert abs(drone.pos - [0.7, -0.4, 0]).max() < 0.08


def hover(onboard, airframe, bench, network):
    """A network that only knows one thrust: about hover."""
    net = network()
    net.halves[:] = 0
    share = (airframe.mass_kg * G / 4 - airframe.thrust_min_N) / (airframe.thrust_max_N - airframe.thrust_min_N)
    net.halves[-4:] = math.atanh(2 * share - 1)
    return net


@pytest.mark.parametrize("seed", range(4))
def test_catches_the_hand_over_and_lands_by_itself(onboard, airframe, bench, network, seed):
    """Policy to stock controller at 1 m/s, 15 deg, 1 rad/s; then the ground falls silent."""
    net, rng = hover(onboard, airframe, bench, network), np.random.default_rng(seed)
    drone = Plant(onboard, airframe, seed, 0.95 + 0.1 * rng.random(), 0.95 + 0.1 * rng.random())
    direction = rng.normal(size=3)
    drone.pos = np.array([0.0, 0.0, 1.5])
    for _ in range(200):  # held still while it is armed and loaded
        drone.vel, drone.w, drone.pos = np.zeros(3), np.zeros(3), np.array([0.0, 0.0, 1.5])
        drone.rpm = np.full(4, 15300.0)
        drone.step()
    bench.arm()
    bench.upload(net)
    axis = rng.normal(size=3)
    axis /= np.linalg.norm(axis)
    drone.quat = np.array([*(math.sin(math.radians(7.5)) * axis), math.cos(math.radians(7.5))])
    drone.vel = direction / np.linalg.norm(direction)
    drone.w = rng.normal(size=3) / math.sqrt(3)
    for _ in range(40):
        drone.onboard.receive(6, 1, struct.pack("<B7f", 8, *drone.pos, *drone.quat))
        drone.step()
    bench.activate(net, gates=0x01)
    drone.run(0.004)
    assert onboard.snapshot().control == 2
    onboard.receive(10, 0, b"\x06\x00")
    lowest, farthest = 9.0, 0.0
    start = drone.pos.copy()
    for _ in range(2500):
        drone.step()
        lowest, farthest = min(lowest, drone.pos[2]), max(farthest, np.linalg.norm(drone.pos - start))
    assert lowest > 0.5 and farthest < 1.0
    assert np.linalg.norm(drone.vel) < 0.15 and drone.tilt() < 4
    drone.poses = drone.beats = False
    drone.run(0.4)
    assert onboard.snapshot().stock_mode == 1
    drone.run(0.2)
    drone.poses = True  # poses come again, too late: it is landing, and goes on
    assert onboard.snapshot().stock_mode == 2
    drone.run(8.0)
    assert drone.events[-1] == LANDED and not drone.command.any()
    assert drone.touch_speed is not None and drone.touch_speed < 0.4


def test_lands_by_itself_without_poses(onboard, airframe):
    """The last packet of the ground was 500 ms ago; the estimate is still good enough to come down level."""
    drone = Plant(onboard, airframe, 1)
    drone.take_off(1.0)
    drone.run(4.0)
    drone.poses = drone.beats = False
    drone.run(0.45)
    assert onboard.snapshot().stock_mode == 1
    drone.run(9.0)
    assert drone.events == [LANDED] and not drone.command.any()
    assert drone.touch_speed is not None and drone.touch_speed < 1.0
    assert drone.tilt() < 15


def test_lands_on_a_floor_below_the_height_it_was_told(onboard, airframe):
    drone = Plant(onboard, airframe, 2, 1.05, 0.95)
    drone.take_off(0.8)
    drone.run(3.0)
    onboard.receive(8, 0, struct.pack("<BBff?f", 8, 0, 0.3, 0.0, True, 0.0))
    drone.run(6.0)
    assert drone.touch_speed is not None and drone.touch_speed < 0.4
    assert drone.events == [LANDED] and not drone.command.any()


def test_no_false_touchdown_in_the_air(onboard, airframe):
    """A thrust 10 % above the model lifts it off its path: that is not the floor."""
    drone = Plant(onboard, airframe, 3, 0.95, 1.05)
    drone.take_off(1.2)
    drone.run(1.6)
    onboard.receive(8, 0, struct.pack("<BBff?f", 8, 0, 0.0, 0.0, True, 3.0))
    for _ in range(7000):
        drone.step()
        if not drone.command.any():
            break
    assert drone.touch_speed is not None and drone.pos[2] < 0.01
