"""The error-state filter of one tracked body: position, velocity, acceleration, attitude, body rate, its derivative.

18 error states. With noise that is the same along every axis their covariance is six 3 x 3 multiples of the identity
for the position and six for the attitude, so it is kept as twelve numbers and a frame costs microseconds. The attitude
error is a rotation vector in the body frame; its coupling by the body rate is left out of the covariance (not of the
mean): it turns blocks that are round. Acceleration fades with a time constant, so that a gap is not extrapolated far.

Knows no clock, no socket, and nothing of a throw: free flight is `station.ballistic`.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

from station import quaternion
from station.quaternion import Quat, Vec3

Half = tuple[float, float, float, float, float, float]
"""Covariance per axis of (x, x', x''): xx, xv, xa, vv, va, aa."""

START_FRAMES = 10
START_SPEED = 12.0
"""m/s; a start whose frames are further apart holds an outlier and waits for a cleaner one."""
STALE_S = 0.05
LOST_S = 0.15
GATE = 25.0
"""Of chi-square with 3 degrees of freedom: 1.5e-5 of good frames; room for the lag at a release."""
REOPEN_FRAMES = 3
REOPEN_M = 0.3
FLIP_RAD = 0.26
RATE_MAX = 35.0
"""rad/s; a turn faster than this and more than `FLIP_RAD` off is the solver's flip, not the body's motion."""


class Noise(NamedTuple):
    """What the filter is told of source and motion."""

    position_std: float = 0.0005
    attitude_std: float = 0.005
    jerk: float = 40.0
    """White jerk, m/s^3/sqrt(Hz)."""
    spin_jerk: float = 250.0
    """White second derivative of the body rate, rad/s^3/sqrt(Hz)."""
    fade_s: float = 0.3
    spin_fade_s: float = 0.15


class Kinematics(NamedTuple):
    """A rigid body at one time. World frame; ``ang_vel`` body frame."""

    t: float
    pos: Vec3
    quat: Quat
    vel: Vec3
    ang_vel: Vec3
    cov: np.ndarray
    """(12, 12): position, attitude (body rotation vector), velocity, body rate."""


class Innovation(NamedTuple):
    """What one frame was to the filter."""

    position: float = 0.0
    """Normalised square of the position innovation (3 degrees of freedom)."""
    attitude: float = 0.0
    position_used: bool = False
    attitude_used: bool = False
    flip: bool = False
    restarted: bool = False


class Filter(NamedTuple):
    """State of the filter at ``t``, the exposure of the newest frame used."""

    noise: Noise
    t: float = -math.inf
    started: bool = False
    start: tuple[tuple[float, Vec3, Quat], ...] = ()
    pos: Vec3 = (0.0, 0.0, 0.0)
    vel: Vec3 = (0.0, 0.0, 0.0)
    acc: Vec3 = (0.0, 0.0, 0.0)
    quat: Quat = quaternion.IDENTITY
    ang_vel: Vec3 = (0.0, 0.0, 0.0)
    ang_acc: Vec3 = (0.0, 0.0, 0.0)
    cov_pos: Half = (1.0, 0.0, 0.0, 1.0, 0.0, 1.0)
    cov_att: Half = (1.0, 0.0, 0.0, 1.0, 0.0, 1.0)
    t_pos: float = -math.inf
    """Newest frame whose position was used."""
    t_att: float = -math.inf
    refused: tuple[tuple[float, Vec3], ...] = ()
    """The latest run of positions outside the gate."""
    turned: tuple[float, ...] = ()
    """Times of the latest run of attitudes outside the gate."""


def init(noise: Noise) -> Filter:
    """A filter that has seen nothing."""
    return Filter(noise=noise)


def mode(state: Filter, t: float) -> Literal["INIT", "TRACK", "COAST", "LOST"]:
    """How far the state can be trusted at time ``t``."""
    if not state.started:
        return "INIT"
    age = t - state.t_pos
    return "TRACK" if age < STALE_S else "COAST" if age < LOST_S else "LOST"


def _grow(cov: Half, dt: float, density: float, fade_s: float) -> Half:
    xx, xv, xa, vv, va, aa = cov
    e = math.exp(-dt / fade_s)
    f1 = fade_s * (1.0 - e)
    f2 = fade_s * (dt - f1)
    q = density * density * dt
    xa1 = xa + dt * va + f2 * aa
    xv1 = xv + dt * vv + f2 * va
    va1 = va + f1 * aa
    dt2 = dt * dt
    return (
        xx + dt * xv + f2 * xa + dt * xv1 + f2 * xa1 + q * dt2 * dt2 / 20.0,
        xv1 + f1 * xa1 + q * dt2 * dt / 8.0,
        e * xa1 + q * dt2 / 6.0,
        vv + f1 * va + f1 * va1 + q * dt2 / 3.0,
        e * va1 + q * dt / 2.0,
        e * e * aa + q,
    )


def _shrink(cov: Half, r: float) -> tuple[Half, float, float, float]:
    xx, xv, xa, vv, va, aa = cov
    s = 1.0 / (xx + r)
    k0, k1, k2 = xx * s, xv * s, xa * s
    return (xx - k0 * xx, xv - k0 * xv, xa - k0 * xa, vv - k1 * xv, va - k1 * xa, aa - k2 * xa), k0, k1, k2


def _add(a: Vec3, b: Vec3, k: float) -> Vec3:
    return (a[0] + k * b[0], a[1] + k * b[1], a[2] + k * b[2])


def _square(a: Vec3) -> float:
    return a[0] * a[0] + a[1] * a[1] + a[2] * a[2]


def _advance(state: Filter, dt: float) -> Filter:
    """Motion and covariance ``dt`` further, without a measurement."""
    noise = state.noise
    e = math.exp(-dt / noise.fade_s)
    f1 = noise.fade_s * (1.0 - e)
    f2 = noise.fade_s * (dt - f1)
    s = math.exp(-dt / noise.spin_fade_s)
    g1 = noise.spin_fade_s * (1.0 - s)
    g2 = noise.spin_fade_s * (dt - g1)
    vel, acc, rate, alpha = state.vel, state.acc, state.ang_vel, state.ang_acc
    turn = (dt * rate[0] + g2 * alpha[0], dt * rate[1] + g2 * alpha[1], dt * rate[2] + g2 * alpha[2])
    return state._replace(
        t=state.t + dt,
        pos=_add(_add(state.pos, vel, dt), acc, f2),
        vel=_add(vel, acc, f1),
        acc=(e * acc[0], e * acc[1], e * acc[2]),
        quat=quaternion.normalize(quaternion.multiply(state.quat, quaternion.exp(turn))),
        ang_vel=_add(rate, alpha, g1),
        ang_acc=(s * alpha[0], s * alpha[1], s * alpha[2]),
        cov_pos=_grow(state.cov_pos, dt, noise.jerk, noise.fade_s),
        cov_att=_grow(state.cov_att, dt, noise.spin_jerk, noise.spin_fade_s),
    )


def _begin(state: Filter, t: float, pos: Vec3, quat: Quat) -> tuple[Filter, Innovation]:
    """Collect frames until ten agree; start from medians, which one outlier in three does not move."""
    frames = (*state.start, (t, pos, quat))[-START_FRAMES:]
    if len(frames) > 1 and t - frames[-2][0] > LOST_S:
        frames = frames[-1:]
    waiting = state._replace(start=frames, t=t, pos=pos, quat=quat)
    if len(frames) < START_FRAMES:
        return waiting, Innovation()
    half = START_FRAMES // 2
    span = (sum(f[0] for f in frames[half:]) - sum(f[0] for f in frames[:half])) / half
    early = tuple(sorted(f[1][i] for f in frames[:half])[half // 2] for i in range(3))
    late = tuple(sorted(f[1][i] for f in frames[half:])[half // 2] for i in range(3))
    vel = tuple((b - a) / span for a, b in zip(early, late, strict=True))
    if _square(vel) > START_SPEED**2:
        return waiting, Innovation()
    recent = [f[2] for f in frames[half:]]
    middle = min(recent, key=lambda q: sum(math.sqrt(_square(quaternion.difference(q, other))) for other in recent))
    noise = state.noise
    ahead = t - sorted(f[0] for f in frames[half:])[half // 2]
    return state._replace(
        t=t,
        started=True,
        start=(),
        pos=_add(late, vel, ahead),
        vel=vel,
        acc=(0.0, 0.0, 0.0),
        quat=middle,
        ang_vel=(0.0, 0.0, 0.0),
        ang_acc=(0.0, 0.0, 0.0),
        cov_pos=((3.0 * noise.position_std + 0.005) ** 2, 0.0, 0.0, 0.25, 0.0, 100.0),
        cov_att=((3.0 * noise.attitude_std + 0.05) ** 2, 0.0, 0.0, 25.0, 0.0, 2500.0),
        t_pos=t,
        t_att=t,
        refused=(),
        turned=(),
    ), Innovation(position_used=True, attitude_used=True, restarted=True)


def _open(state: Filter, pos: Vec3, off: Vec3) -> Filter | None:
    """The filter made wide again when positions outside the gate agree with each other: a hit, not an outlier."""
    run = state.refused
    if len(run) < REOPEN_FRAMES or _square(off) > REOPEN_M**2:
        return None
    for (t0, p0), (t1, p1) in zip(run, run[1:], strict=False):
        if _square(_add(p1, p0, -1.0)) > (0.01 + START_SPEED * (t1 - t0)) ** 2:
            return None
    xx, _, _, vv, _, _ = state.cov_pos
    wide = (xx + _square(off), 0.0, 0.0, vv + 4.0, 0.0, 2500.0)
    return state._replace(cov_pos=wide)


def step(state: Filter, t_meas: float, pos: Vec3, quat: Quat) -> tuple[Filter, Innovation]:
    """One frame.

    Args:
        state: filter before.
        t_meas: exposure, host s. A frame not newer than the state changes nothing.
        pos: measured position, m.
        quat: measured attitude, unit; either sign.

    Returns:
        The filter at ``t_meas`` and what the frame was to it. Attitude outside its gate is left out and the position
        used alone; a position that stays out of its gate for `LOST_S` starts the filter anew.

    """
    if not state.started:
        return _begin(state, t_meas, pos, quat) if t_meas > state.t else (state, Innovation())
    dt = t_meas - state.t
    if dt <= 0.0:
        return state, Innovation()
    if t_meas - state.t_pos > LOST_S:
        return _begin(Filter(noise=state.noise), t_meas, pos, quat)
    noise = state.noise
    r_pos, r_att = noise.position_std**2, noise.attitude_std**2
    new = _advance(state, dt)

    off = _add(pos, new.pos, -1.0)
    chi_pos = _square(off) / (new.cov_pos[0] + r_pos)
    use_pos = chi_pos < GATE
    if not use_pos:
        new = new._replace(refused=(*new.refused, (t_meas, pos))[-REOPEN_FRAMES:])
        opened = _open(new, pos, off)
        if opened is None:
            return new, Innovation(position=chi_pos)
        new, use_pos = opened, True
    cov_pos, k0, k1, k2 = _shrink(new.cov_pos, r_pos)

    turn = quaternion.difference(new.quat, quat)
    chi_att = _square(turn) / (new.cov_att[0] + r_att)
    use_att = chi_att < GATE
    turned_by = FLIP_RAD + min(1.0, RATE_MAX * (t_meas - state.t_att))
    flip = not use_att and math.sqrt(_square(turn)) > turned_by
    cov_att, turned = new.cov_att, ()
    new_quat, rate, alpha, t_att = new.quat, new.ang_vel, new.ang_acc, state.t_att
    if not use_att:
        turned = (*new.turned, t_meas)
        if flip and t_meas - turned[0] > LOST_S:
            new_quat, rate, alpha = quat, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)
            cov_att, turned, t_att = (r_att, 0.0, 0.0, 25.0, 0.0, 2500.0), (), t_meas
        elif not flip and len(turned) >= REOPEN_FRAMES:
            cov_att = (cov_att[0] + _square(turn), 0.0, 0.0, cov_att[3] + 25.0, 0.0, 1e4)
            use_att, turned = True, ()
    if use_att:
        cov_att, j0, j1, j2 = _shrink(cov_att, r_att)
        nudge = (j0 * turn[0], j0 * turn[1], j0 * turn[2])
        new_quat = quaternion.normalize(quaternion.multiply(new.quat, quaternion.exp(nudge)))
        rate, alpha, t_att = _add(rate, turn, j1), _add(alpha, turn, j2), t_meas
    return new._replace(
        pos=_add(new.pos, off, k0),
        vel=_add(new.vel, off, k1),
        acc=_add(new.acc, off, k2),
        cov_pos=cov_pos,
        quat=new_quat,
        ang_vel=rate,
        ang_acc=alpha,
        cov_att=cov_att,
        t_pos=t_meas,
        t_att=t_att,
        refused=(),
        turned=turned,
    ), Innovation(chi_pos, chi_att, True, use_att, flip)


_ROUND = np.array([13 * i + shift for shift in (0, 78, 6, 72, 39, 117, 45, 111) for i in range(3)])
"""Flat places in the 12 x 12 covariance: of pp, vv, pv, vp, aa, ww, aw, wa, three each."""


def predict_to(state: Filter, t: float) -> Kinematics:
    """The body at time ``t`` by the filter's own model; before `started`, the last frame at rest."""
    at = _advance(state, t - state.t) if state.started and t > state.t else state
    pp, pv, _, vv, _, _ = at.cov_pos
    aa, aw, _, ww, _, _ = at.cov_att
    cov = np.zeros(144)
    cov[_ROUND] = (pp, pp, pp, vv, vv, vv, pv, pv, pv, pv, pv, pv, aa, aa, aa, ww, ww, ww, aw, aw, aw, aw, aw, aw)
    return Kinematics(t, at.pos, at.quat, at.vel, at.ang_vel, cov.reshape(12, 12))
