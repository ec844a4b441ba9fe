"""The verdict on a throw, from ground truth alone. Knows no wire, no estimate, and nothing the station says."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from station.lab.truth import Truth

Array = NDArray[np.float64]

MAX_LAG_S = 0.005
"""A plant further behind the host clock has not been flown in real time: the run does not count."""
FLOOR_M = 0.10
WITHIN_S = 2.0
STEADY_S = 0.5
STEADY_MPS = 0.5
STEADY_TILT_DEG = 15.0
STEADY_HEIGHT_M = (0.3, 3.0)
LANDING_MPS = 1.0
"""Whoever meets the floor faster than this after the catch has crashed, not landed."""
LANDING_TILT_DEG = 30.0


@dataclass(frozen=True)
class Verdict:
    """What became of one throw."""

    caught: bool
    reason: str
    """Why not caught; empty when caught."""
    min_height_m: float
    """Lowest point from release until 2 s after activation, or until the record ends."""
    final_speed_mps: float
    """At the end of that interval, as the tilt."""
    final_tilt_deg: float
    steady_s: float | None
    """When the half second of calm began, in seconds since release."""


@dataclass(frozen=True)
class PredictionError:
    """How far a predicted state was from the truth."""

    pos_m: float
    vel_mps: float
    att_deg: float
    rate_rps: float


def judge(truth: Truth) -> Verdict:
    """Caught or not, and why not.

    Caught: never below 0.10 m from release until 2 s after activation; within these 2 s half a second without break at
    less than 0.5 m/s, less than 15 deg of tilt and between 0.3 and 3 m; after that no crash. A run whose plant lagged
    more than 5 ms behind the host is never caught.
    """
    release, activation = truth.moment("release"), truth.moment("activation")
    if release is None:
        return Verdict(False, "never released", math.nan, math.nan, math.nan, None)
    end = WITHIN_S + (activation if activation is not None else 0.0)
    flight = (truth.t_plant >= 0.0) & (truth.t_plant <= end + 1e-9)
    if not flight.any():
        return Verdict(False, "the record holds nothing after the release", math.nan, math.nan, math.nan, None)
    t, height = truth.t_plant[flight], truth.pos[flight, 2]
    speed, tilt = np.linalg.norm(truth.vel[flight], axis=1), tilt_deg(truth.quat[flight])
    calm = (speed < STEADY_MPS) & (tilt < STEADY_TILT_DEG)
    calm &= (height > STEADY_HEIGHT_M[0]) & (height < STEADY_HEIGHT_M[1])
    steady = None if activation is None else _first_run(t, calm & (t >= activation), STEADY_S)
    reason = _reason(truth, activation, t, height, steady)
    return Verdict(not reason, reason, float(height.min()), float(speed[-1]), float(tilt[-1]), steady)


def prediction_error(  # noqa: PLR0917  the order of a state everywhere
    truth: Truth, t: float, pos: ArrayLike, quat: ArrayLike, vel: ArrayLike, ang_vel: ArrayLike
) -> PredictionError:
    """A prediction against the truth at ``t``, seconds of the host since release (the moment of activation).

    Args:
        truth: What happened.
        t: When.
        pos: (3,) world frame, m.
        quat: (4,) body to world, xyzw.
        vel: (3,) world frame, m/s.
        ang_vel: (3,) body frame, rad/s.
    """
    i = int(np.argmin(np.abs(truth.t_host - t)))
    cosine = min(1.0, abs(float(np.dot(truth.quat[i], quat))) / float(np.linalg.norm(quat)))
    return PredictionError(
        pos_m=float(np.linalg.norm(truth.pos[i] - np.asarray(pos))),
        vel_mps=float(np.linalg.norm(truth.vel[i] - np.asarray(vel))),
        att_deg=math.degrees(2.0 * math.acos(cosine)),
        rate_rps=float(np.linalg.norm(truth.ang_vel[i] - np.asarray(ang_vel))),
    )


def tilt_deg(quat: Array) -> Array:
    """Angle between body z and world z of the attitudes (N, 4), degrees (N,)."""
    up = 1.0 - 2.0 * (quat[:, 0] ** 2 + quat[:, 1] ** 2)
    return np.degrees(np.arccos(np.clip(up, -1.0, 1.0)))


def _reason(truth: Truth, activation: float | None, t: Array, height: Array, steady: float | None) -> str:
    lag = truth.scalars.get("plant_lag_max_s", math.inf)
    if not lag <= MAX_LAG_S:
        return f"the plant lagged {1e3 * lag:.1f} ms behind the host, {1e3 * MAX_LAG_S:.0f} ms are allowed"
    if not all(np.isfinite(a).all() for a in (truth.pos, truth.quat, truth.vel, truth.ang_vel)):
        return "the truth is not finite"
    low = height < FLOOR_M
    if low.any():
        return f"below {FLOOR_M:.2f} m at {t[low.argmax()]:.2f} s"
    if activation is None:
        return "no policy was activated"
    if t[-1] < activation + WITHIN_S - 0.01:
        return f"the record ends {t[-1] - activation:.2f} s after activation"
    if steady is None:
        return f"not calm for {STEADY_S} s within {WITHIN_S:.0f} s of activation"
    speed, tilt = truth.scalars.get("touchdown_mps", math.nan), truth.scalars.get("touchdown_tilt_deg", math.nan)
    if speed > LANDING_MPS or tilt > LANDING_TILT_DEG:
        return f"crashed after the catch: met the floor at {speed:.1f} m/s, tilted {tilt:.0f} deg"
    return ""


def _first_run(t: Array, good: NDArray[np.bool_], length_s: float) -> float | None:
    """When the first stretch of ``good`` samples that lasts ``length_s`` begins."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], good, [False]]).astype(np.int8)))
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        if t[end - 1] - t[begin] >= length_s - 1e-9:
            return float(t[begin])
    return None
