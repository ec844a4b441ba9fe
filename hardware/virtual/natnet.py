"""A NatNet server for a virtual lab: Motive's unicast answers and frames, built from poses. Owns a socket, no thread.

It streams what it is given, also what no camera would see (NaN, a wrong norm): whoever listens must cope. One process
calls `NatNetServer.service` and `NatNetServer.send` from its loop, and neither waits.
"""

from __future__ import annotations

import errno
import functools
import socket
import struct
from collections.abc import Mapping, Sequence

from hardware import natnet_packets as packets
from hardware.errors import EncodingError, PortInUse, SourceError

CLOCK_HZ = 10_000_000
"""Ticks per second of the stamps: the performance counter of a Windows host."""
FORGET_S = 5.0
"""A client that has been silent for this long is no longer streamed to."""
CLIENTS = 16
"""More are told nothing."""

Version = tuple[int, int]
Vector = Sequence[float]
Pose = tuple[Vector, Vector, bool]
"""Position (m), quaternion (xyzw, body to world), whether the cameras see it."""


@functools.cache
def _layout(count: int, sized: bool) -> struct.Struct:
    """A whole frame of ``count`` rigid bodies and nothing else, so that one call packs it."""
    bodies = "i8fh" * count
    if sized:  # count and size of each section: marker sets, others, bodies, then the five after them
        return struct.Struct(f"<HHi4i2i{bodies}10iIIdQQQIIhi")
    return struct.Struct(f"<HHi2ii{bodies}4iIIdQQQhi")


