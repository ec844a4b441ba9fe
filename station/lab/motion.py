"""Smooth motion of a rigid body as a chain of segments. Knows nothing of hands, drones or clocks.

A motion has six coordinates: position, and the rotation vector φ of the body against a fixed attitude,
q(t) = q0 ⊗ exp(φ(t)), |φ| < 2π. Neighbouring segments agree in value, first and second derivative, so position and
attitude are twice continuously differentiable.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Wave:
    """A sum of sines in each coordinate, a function of absolute time."""

    amplitude: Array  # (K, 6)
    omega: Array  # (K, 6) rad/s
    phase: Array  # (K, 6)


@dataclass(frozen=True)
class Segment:
    """Polynomial of the time since ``t0`` plus a wave, valid from ``t0`` to ``t1``."""

    t0: float
    t1: float
    poly: Array  # (6 powers, 6 coordinates)
    wave: Wave | None = None


@dataclass(frozen=True)
class Motion:
    """What the body does from now on."""

    quat: Array  # (4,) attitude that φ is measured against
    segments: tuple[Segment, ...]
    t_release: float = math.inf
    """When nothing holds the body any more."""


def evaluate(motion: Motion, t: Array) -> tuple[Array, Array, Array, Array, Array]:
    """Pose and rates at the times ``t`` (N,).

    Returns:
        Position (N, 3), attitude (N, 4), velocity (N, 3), body rate (N, 3), acceleration (N, 3).
    """
    y = track(motion, t)
    phi, phi_dot = y[:, 0, 3:], y[:, 1, 3:]
    quat = multiply(motion.quat, exp(phi))
    # ω = φ' - (1 - cos θ)/θ² φ×φ' + (θ - sin θ)/θ³ φ×(φ×φ'), the right Jacobian of SO(3); its series near zero.
    theta = np.linalg.norm(phi, axis=1, keepdims=True)
    small = theta < 1e-4
    safe = np.where(small, 1.0, theta)
    a = np.where(small, 0.5, (1.0 - np.cos(safe)) / safe**2)
    b = np.where(small, 1.0 / 6.0, (safe - np.sin(safe)) / safe**3)
    across = np.cross(phi, phi_dot)
    ang_vel = phi_dot - a * across + b * np.cross(phi, across)
    return y[:, 0, :3], quat, y[:, 1, :3], ang_vel, y[:, 2, :3]


def track(motion: Motion, t: Array) -> Array:
    """(N, 3, 6): value, first and second derivative of position and φ at the times ``t`` (N,)."""
    out = np.empty((len(t), 3, 6))
    for segment in motion.segments:
        inside = (t >= segment.t0) & (t < segment.t1)
        if segment is motion.segments[-1]:
            inside = t >= segment.t0  # the end itself belongs to the last one
        if inside.any():
            out[inside] = _sample(segment, t[inside])
    return out


class Chain:
    """Segments being joined; the state at the end of one is the start of the next."""

    def __init__(self, motion: Motion, t: float) -> None:
        kept = [segment for segment in motion.segments if segment.t0 < t]
        self.quat = motion.quat
        self.segments = kept[:-1] + [replace(kept[-1], t1=t)]
        self.t = t

    def move(self, y: Array, vel: Array, acc: Array, duration: float) -> None:
        """Quintic from where we are to value, velocity and acceleration ``duration`` later."""
        begin = _sample(self.segments[-1], np.array([self.t]))[0]
        self.segments.append(Segment(self.t, self.t + duration, _quintic(begin, np.stack([y, vel, acc]), duration)))
        self.t += duration

    def settle(self, y: Array, wave: Wave, duration: float, hold_s: float) -> None:
        """Quintic into the wave around ``y``, then stay on it for ``hold_s``."""
        hold = around(y, wave, self.t + duration)
        self.move(*_sample(hold, np.array([self.t + duration]))[0], duration)
        self.segments.append(replace(hold, t1=self.t + hold_s))
        self.t += hold_s

    def wait(self, duration: float) -> None:
        """Stay in the last segment, which has no end of its own, for longer."""
        self.t += duration
        self.segments[-1] = replace(self.segments[-1], t1=self.t)

    def motion(self) -> Motion:
        """All that has been joined."""
        return Motion(self.quat, tuple(self.segments))


def around(y: Array, wave: Wave, t0: float) -> Segment:
    """A wave about the coordinates ``y`` (6,) from ``t0`` on, for ever."""
    poly = np.zeros((6, 6))
    poly[0] = y
    return Segment(t0, math.inf, poly, wave)


def _sample(segment: Segment, t: Array) -> Array:
    tau = (t - segment.t0)[:, None]
    c = segment.poly
    out = np.empty((len(t), 3, 6))
    out[:, 0] = c[0] + tau * (c[1] + tau * (c[2] + tau * (c[3] + tau * (c[4] + tau * c[5]))))
    out[:, 1] = c[1] + tau * (2 * c[2] + tau * (3 * c[3] + tau * (4 * c[4] + tau * 5 * c[5])))
    out[:, 2] = 2 * c[2] + tau * (6 * c[3] + tau * (12 * c[4] + tau * 20 * c[5]))
    if segment.wave is not None:
        wave = segment.wave
        angle = t[:, None, None] * wave.omega + wave.phase
        sine, cosine = np.sin(angle), np.cos(angle)
        out[:, 0] += (wave.amplitude * sine).sum(1)
        out[:, 1] += (wave.amplitude * wave.omega * cosine).sum(1)
        out[:, 2] -= (wave.amplitude * wave.omega**2 * sine).sum(1)
    return out


def _quintic(begin: Array, end: Array, duration: float) -> Array:
    """Coefficients (6, 6) of the polynomial from (value, rate, acceleration) ``begin`` to ``end``, each (3, 6)."""
    T = duration  # noqa: N806
    c = np.empty((6, 6))
    c[0], c[1], c[2] = begin[0], begin[1], 0.5 * begin[2]
    d = end[0] - (c[0] + T * (c[1] + T * c[2]))
    v = end[1] - (c[1] + 2 * T * c[2])
    a = end[2] - 2 * c[2]
    c[3] = (10 * d - 4 * T * v + 0.5 * T**2 * a) / T**3
    c[4] = (-15 * d + 7 * T * v - T**2 * a) / T**4
    c[5] = (6 * d - 3 * T * v + 0.5 * T**2 * a) / T**5
    return c


def multiply(p: Array, q: Array) -> Array:
    """Hamilton product of xyzw quaternions, broadcast."""
    px, py, pz, pw = np.moveaxis(p, -1, 0)
    qx, qy, qz, qw = np.moveaxis(q, -1, 0)
    return np.stack(
        [
            pw * qx + px * qw + py * qz - pz * qy,
            pw * qy - px * qz + py * qw + pz * qx,
            pw * qz + px * qy - py * qx + pz * qw,
            pw * qw - px * qx - py * qy - pz * qz,
        ],
        axis=-1,
    )


def conjugate(q: Array) -> Array:
    """The inverse of a unit quaternion."""
    return q * np.array([-1.0, -1.0, -1.0, 1.0])


def exp(phi: Array) -> Array:
    """Quaternion of a rotation vector; sin(θ/2)/θ by sinc, finite at zero."""
    theta = np.linalg.norm(phi, axis=-1, keepdims=True)
    return np.concatenate([0.5 * np.sinc(0.5 * theta / math.pi) * phi, np.cos(0.5 * theta)], axis=-1)


def log(q: Array) -> Array:
    """Rotation vector of one quaternion, shorter than π."""
    q = -q if q[3] < 0.0 else q
    size = float(np.linalg.norm(q[:3]))
    return 2.0 * q[:3] if size < 1e-9 else q[:3] * (2.0 * math.atan2(size, q[3]) / size)
