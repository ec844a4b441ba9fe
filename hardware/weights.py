"""The upload of a network to a drone's bank, and the control of policies, on CRTP port 0x0A. Knows no radio, no clock.

Codecs first, then `Upload`, a frozen state that verbs turn into the next state and the packets to send. Little endian
throughout; `firmware_patches/src/wire.h` is the other end.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from hardware.crtp import WEIGHTS, Packet, whole
from hardware.errors import DecodeError, EncodingError

WIRE_VERSION = 1
CHUNK_BYTES = 28
"""14 half-precision numbers a DATA packet."""
MAX_CHUNKS = 128
PARAMETERS = {1: 276, 2: 676, 3: 932}
"""Parameters of the networks 20-8-8-4, 20-16-16-4 and 36-16-16-4, by architecture number."""

REQUEST, DATA, REPORT = 0, 1, 3
"""Channels."""
HELLO, BEGIN, COMMIT, ACTIVATE, HEARTBEAT, ROLLBACK, ABORT, WINDOW, RELEASED = range(9)
"""Commands: first byte of a request."""
STOCK, ARMED, ACTIVE, OFF = range(4)
"""Control states."""
EMPTY, RECEIVING, READY = range(3)
"""Bank states."""
GATES = ("armed", "free_fall", "estimator", "height", "speed", "body_rate", "battery", "upright")
"""Gate bits of ACTIVATE, bit 0 first."""
ERRORS = {
    0: "ok",
    1: "wire version not supported: flash the matching firmware",
    2: "architecture not known to the firmware",
    3: "sizes do not match the architecture",
    4: "busy: no bank is free",
    5: "incomplete",
    6: "CRC mismatch",
    7: "a weight is not finite or above 64",
    8: "canned observation gives other outputs: layout or activation differ",
    9: "a gate did not hold",
    10: "lease ended",
    11: "not activated within its validity",
    12: "unknown command",
    13: "unknown transfer or policy",
    14: "conflicting duplicate of a chunk",
}
CAUSES = {**ERRORS, 32: "activated", 33: "landed", 34: "saturation", 35: "non-finite", 36: "released", 37: "free fall"}
"""What an EVENT's cause says."""

STATUS_WAIT_S = 0.008
"""Silence after COMMIT before it is sent again."""
UPLOAD_S = 0.150
"""An upload that is not READY by then is given up."""


def encode_hello() -> Packet:
    """Ask for the capability."""
    return _request(HELLO)


