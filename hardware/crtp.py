"""CRTP packets as bytes: the rows of the protocol that the ground uses. Knows no radio, no thread, no clock.

A packet is one header byte and up to 30 bytes of data, little endian. Header: port << 4 | 0x0C | channel; bits 2 and 3
belong to the radio (safelink) and are ignored when reading. Layouts: crazyflie-firmware 2026.08 (`crtp_supervisor.c`,
`crtp_localization_service.c`, `crtp_commander_high_level.c`, `crtp_commander_generic.c`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from hardware.errors import DecodeError, EncodingError

MAX_DATA = 30
"""Bytes of data in one packet."""

CONSOLE, PARAM, COMMANDER, MEMORY, LOG = 0x0, 0x2, 0x3, 0x4, 0x5
LOCALIZATION, GENERIC, HIGH_LEVEL, SUPERVISOR, WEIGHTS, PLATFORM, LINK = 0x6, 0x7, 0x8, 0x9, 0xA, 0xD, 0xF
"""Ports."""

NULL_HEADER = 0xF3
"""Header of a packet that carries nothing, without the radio's bits."""

ALL_GROUPS = 0
MAX_DURATION_S = 60.0
"""Longest high-level manoeuvre that is encoded; longer ones are mistakes."""
MAX_POSITION_M = 100.0
"""The firmware's own estimator resets beyond it (`kalman.maxPos`)."""


@dataclass(frozen=True, slots=True)
class Packet:
    """One CRTP packet; raises EncodingError when it cannot be sent."""

    port: int
    channel: int
    data: bytes = b""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 15 or not 0 <= self.channel <= 3:
            raise EncodingError(f"port {self.port}, channel {self.channel}: ports are 0..15, channels 0..3")
        if len(self.data) > MAX_DATA:
            raise EncodingError(f"{len(self.data)} bytes of data; a CRTP packet holds {MAX_DATA}, split it")


@dataclass(frozen=True, slots=True)
class ArmReply:
    """Answer to `arm`: whether the request was carried out, and the state after it."""

    ok: bool
    armed: bool


@dataclass(frozen=True, slots=True)
class SupervisorInfo:
    """The supervisor's 16 bits, by name (`supervisor.c`, `supervisor.info`)."""

    bits: int

    def _bit(self, index: int) -> bool:
        return bool(self.bits >> index & 1)

    @property
    def can_arm(self) -> bool:
        """Preflight checks have passed and it is not armed."""
        return self._bit(0)

    @property
    def armed(self) -> bool:
        """Armed."""
        return self._bit(1)

    @property
    def auto_arm(self) -> bool:
        """The platform arms itself."""
        return self._bit(2)

    @property
    def can_fly(self) -> bool:
        """The motors are allowed to run."""
        return self._bit(3)

    @property
    def flying(self) -> bool:
        """Motors have been above idle within the last two seconds."""
        return self._bit(4)

    @property
    def tumbled(self) -> bool:
        """Upside down or tilted for too long."""
        return self._bit(5)

    @property
    def locked(self) -> bool:
        """Stopped for good; needs a reboot."""
        return self._bit(6)

    @property
    def crashed(self) -> bool:
        """Crashed; needs a recovery request."""
        return self._bit(7)


@dataclass(frozen=True, slots=True)
class HighLevelReply:
    """Answer of the high-level commander; `error` 0 is accepted, else an errno."""

    command: int
    error: int


def header(port: int, channel: int) -> int:
    """The header byte, with the radio's two bits set as the legacy bootloader wants them."""
    return port << 4 | 0x0C | channel


def encode(packet: Packet) -> bytes:
    """The 1..31 bytes of a packet."""
    return bytes((header(packet.port, packet.channel),)) + packet.data


def decode(raw: bytes) -> Packet:
    """The packet in 1..31 bytes; DecodeError otherwise."""
    if not 1 <= len(raw) <= 1 + MAX_DATA:
        raise DecodeError("size", f"{len(raw)} bytes; a CRTP packet has 1 to {1 + MAX_DATA}")
    return Packet(raw[0] >> 4, raw[0] & 0x03, bytes(raw[1:]))


def is_null(raw: bytes) -> bool:
    """Whether raw bytes carry nothing (the radio sends such to poll)."""
    return not raw or raw[0] & 0xF3 == NULL_HEADER


def finite(name: str, values: Sequence[float], limit: float) -> None:
    """Refuse values that are not finite or whose magnitude is above `limit`."""
    for value in values:
        if not math.isfinite(value) or abs(value) > limit:
            raise EncodingError(f"{name} is {value}; a finite number within +-{limit:g} is needed")


def whole(name: str, value: int, low: int, high: int) -> None:
    """Refuse an integer outside [low, high]."""
    if not low <= value <= high:
        raise EncodingError(f"{name} is {value}; it must lie in {low}..{high}")


def _unsigned(name: str, value: float, limit: float) -> None:
    if not math.isfinite(value) or not 0.0 <= value <= limit:
        raise EncodingError(f"{name} is {value}; it must lie in 0..{limit:g}")


