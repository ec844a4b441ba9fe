"""A client of a running daemon: verbs out, telemetry in. Blocking, with bounded waits."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import zmq

from station import messages as m
from station import wires
from station.clock import Clock

QUEUE = 100_000
"""Messages that wait for a client busy elsewhere: minutes of telemetry."""


class Silence(Exception):
    """The daemon did not answer in time."""


class Client:
    """One connection to the daemon of a run directory; a context manager."""

    def __init__(self, run_dir: Path, clock: Clock) -> None:
        self._address = wires.endpoint(run_dir, "api")
        self._context = zmq.Context()
        self._clock = clock
        self._telemetry = wires.subscriber(self._context, run_dir, "telemetry", queue=QUEUE)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._context.destroy(linger=0)

    def ask(self, name: str, drone: str = "", timeout_s: float = 2.0, **values: float | str) -> m.Reply:
        """Send a verb and return its reply.

        Raises:
            Silence: no answer within ``timeout_s`` host seconds.
        """
        socket = self._context.socket(zmq.REQ)
        socket.linger = 0
        socket.connect(self._address)
        try:
            socket.send(m.encode(m.Verb(t=self._clock.now(), name=name, drone=drone, values=values)))
            if not socket.poll(timeout_s * 1e3):
                raise Silence(f"the daemon did not answer '{name}' within {timeout_s:g} s")
            reply = m.decode(socket.recv())
        finally:
            socket.close()
        assert isinstance(reply, m.Reply)
        return reply

    def next(self, timeout_s: float) -> m.Message | None:
        """The next telemetry message, or None after ``timeout_s`` host seconds."""
        if not self._telemetry.poll(timeout_s * 1e3):
            return None
        return wires.receive(self._telemetry)
