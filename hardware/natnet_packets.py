"""NatNet 3.0 to 4.2 datagrams as values, bounds-checked. Knows no socket and no clock, and trusts no byte.

Little endian, packed. Header: u16 message id, u16 payload bytes. From 4.1 on every section of a frame and every entry
of the definitions carries its size, and frames have a section of assets; from 4.2 on a rigid body's definition has a
quaternion after its offset. All other differences between 3.0 and 4.2 are named where they are read.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from hardware.errors import DecodeError

CONNECT, SERVER_INFO, REQUEST, RESPONSE, REQUEST_DEFINITIONS, DEFINITIONS = 0, 1, 2, 3, 4, 5
FRAME, DISCONNECT, KEEP_ALIVE, UNRECOGNIZED = 7, 9, 10, 100

OLDEST, NEWEST = (3, 0), (4, 2)
"""Versions with a layout here."""

HEADER = struct.Struct("<HH")
SERVER = struct.Struct("<256s4B4B")  # name, application version, NatNet version
SERVER_CLOCK = struct.Struct("<QHB4B")  # ticks per second, data port, is multicast, group; since 3.0
BODY = struct.Struct("<i8fh")  # id, position, quaternion xyzw, mean marker error, flags
TAIL = struct.Struct("<IIdQQQhi")  # timecode, sub, timestamp, exposure, received, transmit, flags, end of data
TAIL_PRECISE = struct.Struct("<IIdQQQIIhi")  # the same with a precision time stamp before the flags; since 4.1

BODY_TRACKED = 0x01
FRAME_MODELS_CHANGED = 0x02

_INT = struct.Struct("<i")
_POINT, _LABELLED, _NAME_MAX = 12, 26, 256


class ServerInfo(NamedTuple):
    """Answer to CONNECT. ``clock_hz`` and ``data_port`` are 0 from servers older than 3.0, which do not tell."""

    name: str
    version: tuple[int, int]
    clock_hz: int
    data_port: int
    multicast: bool


class Definitions(NamedTuple):
    """Names of the rigid bodies by streaming id."""

    names: dict[int, str]


class RigidBody(NamedTuple):
    """One rigid body of a frame as streamed: any float may be anything."""

    id: int
    pos: tuple[float, float, float]
    quat: tuple[float, float, float, float]
    error_m: float
    tracked: bool


class MocapFrame(NamedTuple):
    """One frame: its bodies and its stamps, in ticks of the server's clock (0: not given)."""

    seq: int
    bodies: tuple[RigidBody, ...]
    timestamp_s: float
    exposure: int
    received: int
    transmit: int
    models_changed: bool


class Other(NamedTuple):
    """A well-formed message that carries nothing for a receiver of poses."""

    id: int


Event = ServerInfo | Definitions | MocapFrame | Other


def decode(datagram: bytes, version: tuple[int, int]) -> Event:
    """What a datagram from a server says.

    Args:
        datagram: one UDP payload.
        version: of the server, from its `ServerInfo`, which is itself decoded whatever is given here.

    Raises:
        DecodeError: and nothing else, whatever the bytes are. Reasons: truncated, length, count, name,
            duplicate-name, duplicate-id, clock, definition-type, version.

    """
    size = len(datagram)
    if size < HEADER.size:
        raise DecodeError("truncated", f"{size} bytes, a header has {HEADER.size}")
    message, payload = HEADER.unpack_from(datagram)
    if payload > size - HEADER.size:
        raise DecodeError("truncated", f"message {message} promises {payload} bytes, {size - HEADER.size} came")
    if payload < size - HEADER.size:
        raise DecodeError("length", f"message {message} promises {payload} bytes, {size - HEADER.size} came")
    if message in (FRAME, DEFINITIONS) and not OLDEST <= version <= NEWEST:
        raise DecodeError("version", f"no layout for NatNet {version[0]}.{version[1]}")
    try:
        if message == FRAME:
            return _frame(datagram, version >= (4, 1))
        if message == SERVER_INFO:
            return _server_info(datagram)
        if message == DEFINITIONS:
            return _definitions(datagram, version)
    except struct.error:
        raise DecodeError("truncated", f"message {message} ends inside a field") from None
    return Other(message)


def _server_info(data: bytes) -> ServerInfo:
    name, *versions = SERVER.unpack_from(data, HEADER.size)
    name = name.partition(b"\0")[0].decode("utf-8", "replace")
    version = (versions[4], versions[5])
    if version < OLDEST:
        return ServerInfo(name, version, 0, 0, False)
    clock_hz, port, multicast, *_ = SERVER_CLOCK.unpack_from(data, HEADER.size + SERVER.size)
    if not 0 < clock_hz <= 10**12:
        raise DecodeError("clock", f"the server's clock has {clock_hz} ticks a second")
    return ServerInfo(name, version, clock_hz, port, bool(multicast))


def _count(data: bytes, at: int) -> tuple[int, int]:
    (count,) = _INT.unpack_from(data, at)
    if count < 0:
        raise DecodeError("count", f"{count} entries")
    return count, at + 4


def _section(data: bytes, at: int) -> tuple[int, int, int]:
    """Count, start and end of a section with its size."""
    count, at = _count(data, at)
    size, at = _count(data, at)
    if at + size > len(data):
        raise DecodeError("truncated", f"a section of {size} bytes in the {len(data) - at} left")
    return count, at, at + size


