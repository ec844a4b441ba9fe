"""The cameras' road to the wire: exposures wait out their latency and leave as NatNet frames. Makes no poses."""

from __future__ import annotations

import math
from collections import deque

import numpy as np
from numpy.typing import NDArray

from hardware.virtual.natnet import NatNetServer
from station import config
from station.lab.sensors import Mocap

Array = NDArray[np.float64]


class Cameras:
    """One rigid body seen at a fixed rate; frames never overtake each other."""

    def __init__(self, lab: config.LabConfig, server: NatNetServer) -> None:
        self._server = server
        self._body = lab.body
        self._period_s = 1.0 / lab.mocap_rate_hz
        self._waiting: deque[tuple[float, float, Mocap, Array, Array, bool]] = deque()
        self._next = -math.inf
        self._seq = 0

    def restart(self, now: float) -> None:
        """Begin a new grid of exposures at ``now``."""
        self._next = now

    def expose(self, t: float, mocap: Mocap, pos: Array, quat: Array, tracked: bool) -> None:
        """Take a picture if one is due at host time ``t`` (the time the pose is true for)."""
        if t < self._next - 1e-6:
            return
        self._next = max(self._next + self._period_s, t)
        if tracked:
            pos, quat = mocap.observe(pos, quat)
        else:
            pos, quat = pos.copy(), quat.copy()
        due = t + mocap.latency_s()
        if self._waiting:
            due = max(due, self._waiting[-1][0])
        self._waiting.append((due, t, mocap, pos, quat, tracked))

    @property
    def due(self) -> float:
        """Host time at which the next frame leaves; infinite when none waits."""
        return self._waiting[0][0] if self._waiting else math.inf

    def send(self, now: float) -> None:
        """Send what is due."""
        while self._waiting and self._waiting[0][0] <= now:
            _, t, mocap, pos, quat, tracked = self._waiting.popleft()
            self._seq += 1
            bodies = {self._body: (pos.tolist(), quat.tolist(), tracked)}
            self._server.send(self._seq, mocap.clock.at(t), bodies, t_transmit=mocap.clock.at(now))
