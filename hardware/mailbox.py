"""What waits for one drone's radio, by urgency. Knows no radio; packets go in from any thread and out to one."""

from __future__ import annotations

import threading
from collections import deque
from enum import IntEnum

from hardware.crtp import Packet

QUEUE = 512
"""Bound of each first-in-first-out class."""


class Kind(IntEnum):
    """Classes of packets, most urgent first. Those in `LATEST` overwrite what waits, the others queue."""

    ESTOP = 0
    HEARTBEAT = 1
    POSE = 2
    SETPOINT = 3
    UPLOAD = 4
    COMMAND = 5


LATEST = frozenset((Kind.HEARTBEAT, Kind.POSE, Kind.SETPOINT))


class Mailbox:
    """What waits for the radio. Thread-safe; `put` never waits."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._queues: dict[Kind, deque[Packet]] = {kind: deque(maxlen=1 if kind in LATEST else None) for kind in Kind}
        self._closed = False
        self.overwritten = 0
        self.refused = 0

    def put(self, kind: Kind, packet: Packet) -> bool:
        """Queue or overwrite; False when a queue is full."""
        with self._condition:
            waiting = self._queues[kind]
            if kind in LATEST:
                self.overwritten += len(waiting)
            elif len(waiting) >= QUEUE:
                self.refused += 1
                return False
            waiting.append(packet)
            self._condition.notify()
            return True

    def drop(self, kind: Kind) -> int:
        """Forget what waits in one class; how many packets that were."""
        with self._condition:
            count = len(self._queues[kind])
            self._queues[kind].clear()
            return count

    def get(self, timeout_s: float) -> tuple[Kind, Packet] | None:
        """The most urgent packet; None after `timeout_s` without one, or when closed."""
        with self._condition:
            found = self._most_urgent()
            if found is None and not self._closed:
                self._condition.wait(timeout_s)
                found = self._most_urgent()
            return found

    def _most_urgent(self) -> tuple[Kind, Packet] | None:
        if self._closed:
            return None
        for kind, waiting in self._queues.items():
            if waiting:
                return kind, waiting.popleft()
        return None

    def close(self) -> None:
        """Wake and refuse the receiver for good."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