def encode_frame(
    seq: int,
    bodies: Sequence[tuple[int, Vector, Vector, bool]],
    stamps_s: tuple[float, float, float],
    version: Version = (4, 0),
    *,
    error_m: float = 0.0002,
    models_changed: bool = False,
) -> bytes:
    """One frame of mocap data.

    Args:
        seq: frame number.
        bodies: streaming id, position (m), quaternion (xyzw) and tracked of each.
        stamps_s: camera mid-exposure, camera data received, transmit: seconds of the server's clock, not negative.
        version: NatNet 3.0 to 4.2.
        error_m: mean marker error of the bodies.
        models_changed: set the flag that tells clients to read the definitions again.

    Raises:
        EncodingError: a stamp or number that the wire has no room for.

    """
    sized = version >= (4, 1)
    layout = _layout(len(bodies), sized)
    fields: list[float] = []
    for body, pos, quat, tracked in bodies:
        fields += (body, *pos, *quat, error_m, tracked)
    try:
        exposure, received, transmit = (round(stamp * CLOCK_HZ) for stamp in stamps_s)
        flags = packets.FRAME_MODELS_CHANGED if models_changed else 0
        head = (packets.FRAME, layout.size - packets.HEADER.size, seq)
        if sized:
            size = len(bodies) * packets.BODY.size
            precise = (exposure // CLOCK_HZ & 0xFFFFFFFF, 0)
            tail = (0, 0, stamps_s[0], exposure, received, transmit, *precise, flags, 0)
            return layout.pack(*head, 0, 0, 0, 0, len(bodies), size, *fields, *(0,) * 10, *tail)
        tail = (0, 0, stamps_s[0], exposure, received, transmit, flags, 0)
        return layout.pack(*head, 0, 0, len(bodies), *fields, 0, 0, 0, 0, *tail)
    except (struct.error, OverflowError, ValueError) as error:
        raise EncodingError(
            f"NatNet frame {seq} with stamps {stamps_s} s: {error}; stamps are >= 0 and finite"
        ) from None


def encode_server_info(name: str, version: Version, data_port: int) -> bytes:
    """Answer to CONNECT; versions before 3.0 end after the version, as theirs do."""
    payload = packets.SERVER.pack(name.encode()[:255], 0, 1, 0, 0, *version, 0, 0)
    if version >= packets.OLDEST:
        payload += packets.SERVER_CLOCK.pack(CLOCK_HZ, data_port, 0, 0, 0, 0, 0)
    return packets.HEADER.pack(packets.SERVER_INFO, len(payload)) + payload


def encode_definitions(bodies: Mapping[str, int], version: Version = (4, 0)) -> bytes:
    """Definitions of rigid bodies with three markers each, as Motive sends for its smallest ones."""
    payload = struct.pack("<i", len(bodies))
    for name, body in bodies.items():
        entry = name.encode() + b"\0" + struct.pack("<ii3f", body, -1, 0.0, 0.0, 0.0)
        if version >= (4, 2):
            entry += struct.pack("<4f", 0.0, 0.0, 0.0, 1.0)
        entry += struct.pack("<i9f3i", 3, 0.03, 0.0, 0.0, -0.03, 0.0, 0.0, 0.0, 0.03, 0.01, 0, 0, 0)
        if version >= (4, 0):
            entry += b"".join(f"{name}_{marker}".encode() + b"\0" for marker in range(3))
        payload += struct.pack("<i", 1)
        if version >= (4, 1):
            payload += struct.pack("<i", len(entry))
        payload += entry
    if len(payload) > 0xFFFF - 100:
        raise EncodingError(f"definitions of {len(bodies)} bodies are {len(payload)} bytes, a datagram holds 65 kB")
    return packets.HEADER.pack(packets.DEFINITIONS, len(payload)) + payload


class NatNetServer:
    """Motive's side of NatNet unicast for one process with a loop of its own."""

    def __init__(
        self,
        host: str,
        command_port: int,
        bodies: Sequence[str],
        version: Version = (4, 0),
        *,
        name: str = "Midair lab",
    ) -> None:
        """Remember the address; nothing is opened.

        Args:
            host: address to listen on.
            command_port: UDP port of requests, answers and frames alike; 0 lets the system choose.
            bodies: names of the rigid bodies; they stream as id 1, 2, ...
            version: NatNet version that is told and spoken.
            name: of the server, told to clients.

        """
        self.version, self.name = version, name
        self.bodies: dict[str, int] = {body: index + 1 for index, body in enumerate(bodies)}
        self.sent = self.dropped = 0
        self._host, self._port = host, command_port
        self._socket: socket.socket | None = None
        self._clients: dict[tuple[str, int], float] = {}
        self._models_changed = False

    @property
    def port(self) -> int:
        """Command port; the chosen one after `start` when 0 was asked for."""
        return self._port

    @property
    def clients(self) -> tuple[tuple[str, int], ...]:
        """Addresses that are streamed to."""
        return tuple(self._clients)

    def start(self) -> None:
        """Bind the port.

        Raises:
            PortInUse: another process holds it.
            SourceError: the host is not an address of this machine.

        """
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            sock.setblocking(False)
            sock.bind((self._host, self._port))
        except OSError as error:
            sock.close()
            if error.errno == errno.EADDRINUSE:
                raise PortInUse(
                    f"UDP port {self._port} on {self._host} (command_port) is in use: "
                    "another lab or NatNet server runs here; stop it or choose another port"
                ) from None
            raise SourceError(
                f"cannot serve NatNet on {self._host}:{self._port} (command_port): {error.strerror or error}; "
                "give an address of this machine and a port from 1024 up"
            ) from None
        self._socket = sock
        self._port = sock.getsockname()[1]

    def define(self, bodies: Mapping[str, int]) -> None:
        """Replace the rigid bodies (name to streaming id), as an operator does in Motive; the next frame tells."""
        self.bodies = dict(bodies)
        self._models_changed = True

    def service(self, now: float) -> None:
        """Answer what clients have asked and forget the silent ones; call it every few milliseconds.

        Args:
            now: seconds of any monotonic clock.

        """
        assert self._socket, "start() comes first"
        for _ in range(CLIENTS):
            try:
                datagram, sender = self._socket.recvfrom(65535)
            except OSError:  # nothing to read, or the report of a client that is gone
                break
            self._answer(datagram, sender, now)
        for client, heard in list(self._clients.items()):
            if now - heard > FORGET_S:
                del self._clients[client]

    def send(
        self,
        seq: int,
        t_source: float,
        bodies: Mapping[str, Pose],
        *,
        t_transmit: float | None = None,
        error_m: float = 0.0002,
    ) -> None:
        """Stream one frame to every client, now.

        Args:
            seq: frame number.
            t_source: middle of the exposure, seconds of the server's clock, not negative.
            bodies: pose of each body by name; names that are not defined stream as id 0, which no definition has.
            t_transmit: when it is sent, seconds of the server's clock; the exposure when not given.
            error_m: mean marker error.

        Raises:
            EncodingError: a negative or non-finite stamp.

        """
        if not self._clients:
            return
        sent = t_source if t_transmit is None else t_transmit
        ids = self.bodies
        poses = [(ids.get(body, 0), pos, quat, tracked) for body, (pos, quat, tracked) in bodies.items()]
        stamps_s = (t_source, sent, sent)
        changed, self._models_changed = self._models_changed, False
        self.transmit(encode_frame(seq, poses, stamps_s, self.version, error_m=error_m, models_changed=changed))

    def transmit(self, datagram: bytes) -> None:
        """Send bytes as they are to every client; a full socket drops them and counts."""
        assert self._socket, "start() comes first"
        for client in self._clients:
            self._post(datagram, client)

    def close(self) -> None:
        """Give back the port; harmless when already closed."""
        if self._socket:
            self._socket.close()
        self._socket = None
        self._clients.clear()

    def _answer(self, datagram: bytes, sender: tuple[str, int], now: float) -> None:
        if len(datagram) < packets.HEADER.size:
            return
        message, _ = packets.HEADER.unpack_from(datagram)
        if message == packets.CONNECT and (sender in self._clients or len(self._clients) < CLIENTS):
            self._clients[sender] = now
            self._post(encode_server_info(self.name, self.version, self._port), sender)
        elif message == packets.REQUEST_DEFINITIONS:
            self._post(encode_definitions(self.bodies, self.version), sender)
        elif message == packets.KEEP_ALIVE and sender in self._clients:
            self._clients[sender] = now
        elif message == packets.DISCONNECT:
            self._clients.pop(sender, None)
        elif message == packets.REQUEST:
            self._post(packets.HEADER.pack(packets.UNRECOGNIZED, 0), sender)

    def _post(self, datagram: bytes, client: tuple[str, int]) -> None:
        assert self._socket
        try:
            self._socket.sendto(datagram, client)
            self.sent += 1
        except OSError:
            self.dropped += 1
