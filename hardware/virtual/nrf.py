"""The radio of a virtual drone: Enhanced ShockBurst receiver and safelink counters. Knows no air, no thread, no clock.

Behaviour from crazyflie2-nrf-firmware `src/esb.c`: safelink is switched on by FF 05 01, which is answered by itself
and sets both 1-bit counters to 1; a packet whose up bit equals the counter is a repetition, and one whose down bit
does asks for the last payload again. Unlike that firmware, an acknowledgement with nothing to say is empty instead of
one null byte: cflib then polls an idle link at 100 Hz, not at full rate. And retries are told by their packet identity
already, which that firmware leaves to safelink.
"""

from __future__ import annotations

from collections import deque

from hardware.crtp import is_null

UP_BIT, DOWN_BIT = 0x08, 0x04
QUEUE = 8
"""Acknowledgement payloads waiting for a poll, as in the nRF51."""
INBOX = 64
"""Packets on their way to the drone. The real one resets when its queues overflow (`radiolink.c`); here they count."""


class Nrf:
    """One drone's radio. The air calls `receive`, the drone the rest; what they share are deques."""

    def __init__(self) -> None:
        self._inbox: deque[bytes] = deque()
        self._queue: deque[bytes] = deque()
        self._in_flight = b""
        self._safelink = False
        self._up = 1
        self._down = 1
        self._last_pid = -1
        self._last_raw = b""
        self._last_ack = b""
        self.received = 0
        self.duplicates = 0
        self.overflows = 0

    def receive(self, pid: int, raw: bytes) -> bytes:
        """A packet has come through the air.

        Args:
            pid: 2-bit packet identity of Enhanced ShockBurst; equal for the retries of one packet.
            raw: 1..32 bytes.

        Returns:
            The payload of the acknowledgement.

        """
        if pid == self._last_pid and raw == self._last_raw:
            self.duplicates += 1
            return self._last_ack
        self._last_pid, self._last_raw = pid, raw
        self._last_ack = self._answer(raw)
        return self._last_ack

    def _answer(self, raw: bytes) -> bytes:
        first = raw[0]
        if len(raw) == 3 and is_null(raw) and raw[1] == 0x05:
            self._safelink = bool(raw[2])
            self._up = self._down = 1
            self._in_flight = b""
            return raw
        if not self._safelink:
            self._deliver(raw)
            self._in_flight = self._next()
            return self._in_flight
        if bool(first & UP_BIT) != bool(self._up):
            self._up ^= 1
            self._deliver(raw)
        else:
            self.duplicates += 1
        if bool(first & DOWN_BIT) != bool(self._down):
            self._down ^= 1
            self._in_flight = b""
        if not self._in_flight:
            self._in_flight = self._next()
        if not self._in_flight:
            return b""
        return bytes((self._in_flight[0] & 0xF3 | self._down << 2,)) + self._in_flight[1:]

    def _deliver(self, raw: bytes) -> None:
        if is_null(raw):
            return
        if len(self._inbox) >= INBOX:
            self.overflows += 1
            return
        self.received += 1
        self._inbox.append(raw)

    def _next(self) -> bytes:
        try:
            return self._queue.popleft()
        except IndexError:
            return b""

    def take(self) -> bytes | None:
        """The next packet for the drone, in order and once each; None when there is none."""
        try:
            return self._inbox.popleft()
        except IndexError:
            return None

    @property
    def room(self) -> int:
        """Packets that `send` takes now."""
        return QUEUE - len(self._queue)

    def send(self, raw: bytes) -> bool:
        """Queue a packet for the ground; False when the queue is full and nothing was queued."""
        if len(self._queue) >= QUEUE:
            return False
        self._queue.append(raw)
        return True
