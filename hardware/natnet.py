"""Poses from a NatNet server (OptiTrack Motive) by UDP unicast. Owns one socket on the event loop, and no thread.

What the datagrams mean is `hardware.natnet_packets`, which of them are believed `hardware.natnet_session`.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable

from hardware.errors import SourceError
from hardware.natnet_packets import decode
from hardware.natnet_session import DISCONNECT, Session
from hardware.ports import Frame

__all__ = ["NatNetSource", "decode"]

DEADLINE_S = 2.0
"""Wall time that `NatNetSource.open` may take."""
RETRY_S = 0.2
"""Wall time between requests that go unanswered, and between looks at the stream."""
BURST = 64
"""Datagrams read before the event loop gets its turn."""
RECEIVE_BUFFER = 1 << 20


class NatNetSource:
    """Client of one NatNet server; a `hardware.ports.FrameSource`."""

    def __init__(
        self,
        host: str,
        command_port: int,
        on_frame: Callable[[Frame], None],
        clock: Callable[[], float],
        on_event: Callable[[str, str], None] | None = None,
    ) -> None:
        """Remember the address; nothing is opened.

        Args:
            host: of the server, IPv4 address or name.
            command_port: of the server (Motive: 1510); frames come to the socket that asked.
            on_frame: called on the event loop for every body of every accepted frame; must not block.
            clock: host seconds; read right after each datagram.
            on_event: called with the names and sentences that `Session` lists.

        """
        self._host, self._port = host, command_port
        self._on_frame, self._clock, self._on_event = on_frame, clock, on_event
        self._socket: socket.socket | None = None
        self._session: Session | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._progress = asyncio.Event()

    @property
    def address(self) -> str:
        """Where the server is, as given."""
        return f"{self._host}:{self._port}"

    @property
    def names(self) -> tuple[str, ...]:
        """Bodies that the server says it streams."""
        return tuple(self._session.names.values()) if self._session else ()

    @property
    def version(self) -> tuple[int, int] | None:
        """NatNet version of the server, once it has answered."""
        return self._session.info.version if self._session and self._session.info else None

    @property
    def counts(self) -> Counter[str]:
        """Figures of the stream: see `Session`."""
        return self._session.counts if self._session else Counter()

    @property
    def rejects(self) -> Counter[str]:
        """What was turned away, by reason: see `Session`."""
        return self._session.rejects if self._session else Counter()

    async def open(self, deadline_s: float = DEADLINE_S) -> None:
        """Connect, read the definitions and wait for the first frame.

        Raises:
            SourceError: within ``deadline_s`` of wall time; the text names the address, what is missing and the cure.

        """
        self._loop = loop = asyncio.get_running_loop()
        end = loop.time() + deadline_s
        server = (await self._resolve(deadline_s), self._port)
        self._session = session = Session(server, self._send, self._on_frame, self._on_event, self.address)
        try:
            self._socket = _bind_towards(server, self.address)
            loop.add_reader(self._socket, self._read)
            ask_at = loop.time()
            while self._socket and not session.streaming:
                now = loop.time()
                if session.info and not session.readable:
                    raise SourceError(f"NatNet server {self.address} {session.wrong_version()}")
                if now >= end:
                    raise SourceError(_excuse(session, self.address, deadline_s))
                if now >= ask_at:
                    session.ask(self._clock())
                    ask_at = now + RETRY_S
                self._progress.clear()
                try:
                    await asyncio.wait_for(self._progress.wait(), min(ask_at, end) - now)
                except TimeoutError:
                    continue
        except BaseException:
            self.close()
            raise
        if self._socket:  # else closed meanwhile, by the receiver of the first frame or another task
            self._timer = loop.call_later(RETRY_S, self._tend, loop)

    def close(self) -> None:
        """Say goodbye and give back the socket; harmless when already closed."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._socket:
            self._send(DISCONNECT)
            if self._loop and not self._loop.is_closed():
                self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    async def _resolve(self, deadline_s: float) -> str:
        try:
            return socket.inet_ntoa(socket.inet_pton(socket.AF_INET, self._host))
        except OSError:
            pass  # not an address: a name
        lookup = asyncio.get_running_loop().getaddrinfo(
            self._host, self._port, family=socket.AF_INET, type=socket.SOCK_DGRAM
        )
        try:
            found = await asyncio.wait_for(lookup, deadline_s)
        except (OSError, UnicodeError, TimeoutError):
            raise SourceError(
                f"NatNet server '{self._host}': no such host; set source.host to its IPv4 address or a name known here"
            ) from None
        return found[0][4][0]

    def _send(self, datagram: bytes) -> None:
        assert self._socket and self._session
        try:
            self._socket.sendto(datagram, self._session.server)
        except OSError as error:
            self._session.counts["send-failed"] += 1
            self._session.last_fault = f"sending to it: {error.strerror or error}"

    def _read(self) -> None:
        assert self._session
        for _ in range(BURST):
            try:
                datagram, sender = self._socket.recvfrom(65535)
            except OSError:  # nothing more to read, or an ICMP report of a server that is gone: it is greeted again
                break
            self._session.receive(datagram, sender, self._clock())
            if not self._socket:  # closed by the receiver of a frame
                break
        self._progress.set()

    def _tend(self, loop: asyncio.AbstractEventLoop) -> None:
        assert self._session
        self._timer = loop.call_later(RETRY_S, self._tend, loop)
        self._session.tend(self._clock())


def _bind_towards(server: tuple[str, int], address: str) -> socket.socket:
    """A nonblocking socket on the interface that leads to the server, so that other networks cannot even reach it."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(server)
            local = probe.getsockname()[0]
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        sock.bind((local, 0))
    except OSError as error:
        sock.close()
        raise SourceError(
            f"NatNet server {address}: {error.strerror or error}; correct source.host or connect its network"
        ) from None
    return sock


def _excuse(session: Session, address: str, deadline_s: float) -> str:
    """Why no frames came, and what to do about it."""
    within = f"within {deadline_s:g} s"
    faults = [f"{count} {reason}" for reason, count in session.rejects.most_common()]
    if session.last_fault:
        faults.append(f"last: {session.last_fault}")
    if faults:
        within += f" (turned away: {', '.join(faults)})"
    if not session.info:
        return (
            f"NatNet server {address} does not answer {within}; start it (Motive: Broadcast Frame Data on), "
            "or correct source.host and source.command_port"
        )
    server = f"NatNet server '{session.info.name}' at {address}"
    if not session.defined:
        return f"{server} answers but does not describe its rigid bodies {within}; restart its streaming"
    if session.info.multicast:
        return f"{server} answers but streams by multicast; set its transmission type to unicast"
    return (
        f"{server} answers but streams no frames {within}; start its stream (Motive: live or play), "
        f"or let UDP from its port {session.info.data_port} through the firewall"
    )
