"""What instruments make of the truth: the IMU on board and the motion capture. Sends nothing, knows no clock."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from station import config

Array = NDArray[np.float64]

GYRO_RANGE_RAD_S = math.radians(2000.0)
"""Full scale of the BMI088 as the Crazyflie firmware sets it."""
ACCEL_RANGE_MPS2 = 24.0 * 9.81
_BLOCK = 256
_BURST_SHARE = 0.01


class Imu:
    """Gyroscope and accelerometer: white noise at the sample rate and a constant bias, drawn at switch-on."""

    def __init__(self, lab: config.LabConfig, rng: np.random.Generator) -> None:
        self._rng = rng
        self._std = np.array([lab.gyro_noise_rad_s] * 3 + [lab.accel_noise_mps2] * 3)
        limit = np.array([lab.gyro_bias_rad_s] * 3 + [lab.accel_bias_mps2] * 3)
        self.bias: Array = rng.uniform(-limit, limit)
        """(6,) gyroscope rad/s, then accelerometer m/s², body frame."""
        self._full: Array = np.array([GYRO_RANGE_RAD_S] * 3 + [ACCEL_RANGE_MPS2] * 3)
        self._noise: list[list[float]] = []

    def measure(self, motion: list[float]) -> list[float]:
        """Six readings, clipped at full scale.

        Args:
            motion: True body rate rad/s (3), then specific force m/s² (3), body frame; +9.81 on z at rest.
        """
        if not self._noise:
            error = self.bias + self._std * self._rng.standard_normal((_BLOCK, 6))
            self._noise = error.tolist()  # plain floats: this runs a thousand times a second
        g, a = GYRO_RANGE_RAD_S, ACCEL_RANGE_MPS2
        gx, gy, gz, ax, ay, az = map(float.__add__, motion, self._noise.pop())
        return [
            min(max(gx, -g), g),
            min(max(gy, -g), g),
            min(max(gz, -g), g),
            min(max(ax, -a), a),
            min(max(ay, -a), a),
            min(max(az, -a), a),
        ]


@dataclass(frozen=True)
class SourceClock:
    """The motion capture computer's clock: started at its own time, running at its own speed."""

    offset_s: float
    drift: float
    """Seconds gained a second."""
    t_start: float
    """Host time at which the offset holds."""

    def at(self, t_host: float) -> float:
        """Source time, s, at a host time."""
        return t_host + self.offset_s + self.drift * (t_host - self.t_start)


class Mocap:
    """Cameras: noise on the pose, latency with jitter, a clock of their own."""

    def __init__(self, lab: config.LabConfig, rng: np.random.Generator, now: float) -> None:
        self._rng = rng
        self._low, self._high = (1e-3 * ms for ms in lab.mocap_latency_ms)
        self._pos_std, self._att_std = lab.mocap_position_std_m, math.radians(lab.mocap_attitude_std_deg)
        offset = rng.uniform(-1000.0, 1000.0)
        # Stamps are unsigned on the wire: a young host cannot see a clock from before its epoch.
        offset = offset if now + offset > 0.0 else -offset
        drift = rng.uniform(-1e-6, 1e-6) * lab.mocap_drift_ppm
        self.clock = SourceClock(offset, drift, now)
        self._base = self._low + rng.uniform(0.0, 0.3) * (self._high - self._low)

    def observe(self, pos: Array, quat: Array) -> tuple[Array, Array]:
        """The pose with noise: position (3,), attitude (4,) turned by a small random rotation of the body."""
        noise = self._rng.standard_normal(6)
        return pos + self._pos_std * noise[:3], _turn(quat, self._att_std * noise[3:])

    def latency_s(self) -> float:
        """From mid-exposure to transmission of one frame: a constant part, exponential jitter, rare bursts."""
        spread = self._high - self._low
        jitter, burst = self._rng.exponential(0.12 * spread), self._rng.uniform()
        if burst < _BURST_SHARE:
            jitter = spread * burst / _BURST_SHARE
        return min(self._base + jitter, self._high)


def _turn(quat: Array, phi: Array) -> Array:
    """Quat ⊗ exp(φ) for a small rotation vector of the body, normalised."""
    x, y, z, w = quat
    a, b, c = 0.5 * phi
    out = np.array(
        [
            x + w * a + y * c - z * b,
            y + w * b + z * a - x * c,
            z + w * c + x * b - y * a,
            w - x * a - y * b - z * c,
        ]
    )
    return out / math.sqrt(float(out @ out))
