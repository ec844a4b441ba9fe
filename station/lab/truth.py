"""What really happened in one throw: trajectory, moments, drawn parameters. Written by the lab, read by the judge."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

RATE_HZ = 500
BEFORE_S = 1.0
"""Time kept from before the release."""
AFTER_S = 60.0
"""Time kept from the release on; a drone still flying then is recorded no further."""
FIELDS = {"t_plant": 1, "t_host": 1, "pos": 3, "quat": 4, "vel": 3, "ang_vel": 3, "rotor_rpm": 4}
_WIDTH = sum(FIELDS.values())


@dataclass(frozen=True)
class Truth:
    """One throw. All times are seconds since release; without a release, since the run began.

    Shapes: t_plant, t_host (N,); pos, vel, ang_vel (N, 3); quat (N, 4) xyzw; rotor_rpm (N, 4). World frame, z up, SI;
    body rates in the body frame.
    """

    t_plant: Array
    t_host: Array
    pos: Array
    quat: Array
    vel: Array
    ang_vel: Array
    rotor_rpm: Array
    scalars: dict[str, float] = field(default_factory=dict)
    """`release_s`: the host's clock at the release. `activation_s`, `touchdown_s`: host seconds since then, and each of
    the three again as `..._plant_s` on the plant's clock; NaN for what did not happen. `touchdown_mps`,
    `touchdown_tilt_deg`: just before the floor. `plant_lag_max_s`, `seed`, and `factor_...` of each drawn parameter."""

    def moment(self, name: str) -> float | None:
        """A moment on the plant's clock by name: "release", "activation", "touchdown"; None when it did not come."""
        value = self.scalars.get(f"{name}_plant_s", math.nan)
        return None if math.isnan(value) else value


class Recorder:
    """Rows of truth in memory reserved beforehand: a ring until the release, then to the end or until full."""

    def __init__(self) -> None:
        self._ring = np.zeros((int(BEFORE_S * RATE_HZ), _WIDTH))
        self._after = np.zeros((int(AFTER_S * RATE_HZ), _WIDTH))
        self._seen = 0
        self._kept = 0
        self._released = False

    def add(self, t_plant: float, t_host: float, state: Array) -> None:
        """One row; ``state`` (17,) is pos, quat, vel, ang_vel, rotor_rpm."""
        if self._released:
            if self._kept == len(self._after):
                return
            row = self._after[self._kept]
            self._kept += 1
        else:
            row = self._ring[self._seen % len(self._ring)]
            self._seen += 1
        row[0], row[1] = t_plant, t_host
        row[2:] = state

    def release(self) -> None:
        """From now on every row is kept."""
        self._released = True

    def truth(self, t_plant: float, t_host: float, scalars: dict[str, float]) -> Truth:
        """Everything kept, in order of time, with ``t_plant`` and ``t_host`` as the zeros of the two clocks."""
        head = self._seen % len(self._ring)
        before = np.roll(self._ring, -head, axis=0) if self._seen > len(self._ring) else self._ring[: self._seen]
        rows = np.concatenate([before, self._after[: self._kept]])
        rows[:, 0] -= t_plant
        rows[:, 1] -= t_host
        columns, start = {}, 0
        for name, width in FIELDS.items():
            columns[name] = rows[:, start] if width == 1 else rows[:, start : start + width]
            start += width
        return Truth(**columns, scalars=scalars)


def save(truth: Truth, path: Path) -> None:
    """Write an .npz: one array a field, and one 0-dimensional array a scalar. `OSError` when it cannot."""
    arrays = {name: getattr(truth, name) for name in FIELDS}
    with path.open("wb") as file:
        np.savez(file, **arrays, **{name: np.float64(value) for name, value in truth.scalars.items()})


def load(path: Path) -> Truth:
    """Read what `save` wrote."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in FIELDS}
        scalars = {name: float(file[name]) for name in file.files if name not in FIELDS}
    return Truth(**arrays, scalars=scalars)