def _frame(data: bytes, sized: bool) -> MocapFrame:
    (seq,) = _INT.unpack_from(data, 4)
    at = 8
    if sized:
        for _ in range(2):  # marker sets, other markers
            _, _, at = _section(data, at)
        count, at, end = _section(data, at)
        if end - at != count * BODY.size:
            raise DecodeError("length", f"{count} rigid bodies in {end - at} bytes, each has {BODY.size}")
    else:
        count, at = _count(data, at)
        for _ in range(count):
            _, at = _name(data, at)
            markers, at = _count(data, at)
            at += markers * _POINT
        markers, at = _count(data, at)
        count, at = _count(data, at + markers * _POINT)
    if at + count * BODY.size > len(data):
        raise DecodeError("truncated", f"{count} rigid bodies in {max(len(data) - at, 0)} bytes")
    bodies = []
    for _ in range(count):
        body, x, y, z, qx, qy, qz, qw, error, flags = BODY.unpack_from(data, at)
        bodies.append(RigidBody(body, (x, y, z), (qx, qy, qz, qw), error, flags & BODY_TRACKED != 0))
        at += BODY.size
    if sized:
        for _ in range(5):  # skeletons, assets, labelled markers, force plates, devices
            _, _, at = _section(data, at)
        _, _, timestamp, exposure, received, transmit, _, _, flags, _ = TAIL_PRECISE.unpack_from(data, at)
        at += TAIL_PRECISE.size
    else:
        at = _skip_old(data, at)
        _, _, timestamp, exposure, received, transmit, flags, _ = TAIL.unpack_from(data, at)
        at += TAIL.size
    if at != len(data):
        raise DecodeError(
            "length", f"a frame of {at} bytes in a datagram of {len(data)}: not the layout of its version"
        )
    changed = flags & FRAME_MODELS_CHANGED != 0
    return MocapFrame(seq, tuple(bodies), timestamp, exposure, received, transmit, changed)


def _skip_old(data: bytes, at: int) -> int:
    """Past skeletons, labelled markers, force plates and devices, which before 4.1 do not tell their size."""
    count, at = _count(data, at)
    for _ in range(count):
        bones, at = _count(data, at + 4)
        at += bones * BODY.size
    markers, at = _count(data, at)
    at += markers * _LABELLED
    for _ in range(2):
        count, at = _count(data, at)
        for _ in range(count):
            channels, at = _count(data, at + 4)
            for _ in range(channels):
                samples, at = _count(data, at)
                at += samples * 4
    return at


def _name(data: bytes, at: int) -> tuple[str, int]:
    end = data.find(b"\0", at, at + _NAME_MAX)
    if end < 0:
        raise DecodeError("name", f"no end of the name within {_NAME_MAX} bytes")
    return data[at:end].decode("utf-8", "replace"), end + 1


def _definitions(data: bytes, version: tuple[int, int]) -> Definitions:
    count, at = _count(data, HEADER.size)
    names: dict[int, str] = {}
    for _ in range(count):
        (kind,) = _INT.unpack_from(data, at)
        at += 4
        end = -1
        if version >= (4, 1):
            size, at = _count(data, at)
            end = at + size
            if end > len(data):
                raise DecodeError("truncated", f"a definition of {size} bytes in the {len(data) - at} left")
        if kind == 1:
            body, name, at = _rigid_body(data, at, version)
            if body in names:
                raise DecodeError("duplicate-id", f"'{names[body]}' and '{name}' both stream as id {body}")
            if name in names.values():
                raise DecodeError("duplicate-name", f"two bodies are called '{name}'; rename one in the source")
            names[body] = name
            if end >= 0 and at != end:
                raise DecodeError("length", f"definition of '{name}' has {end - at} bytes more than NatNet defines")
        elif end >= 0:
            at = end
        else:
            at = _skip_definition(data, at, kind, version)
    if at != len(data):
        raise DecodeError("length", f"definitions of {at} bytes in a datagram of {len(data)}")
    return Definitions(names)


def _rigid_body(data: bytes, at: int, version: tuple[int, int]) -> tuple[int, str, int]:
    """Id and name of a rigid body's definition, and where it ends."""
    name, at = _name(data, at)
    (body,) = _INT.unpack_from(data, at)
    at += 4 + 4 + _POINT  # id, parent, offset
    if version >= (4, 2):
        at += 16  # quaternion
    markers, at = _count(data, at)
    at += markers * (_POINT + 4)  # positions, labels
    if at > len(data):
        raise DecodeError("truncated", f"definition of '{name}' has {markers} markers")
    if version >= (4, 0):
        for _ in range(markers):
            _, at = _name(data, at)
    return body, name, at


def _skip_definition(data: bytes, at: int, kind: int, version: tuple[int, int]) -> int:
    """Past a definition of another kind, which before 4.1 does not tell its size."""
    if kind == 0:  # marker set: name, marker names
        _, at = _name(data, at)
        names, at = _count(data, at)
    elif kind == 2:  # skeleton: name, id, rigid bodies
        _, at = _name(data, at)
        bones, at = _count(data, at + 4)
        for _ in range(bones):
            _, _, at = _rigid_body(data, at, version)
        names = 0
    elif kind == 3:  # force plate: id, serial, size, origin, 12 x 12 calibration, corners, two types, channel names
        _, at = _name(data, at + 4)
        names, at = _count(data, at + 8 + 12 + 576 + 48 + 8)
    elif kind == 4:  # device: id, name, serial, two types, channel names
        _, at = _name(data, at + 4)
        _, at = _name(data, at)
        names, at = _count(data, at + 8)
    elif kind == 5:  # camera: name, position, quaternion
        _, at = _name(data, at)
        names, at = 0, at + 28
    else:
        raise DecodeError("definition-type", f"{kind} is no kind of definition")
    for _ in range(names):
        _, at = _name(data, at)
    return at
