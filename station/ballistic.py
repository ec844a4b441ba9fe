"""Free flight of a drone without thrust: model, filter and prediction. Does not decide whether a drone flies freely.

14 error states: position, attitude (body rotation vector), velocity, body rate, rotational damping c, drag scale k.
    v' = -g e_z - k R C R' v / m + f(t) R e_z        w' = J^-1 (-w x J w) - c w
f is the thrust of rotors that idle from `Ballistic.t_idle` on. Without process noise on the motion this is the least
squares fit of all frames since release; c and k stay uncertain and so widen, correctly correlated, what is predicted.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from station import quaternion
from station.airframe import GRAVITY, Airframe
from station.estimate import Kinematics
from station.quaternion import Quat, Vec3

GATE = 40.0
"""Of chi-square with 6 degrees of freedom."""
RATE_MODEL = 0.07
"""Error of the inertia's ratios, as a share of the gyroscopic acceleration."""
IDLE_SHARE = 0.5
"""Standard deviation of the idle thrust, as a share: its start is not seen from here."""
STEP_S = 0.01
"""Longest step of a prediction; the second-order error over 0.3 s stays below 1 mm and 0.1 deg."""
_EYE = np.eye(14)


class Ballistic(NamedTuple):
    """A body in free flight at ``t``."""

    t: float
    pos: Vec3
    quat: Quat
    vel: Vec3
    ang_vel: Vec3
    damping: float
    drag_scale: float
    cov: np.ndarray
    """(14, 14): position, attitude, velocity, body rate, damping, drag scale."""
    t_idle: float = math.inf
    """When the rotors begin to idle, host s."""
    misses: int = 0
    """Frames in a row outside the gate."""
    frames: int = 0


def init(
    airframe: Airframe,
    t: float,
    pos: Vec3,
    quat: Quat,
    vel: Vec3,
    ang_vel: Vec3,
    position_std: float,
    attitude_std: float,
) -> Ballistic:
    """Free flight from one frame and a rough velocity and rate, which are then left to the frames."""
    std = [position_std] * 3 + [attitude_std] * 3 + [1.0] * 3 + [5.0] * 3 + [airframe.damping_std, airframe.drag_spread]
    return Ballistic(t, pos, quat, vel, ang_vel, airframe.damping, 1.0, np.diag(np.square(std)))


def spin(airframe: Airframe, w: Vec3, damping: float) -> Vec3:
    """Angular acceleration of the free body, rad/s^2, body axes."""
    jx, jy, jz = airframe.inertia
    x, y, z = w
    return (
        (jy - jz) / jx * y * z - damping * x,
        (jz - jx) / jy * z * x - damping * y,
        (jx - jy) / jz * x * y - damping * z,
    )


def idle_acceleration(airframe: Airframe, since: float) -> float:
    """Thrust over mass of four rotors that began to idle ``since`` seconds ago, m/s^2 along body z."""
    if since <= 0.0:
        return 0.0
    share = 1.0 - math.exp(-airframe.rotor_rise * since)
    return 4.0 * airframe.thrust_min / airframe.mass * share * share


def _drag(airframe: Airframe, rows: quaternion.Mat3, vel: Vec3) -> Vec3:
    """Nominal drag over mass, world frame."""
    (a, b, c), (d, e, f), (g, h, i) = rows
    x, y, z = vel
    k = -1.0 / airframe.mass
    dx, dy, dz = airframe.drag
    u, v, w = k * dx * (a * x + d * y + g * z), k * dy * (b * x + e * y + h * z), k * dz * (c * x + f * y + i * z)
    return (a * u + b * v + c * w, d * u + e * v + f * w, g * u + h * v + i * w)


def acceleration(airframe: Airframe, quat: Quat, vel: Vec3) -> Vec3:
    """Gravity and nominal drag, m/s^2, world frame, rotors still."""
    x, y, z = _drag(airframe, quaternion.matrix(quat), vel)
    return (x, y, z - GRAVITY)


