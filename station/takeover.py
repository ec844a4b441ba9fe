"""Is the drone thrown, and where will it be? A detector with two stages and a prediction. Pure; time is an argument.

Free flight is tested on the raw frames of a sliding window, not on the tracking filter, which lags. A window passes
when a cubic through it has, in its middle, the acceleration of gravity and drag, no other jerk, the angular
acceleration of a torque-free body, and when it began by rising. 55 ms of that speculate (training may start: harmless),
120 ms confirm (motors may start). Acceleration alone does not tell: a hand that swings 25 cm at 1 Hz stays within
1 m/s^2 of free fall for 140 ms; what a hand cannot do is to keep all of this to 0.5 m/s^2 for 120 ms while rising.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

from station import ballistic
from station.airframe import GRAVITY, Airframe
from station.ballistic import Ballistic
from station.estimate import Kinematics
from station.quaternion import Quat, Vec3

Stage = Literal["SPECULATE", "CONFIRM", "ABORT"]
Sample = tuple[float, Vec3, Quat]
"""One frame that the tracking filter used: exposure host s, position, attitude."""

SPECULATE_S = 0.055
CONFIRM_S = 0.120
RECENT_S = 0.08
APART = 6.0
"""Standard deviations; closer to the parabola than this is on it."""
KEEP_S = 0.2
SHARE = 0.8
"""Of a window's frames that must be there."""
SPECULATE_MPS, CONFIRM_MPS = 1.5, 2.1
"""Rise at the window's start. A swing or a lift that falls freely for long enough has less there; a throw with less
could not be caught."""
CLIMB_MPS = 0.7
RATE_MAX = 15.0
HEIGHT_MIN = 0.4
SPECULATE_ACC = 3.0
CONFIRM_ACC = 0.9
"""m/s^2; upper bounds of the tolerance, which otherwise follows the source's noise."""
JOINT = 16.0
"""Of `Free.score`: 0.986 of the windows of a free flight are below, and each frame tries again."""
CALL_OFF = 40.0
"""Of `Free.score`: no window of a free flight is above."""
MARGIN = 1.15
"""The noise is taken from the fit's rest, times this, when the source is better than configured."""
LATE_S = 0.2
"""A throw not confirmed this long after release would be caught too late: it is given up."""
PASSES = 2
"""Windows in a row that confirm: a hand that passes through free fall does so for one."""
FAILS = 2
"""Windows in a row that must fail before a speculated throw is called off."""
MISSES = 3
SPIN_UP_S = 0.06
"""From confirmation to the first thrust at the earliest: until then a frame off the parabola is a hand or a wall."""


class Free(NamedTuple):
    """A window of frames against free flight."""

    free: bool
    reason: str
    t_start: float
    vel: Vec3
    """At the window's middle, m/s."""
    ang_vel: Vec3
    t_middle: float
    acc: Vec3
    """Of gravity and drag at the middle, m/s^2."""
    score: float
    """Chi-square, 6 degrees of freedom, of acceleration and jerk against free fall."""
    up: float
    """Vertical speed at the window's start, m/s."""


class Detector(NamedTuple):
    """What the detector remembers of one drone."""

    airframe: Airframe
    position_std: float
    attitude_std: float
    period: float
    samples: tuple[Sample, ...] = ()
    stage: Literal["", "SPECULATE", "CONFIRM"] = ""
    t_release: float = 0.0
    t_confirm: float = math.inf
    flight: Ballistic | None = None
    fails: int = 0
    passes: int = 0
    spent: bool = False
    """This window's throw has been decided; a new window is needed."""


class News(NamedTuple):
    """A change of stage."""

    stage: Stage
    reason: str = ""


def init(airframe: Airframe, position_std: float, attitude_std: float, period: float) -> Detector:
    """A detector for a drone in a source of known noise (m, rad) and frame period (s)."""
    return Detector(airframe, position_std, attitude_std, period)


def rearm(detector: Detector) -> Detector:
    """A new window of the operator: one throw may be decided in it."""
    return detector._replace(spent=False, stage="", flight=None, fails=0, t_confirm=math.inf)


