"""What can go wrong at the edges, as one tree of exceptions; not what the physics or the configuration complain of.

    HardwareError
    ├── DecodeError        bytes that came in are not what their format says; `reason` is a short name to count by
    ├── EncodingError      a value cannot be put on the wire (not finite, out of range); nothing was sent
    ├── PortInUse          a local UDP port is already taken
    ├── SourceError        a pose source does not answer, answers wrongly, or its address is no address
    ├── LinkError          the radio link cannot be opened or kept
    │   ├── LinkLost       it was open and went silent
    │   └── DongleMissing  there is no dongle of that index
    └── FirmwareError      the drone answered, and its firmware cannot do what is asked

Every text names the thing, its value and the cure, in one line: it is shown to users as it is.
"""

from __future__ import annotations


class HardwareError(Exception):
    """Root of the tree: everything that bytes, sockets and radios can raise."""


class DecodeError(HardwareError):
    """Bytes that are not what their format says. `reason` is a short stable name, e.g. "truncated"."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


class EncodingError(HardwareError):
    """A value that cannot be put on the wire."""


class PortInUse(HardwareError):
    """A local port that another process holds."""


class SourceError(HardwareError):
    """A pose source that does not answer, answers wrongly, or cannot be addressed."""


class LinkError(HardwareError):
    """The radio link cannot be opened or kept."""


class LinkLost(LinkError):
    """The radio link was open and went silent."""


class DongleMissing(LinkError):
    """No radio dongle of the configured index."""


class FirmwareError(HardwareError):
    """The drone's firmware cannot do what is asked of it."""
