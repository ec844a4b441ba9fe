"""A virtual Crazyflie's firmware services on CRTP, around an onboard program. Knows no radio, no clock, flies nothing.

Answers what cflib asks when it connects (link, platform, log, memory and parameter ports) and streams log blocks;
every other port belongs to the onboard program: poses, supervisor, commander, weights. Malformed packets are dropped
and counted.
"""

from __future__ import annotations

import errno
import struct
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from hardware.crtp import LINK, LOG, MAX_DATA, MEMORY, PARAM, PLATFORM
from hardware.virtual import variables

Message = tuple[int, int, bytes]
"""Port, channel, data."""

PROTOCOL = 12
SOURCE = b"Bitcraze Crazyflie".ljust(30, b"\0")
FIRMWARE = b"midair-virtual"
DEVICE = b"CF21"
MAX_BLOCKS, MAX_VARIABLES = 16, 128
QUEUE = 64
"""Packets that wait for the radio; log data and echoes beyond it are dropped, as upstream drops them."""

LOG_TYPES = {"uint8_t": 1, "uint16_t": 2, "uint32_t": 3, "int8_t": 4, "int16_t": 5, "int32_t": 6, "float": 7, "FP16": 8}
LOG_FORMATS = {1: "B", 2: "H", 3: "I", 4: "b", 5: "h", 6: "i", 7: "f", 8: "e"}
PARAMETER_TYPES = {"int8_t": 0x00, "int16_t": 0x01, "int32_t": 0x02, "float": 0x06}
PARAMETER_TYPES |= {"uint8_t": 0x08, "uint16_t": 0x09, "uint32_t": 0x0A}
PARAMETER_FORMATS = {0x00: "b", 0x01: "h", 0x02: "i", 0x06: "f", 0x08: "B", 0x09: "H", 0x0A: "I"}
READ_ONLY = 0x40


class Onboard(Protocol):
    """The onboard program: everything that flies."""

    def receive(self, port: int, channel: int, data: bytes) -> None:
        """Take one packet from the ground."""

    def transmit(self) -> Message | None:
        """The next packet for the ground."""


@dataclass(frozen=True, slots=True)
class Block:
    """A log block: variables as (format, index), its period, and when it is due next (None: stopped)."""

    variables: tuple[tuple[str, int], ...]
    period_ms: int = 0
    due_ms: int | None = None

    @property
    def size(self) -> int:
        """Bytes of one sample."""
        return struct.calcsize("<" + "".join(form for form, _ in self.variables))