def _rotation_vectors(quats: np.ndarray, middle: int) -> np.ndarray:
    """(N, 3) rotation vectors from the middle attitude to each, in its body frame."""
    x, y, z, w = quats[middle]
    px, py, pz, pw = quats.T
    out = np.empty((len(quats), 3))
    out[:, 0] = w * px - x * pw - y * pz + z * py
    out[:, 1] = w * py + x * pz - y * pw - z * px
    out[:, 2] = w * pz - x * py + y * px - z * pw
    real = w * pw + x * px + y * py + z * pz
    out *= np.where(real < 0.0, -1.0, 1.0)[:, None]
    sine = np.sqrt((out * out).sum(axis=1))
    angle = 2.0 * np.arctan2(sine, np.abs(real))
    out *= np.where(sine > 1e-9, angle / np.maximum(sine, 1e-9), 2.0)[:, None]
    return out


def examine(detector: Detector, span: float) -> Free | None:
    """Whether the last ``span`` seconds of samples are free flight; None while they are too few."""
    samples = detector.samples
    t_end = samples[-1][0]
    first = len(samples) - 1
    while first > 0 and samples[first][0] > t_end - span + 1e-4:
        first -= 1
    n = len(samples) - first
    width = t_end - samples[first][0]
    if width < span - 1e-4 or width > span + 2.5 * detector.period or n < SHARE * (span / detector.period + 1.0):
        return None
    window = samples[first:]
    t = np.array([s[0] for s in window])
    middle = n // 2
    u = (t - t[middle]) / width
    basis = np.empty((n, 4))
    basis[:, 0], basis[:, 1] = 1.0, u
    basis[:, 2], basis[:, 3] = u * u, u * u * u
    data = np.empty((n, 6))
    data[:, :3] = [s[1] for s in window]
    data[:, 3:] = _rotation_vectors(np.array([s[2] for s in window]), middle)
    inverse = np.linalg.inv(basis.T @ basis)
    c = inverse @ (basis.T @ data)
    start = float(t[0])
    vel = tuple((c[1, :3] / width).tolist())
    rate = tuple((c[1, 3:] / width).tolist())

    airframe = detector.airframe
    want = ballistic.acceleration(airframe, window[middle][2], vel)
    drag = sum(airframe.drag) / (3.0 * airframe.mass)
    acc = [2.0 * a / width**2 - b for a, b in zip(c[2, :3].tolist(), want, strict=True)]
    jerk = [6.0 * a / width**3 + drag * b for a, b in zip(c[3, :3].tolist(), want, strict=True)]
    turn = ballistic.spin(airframe, rate, airframe.damping)
    twist = [2.0 * a / width**2 - b for a, b in zip(c[2, 3:].tolist(), turn, strict=True)]
    back = float(u[0]) * width
    up = vel[2] + want[2] * back

    rest = data[:, :3] - basis @ c[:, :3]
    noise = min(detector.position_std, MARGIN * math.sqrt(float((rest * rest).sum()) / (3 * n - 12)))
    acc_std = 2.0 * math.sqrt(inverse[2, 2]) * noise / width**2
    jerk_std = 6.0 * math.sqrt(inverse[3, 3]) * noise / width**3
    twist_std = 2.0 * math.sqrt(inverse[2, 2]) * detector.attitude_std / width**2
    speed = math.hypot(*vel)
    model = airframe.drag_spread * drag * speed
    bound, climb = (CONFIRM_ACC, CONFIRM_MPS) if span >= CONFIRM_S else (SPECULATE_ACC, SPECULATE_MPS)
    spin_speed = math.hypot(*rate)
    twist_limit = 4.2 * twist_std + airframe.damping * spin_speed + 0.15 * spin_speed**2
    acc_error, jerk_error, twist_error = math.hypot(*acc), math.hypot(*jerk), math.hypot(*twist)
    # Together they are chi-square with 6 degrees of freedom: a hand that passes through free fall fails by their sum.
    both = acc_error**2 / (acc_std**2 + model**2) + (jerk_error / jerk_std) ** 2
    reason = ""
    if acc_error > bound or both > JOINT:
        reason = f"acceleration {acc_error:.1f} m/s2 and jerk {jerk_error:.0f} m/s3 off free fall"
    elif spin_speed > RATE_MAX:
        reason = f"spin {spin_speed:.0f} rad/s"
    elif twist_error > twist_limit:
        reason = f"angular acceleration {twist_error:.0f} rad/s2 off torque-free"
    elif up < climb:
        reason = f"rises at only {up:.1f} m/s"
    elif window[-1][1][2] < HEIGHT_MIN:
        reason = f"only {window[-1][1][2]:.2f} m high"
    return Free(not reason, reason, start, vel, rate, float(t[middle]), want, both, up)