def encode_begin(xfer: int, arch: int, n_param: int, n_chunk: int, policy: int, crc: int) -> Packet:
    """Open a transfer: takes a bank and clears its bitmap."""
    whole("xfer", xfer, 1, 255)
    whole("arch", arch, 0, 0xFFFF)
    whole("n_param", n_param, 1, MAX_CHUNKS * CHUNK_BYTES // 2)
    whole("n_chunk", n_chunk, 1, MAX_CHUNKS)
    _u32(policy, crc)
    return _request(BEGIN, struct.pack("<BBHHBII", xfer, WIRE_VERSION, arch, n_param, n_chunk, policy, crc))


def encode_data(xfer: int, index: int, chunk: bytes) -> Packet:
    """One chunk of 14 halves (28 bytes)."""
    whole("xfer", xfer, 1, 255)
    whole("index", index, 0, MAX_CHUNKS - 1)
    if len(chunk) != CHUNK_BYTES:
        raise EncodingError(f"chunk {index} has {len(chunk)} bytes; pad it to {CHUNK_BYTES}")
    return Packet(WEIGHTS, DATA, bytes((xfer, index)) + chunk)


def encode_commit(xfer: int, crc: int, expected: Sequence[float], tolerance: float) -> Packet:
    """Close a transfer: completeness, CRC and the outputs on the canned observation are checked on board."""
    whole("xfer", xfer, 1, 255)
    _u32(0, crc)
    if len(expected) != 4 or not tolerance > 0.0:
        raise EncodingError(f"{len(expected)} expected outputs, tolerance {tolerance}; 4 and a positive one are needed")
    return _request(COMMIT, struct.pack("<BI", xfer, crc) + _halves("expected output", (*expected, tolerance)))


def encode_activate(
    policy: int, crc: int, delay_ms: int, valid_ms: int, lease_ms: int, target_mm: int, gates: int
) -> Packet:
    """Arm a READY policy: it takes over at the first tick from `delay_ms` to `valid_ms` at which all gates hold."""
    _u32(policy, crc)
    for name, value in (("delay_ms", delay_ms), ("valid_ms", valid_ms), ("lease_ms", lease_ms), ("gates", gates)):
        whole(name, value, 0, 0xFFFF)
    whole("target_mm", target_mm, -0x8000, 0x7FFF)
    return _request(ACTIVATE, struct.pack("<IIHHHhH", policy, crc, delay_ms, valid_ms, lease_ms, target_mm, gates))


def encode_heartbeat(policy: int, seq: int, lease_ms: int) -> Packet:
    """Renew the ACTIVE policy's lease; never answered."""
    _u32(policy, 0)
    whole("lease_ms", lease_ms, 0, 0xFFFF)
    return _request(HEARTBEAT, struct.pack("<IBH", policy, seq & 0xFF, lease_ms))


def encode_rollback() -> Packet:
    """Fly the other bank if it is READY, else the stock controller."""
    return _request(ROLLBACK)


def encode_abort(mode: int) -> Packet:
    """End a policy: mode 0 to the stock controller, 1 to motors off."""
    whole("mode", mode, 0, 1)
    return _request(ABORT, bytes((mode,)))


def encode_window(open_ms: int) -> Packet:
    """Open the throw window (0 closes it): motors off, tumble check off, free-fall latch cleared."""
    whole("open_ms", open_ms, 0, 30_000)
    return _request(WINDOW, struct.pack("<H", open_ms))


def encode_released() -> Packet:
    """The ground confirms the throw."""
    return _request(RELEASED)


def _request(command: int, body: bytes = b"") -> Packet:
    return Packet(WEIGHTS, REQUEST, bytes((command,)) + body)


def _u32(policy: int, crc: int) -> None:
    whole("policy", policy, 0, 0xFFFFFFFF)
    whole("crc", crc, 0, 0xFFFFFFFF)


def _halves(name: str, values: Sequence[float]) -> bytes:
    try:
        packed = struct.pack(f"<{len(values)}e", *values)
    except OverflowError:
        packed = b""
    if not packed or not all(math.isfinite(value) for value in values):
        raise EncodingError(f"{name} among {tuple(values)} does not fit half precision: finite, below 65,504")
    return packed


@dataclass(frozen=True, slots=True)
class Capability:
    """What a firmware can receive: the answer to HELLO."""

    wire_version: int
    max_param: int
    archs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Status:
    """Answer to a request."""

    command: int
    xfer: int
    control: int
    banks: tuple[int, int]
    error: int
    policy: int
    """The ACTIVE policy, else the ARMED one, else 0."""
    crc: int
    """Of the transfer's image."""
    received: bytes
    """Bitmap of received chunks, (16,) bytes, bit 0 of byte 0 first; for error 9 its first byte is the failing gate."""
    capability: Capability | None = None

    def missing(self, n_chunk: int) -> tuple[int, ...]:
        """Indices of chunks that have not arrived."""
        return tuple(i for i in range(n_chunk) if not self.received[i // 8] >> (i % 8) & 1)


@dataclass(frozen=True, slots=True)
class PolicyEvent:
    """News from the drone that nobody asked for."""

    control: int
    cause: int
    bank: int
    policy: int
    tick: int
    """500 Hz ticks or milliseconds of the drone, as its firmware counts."""


def decode(data: bytes) -> Status | PolicyEvent:
    """A packet of channel 3.

    Raises:
        DecodeError: neither a STATUS of 30 bytes nor an EVENT of 12.

    """
    if data and data[0] == 0x40:
        if len(data) != 12:
            raise DecodeError("size", f"EVENT of {len(data)} bytes; it has 12")
        return PolicyEvent(*struct.unpack("<3BII", data[1:]))
    if not data or not data[0] & 0x80:
        raise DecodeError("kind", f"first byte of a report is {data[:1].hex() or 'missing'}; 80.. or 40 is expected")
    if len(data) != 30:
        raise DecodeError("size", f"STATUS of {len(data)} bytes; it has 30")
    command, xfer, control, bank0, bank1, error, policy, crc = struct.unpack("<6BII", data[:14])
    status = Status(command & 0x7F, xfer, control, (bank0, bank1), error, policy, crc, bytes(data[14:]))
    if status.command != HELLO:
        return status
    version, max_param, count = struct.unpack_from("<BHB", data, 14)
    if count > 6:
        raise DecodeError("size", f"capability names {count} architectures; 6 fit")
    archs = struct.unpack_from(f"<{count}H", data, 18)
    return replace(status, received=bytes(16), capability=Capability(version, max_param, archs))


Outcome = Literal["SENDING", "READY", "FAILED"]


@dataclass(frozen=True, slots=True)
class Upload:
    """One upload on its way; made by `start`, advanced by `on_sent`, `on_status` and `on_tick`."""

    xfer: int
    policy: int
    crc: int
    give_up: float
    begin: Packet = field(repr=False)
    chunks: tuple[Packet, ...] = field(repr=False)
    commit: Packet = field(repr=False)
    started: float = 0.0
    finished: float | None = None
    commit_sent: float | None = None
    """When the radio took the newest COMMIT; None while one is still queued or has been answered."""
    outcome: Outcome = "SENDING"
    reason: str = ""
    packets: int = 0
    resent: int = 0


def start(
    image: bytes,
    arch: int,
    policy: int,
    expected: Sequence[float],
    tolerance: float,
    xfer: int,
    now: float,
    deadline: float = math.inf,
) -> tuple[Upload, list[Packet]]:
    """Begin an upload.

    Args:
        image: flat half-precision parameters, little endian, order W0 b0 W1 b1 W2 b2; (2 n_param,) bytes.
        arch: architecture number.
        policy: name of the network for ever.
        expected: (4,) outputs on the canned observation.
        tolerance: of those outputs.
        xfer: number of the upload, 1..255.
        now: seconds of the caller's clock.
        deadline: the upload is given up then, or 150 ms after `now`, whichever comes first.

    Returns:
        The state, and the packets to send in this order.

    Raises:
        EncodingError: the image does not fit the architecture, or a number does not fit the wire.

    """
    if PARAMETERS.get(arch) is None or len(image) != 2 * PARAMETERS[arch]:
        wanted = ", ".join(f"{a}: {2 * n} bytes" for a, n in PARAMETERS.items())
        raise EncodingError(f"image of {len(image)} bytes for architecture {arch}; known are {wanted}")
    crc = zlib.crc32(image)
    pieces = [image[i : i + CHUNK_BYTES].ljust(CHUNK_BYTES, b"\0") for i in range(0, len(image), CHUNK_BYTES)]
    upload = Upload(
        xfer=xfer,
        policy=policy,
        crc=crc,
        give_up=min(now + UPLOAD_S, deadline),
        begin=encode_begin(xfer, arch, len(image) // 2, len(pieces), policy, crc),
        chunks=tuple(encode_data(xfer, i, piece) for i, piece in enumerate(pieces)),
        commit=encode_commit(xfer, crc, expected, tolerance),
        started=now,
    )
    burst = [upload.begin, *upload.chunks, upload.commit]
    return replace(upload, packets=len(burst)), burst


def on_sent(upload: Upload, packet: Packet, now: float) -> Upload:
    """The radio has taken `packet`; only the COMMIT of this upload matters."""
    if upload.outcome != "SENDING" or packet != upload.commit:
        return upload
    return replace(upload, commit_sent=now)


def on_status(upload: Upload, status: Status, now: float) -> tuple[Upload, list[Packet]]:
    """A STATUS has come; those of other transfers and commands change nothing."""
    mine = status.xfer == upload.xfer and status.command in (BEGIN, COMMIT)
    if upload.outcome != "SENDING" or not mine:
        return upload, []
    if status.error in (5, 13):
        # An answer to a COMMIT whose successor is still queued is stale: the repair is already on its way.
        if status.command != COMMIT or upload.commit_sent is None:
            return upload, []
        if status.error == 13:
            return _again(upload, [upload.begin, *upload.chunks, upload.commit])
        return _again(upload, [*(upload.chunks[i] for i in status.missing(len(upload.chunks))), upload.commit])
    if status.error:
        return _fail(upload, ERRORS.get(status.error, f"error {status.error}"), now), []
    if status.command == COMMIT and status.crc == upload.crc and READY in status.banks:
        return replace(upload, outcome="READY", finished=now), []
    return upload, []


def on_tick(upload: Upload, now: float) -> tuple[Upload, list[Packet]]:
    """Time has passed."""
    if upload.outcome != "SENDING":
        return upload, []
    if now >= upload.give_up:
        heard = "COMMIT was not answered" if upload.commit_sent is not None else "COMMIT was not sent"
        waited_ms = (now - upload.started) * 1e3
        return _fail(upload, f"not ready after {waited_ms:.0f} ms: {heard}", now), []
    if upload.commit_sent is not None and now - upload.commit_sent >= STATUS_WAIT_S:
        return _again(upload, [upload.commit])
    return upload, []


def _again(upload: Upload, packets: list[Packet]) -> tuple[Upload, list[Packet]]:
    sent = len(packets)
    return replace(upload, commit_sent=None, packets=upload.packets + sent, resent=upload.resent + sent), packets


def _fail(upload: Upload, reason: str, now: float) -> Upload:
    return replace(upload, outcome="FAILED", reason=reason, finished=now)
