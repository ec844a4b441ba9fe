"""Records: MCAP files of exactly the messages of `station/messages.py`, and reading them back. Subscribes to nothing.

A file has one topic for each drone and type (``cf1/Estimate``, ``/Health``), in msgpack as on the wires, with the JSON
schema of the type; log time is the message's ``t`` in ns. Attachments: ``config.json`` and ``versions.json``. Messages
reach the disk in compressed chunks of 64 KiB, so a killed process loses about a second of one drone; such a file has
no index, and `read` takes it all the same.
"""

from __future__ import annotations

import importlib.metadata
import platform
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from mcap.exceptions import McapError
from mcap.records import Attachment, Channel, Message
from mcap.stream_reader import CRCValidationError, StreamReader
from mcap.writer import Writer
from zstandard import ZstdError

from station import messages

CHUNK_BYTES = 64 * 1024
PACKAGES = ("cflib", "jax", "jaxlib", "mcap", "msgspec", "numpy", "optax", "pyzmq", "scipy", "uvloop")


class RecordError(Exception):
    """A file that is not a record; the text names it."""


def topic(message: messages.Message) -> str:
    """Where a message is filed: its drone, empty when it has none, and its type."""
    return f"{getattr(message, 'drone', '')}/{type(message).__name__}"


def versions() -> dict[str, str]:
    """Python, machine and the packages that decide how a flight goes."""
    found = {"python": platform.python_version(), "machine": platform.platform()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


class Recorder:
    """One open record. Owned by one thread; `close` it (or leave its ``with``) on every way out, SIGTERM included."""

    def __init__(self, path: Path, config: msgspec.Struct, facts: Mapping[str, str] | None = None) -> None:
        """Create the file and write its attachments.

        Args:
            path: Overwritten when it exists.
            config: What the station was told, kept as JSON.
            facts: Versions, seeds and the like; None: `versions`.

        Raises:
            OSError: the file cannot be written.
        """
        self._file = path.open("wb")
        self._writer = Writer(self._file, chunk_size=CHUNK_BYTES)
        self._schemas: dict[type[messages.Message], int] = {}
        self._channels: dict[str, int] = {}
        self._writer.start(profile="midair", library="midair")
        for name, data in (
            ("config.json", msgspec.json.encode(config)),
            ("versions.json", msgspec.json.encode(versions() if facts is None else dict(facts))),
        ):
            self._writer.add_attachment(0, 0, name, "application/json", data)
        self._file.flush()

    def write(self, message: messages.Message) -> None:
        """Append one message. Takes microseconds, and about a millisecond when a chunk is full."""
        if self._file.closed:
            raise ValueError("this record is closed")
        stamp_ns = max(0, round(message.t * 1e9))
        self._writer.add_message(
            channel_id=self._channel(message),
            log_time=stamp_ns,
            publish_time=stamp_ns,
            sequence=message.seq & 0xFFFFFFFF,
            data=messages.encode(message),
        )

    def close(self) -> None:
        """Write the last chunk and the index. A second call does nothing."""
        if not self._file.closed:
            try:
                self._writer.finish()
            finally:
                self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _channel(self, message: messages.Message) -> int:
        name = topic(message)
        if name not in self._channels:
            self._channels[name] = self._writer.register_channel(name, "msgpack", self._schema(type(message)))
        return self._channels[name]

    def _schema(self, kind: type[messages.Message]) -> int:
        if kind not in self._schemas:
            schema = msgspec.json.encode(msgspec.json.schema(kind))
            self._schemas[kind] = self._writer.register_schema(kind.__name__, "jsonschema", schema)
        return self._schemas[kind]


def read(path: Path) -> Iterator[tuple[str, messages.Message]]:
    """Topic and message of everything in a record, in the order in which it was written.

    A record cut short by a kill or a full disk ends with its last whole chunk.

    Raises:
        OSError: the file cannot be read.
        RecordError: it is not a record, or one of other messages than today's.
    """
    topics: dict[int, str] = {}
    for entry in _entries(path):
        if isinstance(entry, Channel):
            topics[entry.id] = entry.topic
        elif isinstance(entry, Message):
            try:
                message = messages.decode(entry.data)
            except msgspec.DecodeError as error:
                name = topics.get(entry.channel_id, "an unknown topic")
                raise RecordError(f"{path}: {name} is not a message of this version of Midair: {error}") from None
            yield topics[entry.channel_id], message


def attachments(path: Path) -> dict[str, Any]:
    """The attachments of a record by name, decoded from JSON. Raises as `read` does."""
    return {entry.name: msgspec.json.decode(entry.data) for entry in _entries(path) if isinstance(entry, Attachment)}


def _entries(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        seen = False
        try:
            for entry in StreamReader(file, validate_crcs=True, record_size_limit=1 << 30).records:
                seen = True
                yield entry
        except (McapError, CRCValidationError, ZstdError, struct.error, ValueError, KeyError) as error:
            cut_short = not file.read(1)  # the reader stopped at the end of the file, inside a record
            if not (seen and cut_short):
                said = " ".join(str(error).split()) or type(error).__name__
                raise RecordError(f"{path}: not an intact MCAP file ({said}); give one written by --record") from None