def _release(detector: Detector, free: Free) -> float:
    """When the flight began: where the frames leave the parabola of the latest ones, going back, host s.

    A jump of acceleration makes the distance grow with the square of the time before release, a hand that opens while
    it falls freely with the cube. The power 0.4 makes both nearly a line, which is followed to zero: late by a few ms
    for the one, early for the other.
    """
    samples = detector.samples
    middle_t = 0.5 * (max(free.t_start, samples[-1][0] - RECENT_S) + samples[-1][0])
    inside = [s for s in samples if s[0] >= 2.0 * middle_t - samples[-1][0] - 1e-6]
    age = middle_t - free.t_middle
    acc = free.acc
    drag = sum(detector.airframe.drag) / (3.0 * detector.airframe.mass)
    vel = [v + a * age - 0.5 * drag * a * age * age for v, a in zip(free.vel, acc, strict=True)]
    acc = [a - drag * a * age for a in acc]
    # Offset and velocity once more, from the latest frames alone: the window's own may hold some of the hand.
    n = len(inside)
    times = [s[0] - middle_t for s in inside]
    mean, square = sum(times) / n, sum(t * t for t in times)
    offset = [0.0, 0.0, 0.0]
    for i in range(3):
        rest = [s[1][i] - _path(vel[i], acc[i], drag, t) for s, t in zip(inside, times, strict=True)]
        slope = (sum(r * t for r, t in zip(rest, times, strict=True)) - mean * sum(rest)) / (square - n * mean * mean)
        vel[i] += slope
        offset[i] = sum(rest) / n - slope * mean
    roots: list[tuple[float, float]] = []
    for t, pos, _ in reversed(samples):
        age = t - middle_t
        apart = math.dist(pos, [offset[i] + _path(vel[i], acc[i], drag, age) for i in range(3)])
        if apart > APART * detector.position_std and t < inside[0][0]:
            roots.append((t, apart**0.4))
        else:
            roots.clear()
        if len(roots) == 4:
            break
    if len(roots) < 2:
        return free.t_start
    (t1, r1), (t0, r0) = roots[0], roots[-1]
    if r0 <= r1:
        return t1
    return min(inside[0][0], t1 + r1 * (t1 - t0) / (r0 - r1))


def _path(vel: float, acc: float, drag: float, age: float) -> float:
    return age * (vel + age * (0.5 * acc - drag * acc * age / 6.0))


def _fly(detector: Detector, free: Free, t_from: float) -> Ballistic | None:
    """The ballistic filter over all samples since ``t_from``."""
    flight = None
    rate, vel = free.ang_vel, free.vel
    for t, pos, quat in detector.samples:
        if t < t_from:
            continue
        if flight is None:
            flight = ballistic.init(
                detector.airframe, t, pos, quat, vel, rate, detector.position_std, detector.attitude_std
            )
        else:
            flight, _ = ballistic.step(
                flight, detector.airframe, t, pos, quat, detector.position_std, detector.attitude_std
            )
    return flight


def _call_off(detector: Detector, reason: str) -> tuple[Detector, News]:
    return detector._replace(stage="", flight=None, fails=0), News("ABORT", reason)


def observe(
    detector: Detector, sample: Sample, climb: float, now: float, *, armed: bool
) -> tuple[Detector, News | None]:
    """One frame that the tracking filter accepted.

    Args:
        detector: before the frame.
        sample: exposure (host s), position, attitude.
        climb: vertical speed by the tracking filter, m/s; used only to skip the test of bodies that do not rise.
        now: host s.
        armed: the operator's window is open, so that a throw may begin.

    Returns:
        The detector, and the news if the stage changed. A speculated throw always ends in CONFIRM or ABORT.

    """
    if detector.samples and sample[0] <= detector.samples[-1][0]:
        return detector, None
    oldest = sample[0] - KEEP_S
    samples = detector.samples
    drop = 0
    while drop < len(samples) and samples[drop][0] < oldest:
        drop += 1
    detector = detector._replace(samples=(*samples[drop:], sample))
    if detector.flight is not None:
        flight, _ = ballistic.step(
            detector.flight, detector.airframe, *sample, detector.position_std, detector.attitude_std
        )
        detector = detector._replace(flight=flight)
    if detector.stage == "CONFIRM":
        return _follow(detector, now)
    if detector.stage == "SPECULATE":
        return _decide(detector, now)
    if detector.spent or not armed or climb < CLIMB_MPS:
        return detector, None
    free = examine(detector, SPECULATE_S)
    if free is None or not free.free:
        return detector, None
    t_release = _release(detector, free)
    flight = _fly(detector, free, t_release)
    return detector._replace(stage="SPECULATE", t_release=t_release, flight=flight, fails=0, passes=0), News(
        "SPECULATE"
    )