def _advance(state: Ballistic, airframe: Airframe, dt: float) -> Ballistic:
    """One midpoint step of mean and covariance."""
    h = 0.5 * dt
    vel, rate, c, k = state.vel, state.ang_vel, state.damping, state.drag_scale
    alpha = spin(airframe, rate, c)
    mid = (rate[0] + h * alpha[0], rate[1] + h * alpha[1], rate[2] + h * alpha[2])
    alpha = spin(airframe, mid, c)
    quat_mid = quaternion.multiply(state.quat, quaternion.exp((h * rate[0], h * rate[1], h * rate[2])))
    rows = quaternion.matrix(quat_mid)
    thrust = idle_acceleration(airframe, state.t + h - state.t_idle)
    lift = (thrust * rows[0][2], thrust * rows[1][2], thrust * rows[2][2] - GRAVITY)
    push = _drag(airframe, rows, vel)
    vel_mid = tuple(v + h * (k * p + f) for v, p, f in zip(vel, push, lift, strict=True))
    push = _drag(airframe, rows, vel_mid)
    acc = tuple(k * p + f for p, f in zip(push, lift, strict=True))

    jx, jy, jz = airframe.inertia
    kx, ky, kz = (jy - jz) / jx, (jz - jx) / jy, (jx - jy) / jz
    x, y, z = mid
    drag = k * sum(airframe.drag) / (3.0 * airframe.mass)
    a = np.zeros((14, 14))
    a[0, 6] = a[1, 7] = a[2, 8] = a[3, 9] = a[4, 10] = a[5, 11] = 1.0
    a[3:6, 3:6] = ((0.0, z, -y), (-z, 0.0, x), (y, -x, 0.0))
    a[6, 6] = a[7, 7] = a[8, 8] = -drag
    a[6:9, 13] = push
    a[9:12, 9:12] = ((-c, kx * z, kx * y), (ky * z, -c, ky * x), (kz * y, kz * x, -c))
    a[9:12, 12] = (-x, -y, -z)
    if thrust > 0.0:
        for i in range(3):
            a[6 + i, 3], a[6 + i, 4] = -thrust * rows[i][1], thrust * rows[i][0]
    a *= dt
    f = _EYE + a + 0.5 * (a @ a)
    cov = f @ state.cov @ f.T
    sway = (IDLE_SHARE * thrust) ** 2 * 0.1 * dt
    for i, error in enumerate((kx * y * z, ky * z * x, kz * x * y)):
        cov[9 + i, 9 + i] += ((RATE_MODEL * error) ** 2 + 0.01) * 0.1 * dt
        cov[6 + i, 6 + i] += sway + 2.5e-4 * dt
    turn = quaternion.exp((dt * mid[0], dt * mid[1], dt * mid[2]))
    return state._replace(
        t=state.t + dt,
        pos=(state.pos[0] + dt * vel_mid[0], state.pos[1] + dt * vel_mid[1], state.pos[2] + dt * vel_mid[2]),
        vel=(vel[0] + dt * acc[0], vel[1] + dt * acc[1], vel[2] + dt * acc[2]),
        quat=quaternion.normalize(quaternion.multiply(state.quat, turn)),
        ang_vel=(rate[0] + dt * alpha[0], rate[1] + dt * alpha[1], rate[2] + dt * alpha[2]),
        cov=cov,
    )


def advance(state: Ballistic, airframe: Airframe, t: float) -> Ballistic:
    """The body at ``t``, no earlier than ``state.t``, without a measurement."""
    while t - state.t > 1e-9:
        left = t - state.t
        state = _advance(state, airframe, left / math.ceil(left / STEP_S - 1e-9))
    return state


def step(
    state: Ballistic, airframe: Airframe, t: float, pos: Vec3, quat: Quat, position_std: float, attitude_std: float
) -> tuple[Ballistic, float]:
    """One frame: the state at ``t`` and the normalised square of its innovation (6 degrees of freedom).

    A frame outside the gate is counted in `Ballistic.misses` and otherwise left out; one not newer changes nothing.
    """
    if t <= state.t:
        return state, 0.0
    at = advance(state, airframe, t)
    turn = quaternion.difference(at.quat, quat)
    residual = np.array((pos[0] - at.pos[0], pos[1] - at.pos[1], pos[2] - at.pos[2], *turn))
    cov = at.cov
    s = cov[:6, :6].copy()
    r_pos, r_att = position_std**2, attitude_std**2
    s.flat[::7] += (r_pos, r_pos, r_pos, r_att, r_att, r_att)
    gain = np.linalg.solve(s, cov[:6, :]).T
    chi = float(residual @ np.linalg.solve(s, residual))
    if chi > GATE:
        return at._replace(misses=state.misses + 1), chi
    d = (gain @ residual).tolist()
    cov = cov - gain @ cov[:6, :]
    return at._replace(
        pos=(at.pos[0] + d[0], at.pos[1] + d[1], at.pos[2] + d[2]),
        quat=quaternion.normalize(quaternion.multiply(at.quat, quaternion.exp((d[3], d[4], d[5])))),
        vel=(at.vel[0] + d[6], at.vel[1] + d[7], at.vel[2] + d[8]),
        ang_vel=(at.ang_vel[0] + d[9], at.ang_vel[1] + d[10], at.ang_vel[2] + d[11]),
        damping=at.damping + d[12],
        drag_scale=at.drag_scale + d[13],
        cov=0.5 * (cov + cov.T),
        misses=0,
        frames=state.frames + 1,
    ), chi


def predict_to(state: Ballistic, airframe: Airframe, t: float) -> Kinematics:
    """The body at ``t`` with the covariance that includes the unknown damping and drag."""
    at = advance(state, airframe, t)
    return Kinematics(t, at.pos, at.quat, at.vel, at.ang_vel, at.cov[:12, :12])