def encode_extpose(pos: Sequence[float], quat: Sequence[float]) -> Packet:
    """External pose, port 6.1 id 8.

    Args:
        pos: (3,) m, world frame.
        quat: (4,) xyzw, body to world, unit norm.

    Raises:
        EncodingError: not finite, out of the estimator's world, or not a rotation.

    """
    finite("position (m)", pos, MAX_POSITION_M)
    finite("quaternion", quat, 1.01)
    norm = math.sqrt(sum(q * q for q in quat))
    if len(pos) != 3 or len(quat) != 4 or abs(norm - 1.0) > 0.01:
        raise EncodingError(f"pose of {len(pos)} + {len(quat)} values, quaternion norm {norm:.3f}; 3 + 4 and 1 are due")
    return Packet(LOCALIZATION, 1, struct.pack("<B7f", 0x08, *pos, *quat))


def encode_arm(armed: bool) -> Packet:
    """Arm or disarm, port 9.1."""
    return Packet(SUPERVISOR, 1, bytes((0x01, int(armed))))


def encode_recover() -> Packet:
    """Ask the supervisor to leave the crashed state, port 9.1."""
    return Packet(SUPERVISOR, 1, b"\x02")


def encode_estop() -> tuple[Packet, Packet]:
    """Emergency stop in both forms: the supervisor's port 9 and the older port 6. Send both."""
    return Packet(SUPERVISOR, 1, b"\x03"), Packet(LOCALIZATION, 1, b"\x03")


def encode_info() -> Packet:
    """Ask for the supervisor's bits, port 9.0."""
    return Packet(SUPERVISOR, 0, b"\x0c")


def encode_takeoff(height_m: float, duration_s: float, yaw_rad: float | None = None) -> Packet:
    """High-level take-off to an absolute height; without a yaw the present one is kept."""
    return _vertical(0x07, height_m, duration_s, yaw_rad)


def encode_land(height_m: float, duration_s: float, yaw_rad: float | None = None) -> Packet:
    """High-level landing to an absolute height; without a yaw the present one is kept."""
    return _vertical(0x08, height_m, duration_s, yaw_rad)


def _vertical(command: int, height_m: float, duration_s: float, yaw_rad: float | None) -> Packet:
    finite("height_m", (height_m,), MAX_POSITION_M)
    _unsigned("duration_s", duration_s, MAX_DURATION_S)
    finite("yaw_rad", (yaw_rad or 0.0,), 2 * math.pi)
    keep = yaw_rad is None
    data = struct.pack("<BBff?f", command, ALL_GROUPS, height_m, yaw_rad or 0.0, keep, duration_s)
    return Packet(HIGH_LEVEL, 0, data)


def encode_goto(
    pos: Sequence[float], yaw_rad: float, duration_s: float, *, relative: bool = False, linear: bool = False
) -> Packet:
    """High-level flight to a position (m, world frame, or relative to the present setpoint)."""
    finite("position (m)", pos, MAX_POSITION_M)
    finite("yaw_rad", (yaw_rad,), 2 * math.pi)
    _unsigned("duration_s", duration_s, MAX_DURATION_S)
    if len(pos) != 3:
        raise EncodingError(f"position has {len(pos)} values; 3 are needed")
    return Packet(HIGH_LEVEL, 0, struct.pack("<BB??5f", 0x0C, ALL_GROUPS, relative, linear, *pos, yaw_rad, duration_s))


def encode_high_level_stop() -> Packet:
    """The high-level commander gives up: motors off."""
    return Packet(HIGH_LEVEL, 0, bytes((0x03, ALL_GROUPS)))


def encode_stop() -> Packet:
    """Stop setpoint, port 7.0: motors off until the next setpoint."""
    return Packet(GENERIC, 0, b"\x00")


def encode_notify_stop(remain_ms: int = 0) -> Packet:
    """Streaming of setpoints ends: the high-level commander may take over after `remain_ms`."""
    whole("remain_ms", remain_ms, 0, 0xFFFFFFFF)
    return Packet(GENERIC, 1, struct.pack("<BI", 0x00, remain_ms))


def encode_echo(data: bytes) -> Packet:
    """Ask for the same bytes back, port 15.0."""
    return Packet(LINK, 0, data)


def decode_reply(packet: Packet) -> ArmReply | SupervisorInfo | HighLevelReply | None:
    """What a downlink packet of ports 8 and 9 says; None for one that is none of these.

    Raises:
        DecodeError: it is one of these and too short.

    """
    data = packet.data
    if not data:
        return None
    if packet.port == SUPERVISOR and packet.channel == 1 and data[0] == 0x81:
        _at_least(data, 3, "arm reply")
        return ArmReply(bool(data[1]), bool(data[2]))
    if packet.port == SUPERVISOR and packet.channel == 0 and data[0] == 0x8C:
        _at_least(data, 3, "supervisor bits")
        return SupervisorInfo(data[1] | data[2] << 8)
    if packet.port == HIGH_LEVEL and packet.channel == 0:
        _at_least(data, 4, "high-level reply")
        return HighLevelReply(data[0], data[3])
    return None


def _at_least(data: bytes, size: int, what: str) -> None:
    if len(data) < size:
        raise DecodeError("truncated", f"{what} of {len(data)} bytes; {size} are needed")