def _decide(detector: Detector, now: float) -> tuple[Detector, News | None]:
    """Confirm or call off a speculated throw."""
    if now - detector.t_release > LATE_S:
        return _call_off(detector, f"not confirmed within {LATE_S * 1e3:.0f} ms of release")
    whole = examine(detector, CONFIRM_S)
    passes = detector.passes + 1 if whole is not None and whole.free else 0
    detector = detector._replace(passes=passes)
    if passes >= PASSES:
        t_release = _release(detector, whole)
        flight = _fly(detector, whole, t_release)
        confirmed = detector._replace(
            stage="CONFIRM", t_release=t_release, t_confirm=now, flight=flight, fails=0, spent=True
        )
        return confirmed, News("CONFIRM")
    recent = examine(detector, SPECULATE_S)
    if recent is None:
        return detector, None
    fails = detector.fails + 1 if recent.score > CALL_OFF else 0
    if fails >= FAILS:
        return _call_off(detector, f"not thrown: {recent.reason}")
    return detector._replace(fails=fails), None


def _follow(detector: Detector, now: float) -> tuple[Detector, News | None]:
    """After confirmation: a run of frames off the parabola ends the flight, as an abort while no rotor can turn."""
    flight = detector.flight
    if flight is None or flight.misses < MISSES:
        return detector, None
    if now < detector.t_confirm + SPIN_UP_S:
        return _call_off(detector, "caught or hit: left free flight")
    return land(detector), None


def expire(detector: Detector, now: float, activate_s: float) -> tuple[Detector, News | None]:
    """What the mere passing of time ends: a throw that is not seen to its confirmation, a flight after its takeover."""
    if detector.stage == "SPECULATE" and now - detector.t_release > LATE_S:
        return _call_off(detector, f"not confirmed within {LATE_S * 1e3:.0f} ms of release")
    if detector.stage == "CONFIRM" and now - detector.t_release > activate_s:
        return land(detector), None
    return detector, None


def land(detector: Detector) -> Detector:
    """The flight is over, or somebody else's: no more predictions."""
    return detector._replace(stage="", flight=None)


def idle_from(detector: Detector, t: float) -> Detector:
    """The rotors are expected to idle from host time ``t``."""
    flight = detector.flight
    return detector if flight is None else detector._replace(flight=flight._replace(t_idle=t))


def infeasible(
    at: Kinematics, airframe: Airframe, floor_margin: float, low: Vec3, high: Vec3, thrust_share: float = 0.9
) -> str:
    """Why a takeover there cannot be caught; empty when it can.

    The stop takes v_z^2 / (2 a) of height with a = share of the full thrust less gravity.
    """
    net = thrust_share * 4.0 * airframe.thrust_max / airframe.mass - GRAVITY
    z, fall = at.pos[2], at.vel[2]
    if net <= 0.0:
        return "infeasible: thrust does not carry the drone"
    stop = z - (fall * fall / (2.0 * net) if fall < 0.0 else 0.0)
    if stop < floor_margin:
        return f"infeasible: stops {stop:.2f} m above the floor, {floor_margin:.2f} m are needed; throw higher"
    top = z + (fall * fall / (2.0 * GRAVITY) if fall > 0.0 else 0.0)
    for axis, value in zip("xyz", (at.pos[0], at.pos[1], top), strict=True):
        i = "xyz".index(axis)
        if not low[i] < value < high[i]:
            return f"infeasible: {axis} {value:.2f} m is outside {low[i]:.2f}..{high[i]:.2f} m of the space"
    return ""
