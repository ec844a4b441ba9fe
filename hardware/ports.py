"""What station and edges agree on: poses and their source, a link's clock, dongles and figures. Holds no socket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One body in one frame of a source, already checked: what a consumer may believe without looking again.

    A tracked frame has a finite position within 50 m of the origin and a quaternion of unit norm. A frame that is not
    tracked says that the source looked and did not see the body; its pose is NaN, so that a stale one cannot be
    mistaken for a measurement.
    """

    body: str
    """Name of the body in the source."""
    seq: int
    """Frame number of the source; strictly increasing as delivered, except across a restart of the source."""
    t_source: float
    """Middle of the camera exposure, seconds of the source's own clock."""
    t_arrival: float
    """When the datagram was read, seconds of the host's clock."""
    pos: np.ndarray
    """(3,) float64, world frame as streamed, m."""
    quat: np.ndarray
    """(4,) float64, body to world, xyzw, unit norm."""
    tracked: bool
    error_m: float
    """The source's own mean marker error, m; NaN when it gave none."""
    latency_s: float | None
    """Exposure to transmission by the source's stamps; None when it gives none."""


class FrameSource(Protocol):
    """A source of poses. Frames reach the plain function that the source was made with, on the event loop's thread."""

    @property
    def names(self) -> tuple[str, ...]:
        """Bodies that the source says it has."""

    async def open(self) -> None:
        """Return once frames flow.

        Raises:
            SourceError: they do not within the deadline; the text names address and cure.

        """

    def close(self) -> None:
        """Give back the socket; harmless when already closed."""


class Clock(Protocol):
    """Of the station: seconds, perhaps slowed."""

    def now(self) -> float:
        """Seconds since an arbitrary epoch."""

    def sleep_until(self, deadline: float) -> None:
        """Block until then."""


class DongleConfig(Protocol):
    """What the configuration says about one dongle."""

    type: str
    """"soft", or anything else for the one on USB."""
    air_host: str
    air_port: int
    packet_us: float


@dataclass(frozen=True, slots=True)
class LinkStats:
    """Figures of one link since it was opened."""

    sent: int
    received: int
    overwritten: int
    """Poses, setpoints and heartbeats replaced by newer ones before the radio took them."""
    refused: int
    """Packets that found their queue full."""
    callback_errors: int
    heard_s: float
    """When anything last came, by the clock of `open`."""