class VirtualCrazyflie:
    """The services of one drone.

    Args:
        onboard: gets the packets of all other ports and may send its own.
        log_variables: getters by name ("stateEstimate.x"), in upstream's units; names of `variables.LOG` without one
            read 0, further names are added as floats.
        params: initial values by name, over the defaults of `variables.PARAMETERS`; further names are added as floats.

    """

    def __init__(
        self,
        onboard: Onboard,
        log_variables: Mapping[str, Callable[[], float]] | None = None,
        params: Mapping[str, float] | None = None,
    ) -> None:
        getters, given = dict(log_variables or {}), dict(params or {})
        self.dropped = 0
        self.parameters: dict[str, float] = {}
        """Values by name, as the ground has set them."""
        self._onboard = onboard
        self._out: deque[Message] = deque()
        self._now_ms = 0
        self._blocks: dict[int, Block] = {}
        log = {**variables.LOG, **{name: "float" for name in getters if name not in variables.LOG}}
        self._getters = tuple(getters.get(name, lambda: 0.0) for name in log)
        self._log_items = tuple(_item(LOG_TYPES[kind], name) for name, kind in log.items())
        table = {**variables.PARAMETERS, **{n: ("float", 0.0, False) for n in given if n not in variables.PARAMETERS}}
        self._names = tuple(table)
        self._kinds = tuple(PARAMETER_TYPES[kind] | (READ_ONLY if fixed else 0) for kind, _, fixed in table.values())
        self._defaults = tuple(default for _, default, _ in table.values())
        self._parameter_items = tuple(_item(kind, name) for kind, name in zip(self._kinds, self._names, strict=True))
        for name, default in zip(self._names, self._defaults, strict=True):
            self.parameters[name] = given.get(name, default)
        self._services: dict[int, Callable[[int, bytes], None]] = {
            LINK: self._link,
            PLATFORM: self._platform,
            LOG: self._log,
            PARAM: self._parameter,
            MEMORY: self._memory,
        }

    def receive(self, port: int, channel: int, data: bytes) -> None:
        """One packet from the ground."""
        service = self._services.get(port)
        if service is None:
            self._onboard.receive(port, channel, data)
            return
        try:
            service(channel, data)
        except (struct.error, IndexError, ValueError, OverflowError):  # too short, or a value that its type cannot hold
            self.dropped += 1

    def tick(self, now_ms: int) -> None:
        """Firmware time has come to `now_ms`: queue the log data that are due."""
        self._now_ms = now_ms
        for ident, block in self._blocks.items():
            if block.due_ms is None or now_ms < block.due_ms:
                continue
            late = (now_ms - block.due_ms) // block.period_ms
            self._blocks[ident] = replace(block, due_ms=block.due_ms + (late + 1) * block.period_ms)
            stamp = (now_ms & 0xFFFFFF).to_bytes(3, "little")
            self._send(LOG, 2, bytes((ident,)) + stamp + self._sample(block))

    def transmit(self) -> Message | None:
        """The next packet for the ground; None when there is none."""
        return self._out.popleft() if self._out else self._onboard.transmit()

    def _send(self, port: int, channel: int, data: bytes) -> None:
        if len(self._out) < QUEUE:
            self._out.append((port, channel, data[:MAX_DATA]))
        else:
            self.dropped += 1

    def _link(self, channel: int, data: bytes) -> None:
        if channel == 0:
            self._send(LINK, 0, data)
        elif channel == 1:
            self._send(LINK, 1, SOURCE)

    def _platform(self, channel: int, data: bytes) -> None:
        if channel == 0:
            self._send(PLATFORM, 0, data)
        elif channel == 1:
            answers = (struct.pack("<i", PROTOCOL), FIRMWARE, DEVICE)
            self._send(PLATFORM, 1, data[:1] + answers[data[0]])

    def _memory(self, channel: int, data: bytes) -> None:
        if channel == 0:
            self._send(MEMORY, 0, b"\x01\x00" if data[0] == 1 else data[:2])
        else:
            self._send(MEMORY, channel, struct.pack("<BIB", *struct.unpack_from("<BI", data), errno.ENOENT))

    def _table(self, port: int, items: tuple[bytes, ...], data: bytes) -> None:
        if data[0] == 3:
            self._send(port, 0, struct.pack("<BHI", 3, len(items), zlib.crc32(b"\n".join(items))))
        elif data[0] == 2:
            (index,) = struct.unpack_from("<H", data, 1)
            self._send(port, 0, data[:3] + items[index] if index < len(items) else b"\x02")

    def _parameter(self, channel: int, data: bytes) -> None:
        if channel == 0:
            self._table(PARAM, self._parameter_items, data)
        elif channel == 1:
            (index,) = struct.unpack_from("<H", data)
            known = index < len(self._names)
            value = b"\0" + self._pack(index, self.parameters[self._names[index]]) if known else b"\x02"
            self._send(PARAM, 1, data[:2] + value)
        elif channel == 2:
            (index,) = struct.unpack_from("<H", data)
            if index >= len(self._names):
                self._send(PARAM, 2, data[:2] + bytes((errno.ENOENT,)))
            elif self._write(index, data[2:]):
                self._send(PARAM, 2, data)
        elif data[0] == 0:
            group, name, rest = data[1:].split(b"\0", 2)
            full = f"{group.decode('ascii')}.{name.decode('ascii')}"
            done = full in self.parameters and self._write(self._names.index(full), rest[1:])
            self._send(PARAM, 3, data[: len(data) - len(rest)] + bytes((0 if done else errno.ENOENT,)))
        elif data[0] in (7, 8):
            (index,) = struct.unpack_from("<H", data, 1)
            known = index < len(self._names)
            value = b"\0" if data[0] == 7 else self._pack(index, self._defaults[index]) if known else b""
            self._send(PARAM, 3, data[:3] + (b"\0" + value if known else bytes((errno.ENOENT,))))

    def _pack(self, index: int, value: float) -> bytes:
        form = PARAMETER_FORMATS[self._kinds[index] & 0x0F]
        return struct.pack("<" + form, value if form == "f" else int(value))

    def _write(self, index: int, raw: bytes) -> bool:
        if self._kinds[index] & READ_ONLY:
            return False
        (self.parameters[self._names[index]],) = struct.unpack("<" + PARAMETER_FORMATS[self._kinds[index] & 0x0F], raw)
        return True

    def _log(self, channel: int, data: bytes) -> None:
        if channel == 0:
            self._table(LOG, self._log_items, data)
        elif channel == 1:
            command, ident = data[0], data[1] if len(data) > 1 else 0
            self._send(LOG, 1, bytes((command, ident, self._control(command, ident, data[2:]))))

    def _control(self, command: int, ident: int, body: bytes) -> int:
        if command == 5:
            self._blocks.clear()
            return 0
        if command in (6, 7):
            return self._create(ident, body, append=command == 7)
        if ident not in self._blocks:
            return errno.ENOENT
        if command == 2:
            del self._blocks[ident]
        elif command == 3:
            period = 10 * body[0]
            due = self._now_ms + period if period else None
            self._blocks[ident] = replace(self._blocks[ident], period_ms=period, due_ms=due)
        elif command == 4:
            self._blocks[ident] = replace(self._blocks[ident], due_ms=None)
        else:
            return errno.ENOEXEC
        return 0

    def _create(self, ident: int, body: bytes, *, append: bool) -> int:
        if append and ident not in self._blocks:
            return errno.ENOENT
        if not append and ident in self._blocks:
            return errno.EEXIST
        old = self._blocks.get(ident, Block(()))
        added = []
        for kind, index in struct.iter_unpack("<BH", body):
            if index >= len(self._getters) or kind & 0x0F not in LOG_FORMATS:
                return errno.ENOENT
            added.append((LOG_FORMATS[kind & 0x0F], index))
        block = replace(old, variables=old.variables + tuple(added))
        total = sum(len(b.variables) for b in self._blocks.values()) + len(added)
        if total > MAX_VARIABLES or (not append and len(self._blocks) >= MAX_BLOCKS):
            return errno.ENOMEM
        if block.size > MAX_DATA - 4:
            return errno.E2BIG
        self._blocks[ident] = block
        return 0

    def _sample(self, block: Block) -> bytes:
        values = []
        for form, index in block.variables:
            value = self._getters[index]()
            values.append(value if form in "fe" else int(value))
        return struct.pack("<" + "".join(form for form, _ in block.variables), *values)


def _item(kind: int, name: str) -> bytes:
    """One row of a table: type, group and name."""
    return bytes((kind,)) + name.replace(".", "\0", 1).encode("ascii") + b"\0"
