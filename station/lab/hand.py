"""The scripted hand: how a drone is carried, feinted with, wound up and let go. Knows no clock, plant or wire.

A motion is a chain of segments in six coordinates: position, and the rotation vector φ of the body against its
attitude at release, q(t) = q_release ⊗ exp(φ(t)). Neighbouring segments agree in value, first and second derivative, so
position and attitude are twice continuously differentiable, the release included: there the hand already accelerates as
the free drone will, because the contact force of a hand that opens has vanished.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from station import config

Array = NDArray[np.float64]

TICK_S = 0.001
"""Releases fall on this grid, so that a plant of the same step takes over the exact state."""
_FOREVER = math.inf


@dataclass(frozen=True)
class Release:
    """The state in which the drone leaves the hand."""

    pos: Array  # (3,)
    quat: Array  # (4,)
    vel: Array  # (3,)
    ang_vel: Array  # (3,) body frame


@dataclass(frozen=True)
class Wave:
    """A sum of sines in each coordinate, a function of absolute time."""

    amplitude: Array  # (K, 6)
    omega: Array  # (K, 6) rad/s
    phase: Array  # (K, 6)


@dataclass(frozen=True)
class Script:
    """Everything the hand will do, drawn before it starts; only the moment the window opens is not in it."""

    release: Release
    carry: Wave
    tremor: Wave
    carry_centre: Array  # (6,)
    start: Array  # (6,) where the wind-up starts from
    carry_s: float
    lift_s: float
    waits_s: tuple[float, float]
    feint: bool
    feint_mps: float
    feint_s: tuple[float, float, float, float]
    windup_s: float
    swing_s: float
    bottom: Array  # (6,)
    bottom_acc: Array  # (6,)


@dataclass(frozen=True)
class Segment:
    """Polynomial of the time since ``t0`` plus a wave, valid from ``t0`` to ``t1``."""

    t0: float
    t1: float
    poly: Array  # (6 powers, 6 coordinates)
    wave: Wave | None = None


@dataclass(frozen=True)
class Motion:
    """What the hand does from now on."""

    quat: Array  # (4,) attitude that φ is measured against
    segments: tuple[Segment, ...]
    t_release: float = _FOREVER


def draw(ranges: config.Hand, rng: np.random.Generator) -> Script:
    """One throw, every value uniform in its range (sideways velocity uniform over its disc)."""
    u = rng.uniform
    yaw, tilt, about = u(-math.pi, math.pi), math.radians(u(0.0, ranges.tilt_deg)), u(-math.pi, math.pi)
    quat = _multiply(_exp(np.array([0.0, 0.0, yaw])), _exp(tilt * np.array([math.cos(about), math.sin(about), 0.0])))
    sideways, heading = ranges.sideways_mps * math.sqrt(u()), u(-math.pi, math.pi)
    vel = np.array([sideways * math.cos(heading), sideways * math.sin(heading), u(*ranges.up_mps)])
    pos = np.array([u(-0.4, 0.4), u(-0.4, 0.4), u(*ranges.release_height_m)])
    release = Release(pos, quat, vel, u(-ranges.spin_rad_s, ranges.spin_rad_s, 3))

    level = _log(_multiply(_conjugate(quat), _exp(np.array([0.0, 0.0, yaw + u(-0.4, 0.4)]))))
    length = u(0.35, 0.55)
    swing_s = length / (0.45 * vel[2])
    bottom = np.concatenate([pos - 0.45 * swing_s * vel, level - 0.3 * swing_s * release.ang_vel])
    start = np.concatenate([bottom[:3] + np.array([u(-0.1, 0.1), u(-0.1, 0.1), u(0.08, 0.25)]), level])
    centre = np.concatenate([start[:3] + np.array([u(-0.3, 0.3), u(-0.3, 0.3), u(-0.1, 0.15)]), level])
    bottom_acc = np.concatenate([np.array([0.0, 0.0, u(6.0, 14.0)]), np.zeros(3)])
    carry_size = np.array([0.12, 0.12, 0.06, 0.12, 0.12, 0.08])
    tremor_size = np.array([0.001, 0.001, 0.001, 0.006, 0.006, 0.006])
    return Script(
        release=release,
        carry=Wave(u(0.2, 1.0, (2, 6)) * carry_size, 2 * math.pi * u(0.15, 0.7, (2, 6)), u(0, 2 * math.pi, (2, 6))),
        tremor=Wave(u(0.2, 1.0, (2, 6)) * tremor_size, 2 * math.pi * u(1.5, 4.0, (2, 6)), u(0, 2 * math.pi, (2, 6))),
        carry_centre=centre,
        start=start,
        carry_s=u(*ranges.carry_s),
        lift_s=u(0.6, 1.0),
        waits_s=(u(*ranges.wait_s), u(*ranges.wait_s)),
        feint=bool(u() < ranges.feint_share),
        feint_mps=u(1.0, 2.2),
        feint_s=(u(0.25, 0.4), u(0.2, 0.35), u(0.15, 0.3), u(0.6, 1.0)),
        windup_s=u(0.3, 0.5),
        swing_s=swing_s,
        bottom=bottom,
        bottom_acc=bottom_acc,
    )


def carry(script: Script) -> Motion:
    """Carry the drone about, for ever."""
    return Motion(script.release.quat, (_around(script.carry_centre, script.carry, 0.0),))


def throw(script: Script, motion: Motion, t_open: float, free_acc: Array) -> Motion:
    """The rest of the run once the window is seen open: carry on, lift, wait, perhaps feint and wait, wind up, let go.

    Args:
        script: What was drawn.
        motion: What the hand does now.
        t_open: When it saw the window open, s.
        free_acc: (6,) linear (world) and angular (body) acceleration of the free drone in the release state.
    """
    chain = _Chain(motion, t_open + script.carry_s)
    chain.settle(script.start, script.tremor, script.lift_s, script.waits_s[0])
    if script.feint:
        down, up, stop, back = script.feint_s
        rise = np.array([0.0, 0.0, 0.45 * script.feint_mps * up, 0.0, 0.0, 0.0])
        low = script.start.copy()
        low[2] = script.bottom[2]
        chain.move(low, np.zeros(6), script.bottom_acc, down)
        chain.move(low + rise, script.feint_mps * np.eye(6)[2], np.zeros(6), up)
        chain.move(low + rise * (1.0 + stop / up), np.zeros(6), np.zeros(6), stop)
        chain.settle(script.start, script.tremor, back, script.waits_s[1])
    # The last wait is stretched by less than a tick so that the release falls on the grid.
    ticks = (chain.t + script.windup_s + script.swing_s) / TICK_S
    chain.wait((math.ceil(ticks - 1e-6) - ticks) * TICK_S)
    chain.move(script.bottom, np.zeros(6), script.bottom_acc, script.windup_s)
    release = script.release
    end = np.concatenate([release.pos, np.zeros(3)])
    chain.move(end, np.concatenate([release.vel, release.ang_vel]), free_acc, script.swing_s)
    return replace(chain.motion(), t_release=round(chain.t / TICK_S) * TICK_S)


def stop(script: Script, motion: Motion, t: float) -> Motion:
    """Give up at ``t`` and hold the drone still for ever, from whatever the hand is doing."""
    chain = _Chain(motion, t)
    chain.settle(script.start, script.tremor, 0.8, _FOREVER)
    return chain.motion()


def evaluate(motion: Motion, t: Array) -> tuple[Array, Array, Array, Array, Array]:
    """Pose and rates at the times ``t`` (N,).

    Returns:
        Position (N, 3), attitude (N, 4), velocity (N, 3), body rate (N, 3), acceleration (N, 3).
    """
    y = track(motion, t)
    phi, phi_dot = y[:, 0, 3:], y[:, 1, 3:]
    quat = _multiply(motion.quat, _exp(phi))
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


class _Chain:
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
        hold = _around(y, wave, self.t + duration)
        self.move(*_sample(hold, np.array([self.t + duration]))[0], duration)
        self.segments.append(replace(hold, t1=self.t + hold_s))
        self.t += hold_s

    def wait(self, duration: float) -> None:
        """Stay in the last segment, which has no end of its own, for longer."""
        self.t += duration
        self.segments[-1] = replace(self.segments[-1], t1=self.t)

    def motion(self) -> Motion:
        return Motion(self.quat, tuple(self.segments))


def _around(y: Array, wave: Wave, t0: float) -> Segment:
    poly = np.zeros((6, 6))
    poly[0] = y
    return Segment(t0, _FOREVER, poly, wave)


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


def _multiply(p: Array, q: Array) -> Array:
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


def _conjugate(q: Array) -> Array:
    return q * np.array([-1.0, -1.0, -1.0, 1.0])


def _exp(phi: Array) -> Array:
    """Quaternion of a rotation vector; sin(θ/2)/θ by sinc, finite at zero."""
    theta = np.linalg.norm(phi, axis=-1, keepdims=True)
    return np.concatenate([0.5 * np.sinc(0.5 * theta / math.pi) * phi, np.cos(0.5 * theta)], axis=-1)


def _log(q: Array) -> Array:
    """Rotation vector of one quaternion, shorter than π."""
    q = -q if q[3] < 0.0 else q
    size = float(np.linalg.norm(q[:3]))
    return 2.0 * q[:3] if size < 1e-9 else q[:3] * (2.0 * math.atan2(size, q[3]) / size)
