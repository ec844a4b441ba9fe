"""The gate before every pose that goes to a drone, and the ladder of losses. Pure; knows no radio and no clock.

Bad input never reaches the wire: upstream's external-pose path checks nothing, and one NaN or flip poisons the onboard
estimator (crazyflie-firmware, crtp_localization_service.c).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

from station import quaternion
from station.config import Space
from station.messages import Quat, Vec3


class Action(IntEnum):
    """What a loss calls for, in rising order; HOLD, LAND and KILL are three different things."""

    NONE = 0
    WARN = 1
    HOLD = 2
    LAND = 3
    KILL = 4


@dataclass(frozen=True)
class Rung:
    """From ``after_s`` on, ``action``."""

    after_s: float
    action: Action


POSE_LADDER = (Rung(0.05, Action.WARN), Rung(0.15, Action.HOLD), Rung(0.5, Action.LAND), Rung(1.5, Action.KILL))
"""Age of a flying drone's pose. KILL only outside the space or below `KILL_BELOW_M`."""
DAEMON_LADDER = (Rung(0.15, Action.HOLD), Rung(0.5, Action.LAND))
"""Silence of the daemon while a drone flies."""
KILL_BELOW_M = 0.5
PERIODS = 3.0
"""A pose is never stale before this many periods of its source."""

MAX_SPEED_MPS = 15.0
MAX_UNIT_ERROR = 0.02


def pose_action(age_s: float, period_s: float, height_m: float, inside: bool) -> Action:
    """What the age of the newest pose calls for.

    Args:
        age_s: since the newest pose was measured.
        period_s: of the source.
        height_m: last known height.
        inside: whether the last known position lies in the flight volume.
    """
    action = Action.NONE
    for rung in POSE_LADDER:
        if age_s >= max(rung.after_s, PERIODS * period_s):
            action = rung.action
    if action is Action.KILL and inside and height_m >= KILL_BELOW_M:
        return Action.LAND
    return action


def daemon_action(silence_s: float) -> Action:
    """What the daemon's silence calls for."""
    return max((rung.action for rung in DAEMON_LADDER if silence_s >= rung.after_s), default=Action.NONE)


def inside(pos: Vec3, space: Space) -> bool:
    """Whether a position lies in the flight volume."""
    return all(low <= p <= high for low, p, high in zip(space.low, pos, space.high, strict=True))


def refuse_pose(pos: Vec3, quat: Quat, vel: Vec3, space: Space, margin_m: float = 1.0) -> str:
    """Why this pose must not go to a drone; empty when it may.

    Args:
        pos: m, world frame.
        quat: xyzw, body to world.
        vel: m/s, world frame.
        space: the flight volume.
        margin_m: a pose this far outside the volume is still a pose: the drone needs it to come back.
    """
    if not all(map(math.isfinite, (*pos, *quat, *vel))):
        return "not finite"
    if abs(math.hypot(*quat) - 1.0) > MAX_UNIT_ERROR:
        return f"quaternion of norm {math.hypot(*quat):.3f}"
    for axis, low, p, high in zip("xyz", space.low, pos, space.high, strict=True):
        if not low - margin_m <= p <= high + margin_m:
            return f"{axis} = {p:.2f} m is outside the space [{low:g}, {high:g}] m"
    if math.hypot(*vel) > MAX_SPEED_MPS:
        return f"speed {math.hypot(*vel):.1f} m/s"
    return ""


def ahead(pos: Vec3, quat: Quat, vel: Vec3, ang_vel: Vec3, dt: float) -> tuple[Vec3, Quat]:
    """The pose ``dt`` seconds later at constant velocity and body rate: what the radio's latency is made up with."""
    moved = (pos[0] + vel[0] * dt, pos[1] + vel[1] * dt, pos[2] + vel[2] * dt)
    turn = quaternion.exp((ang_vel[0] * dt, ang_vel[1] * dt, ang_vel[2] * dt))
    return moved, quaternion.multiply(quat, turn)
