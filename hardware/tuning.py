"""Where a Crazyflie's radio listens, and the URI that says so. Opens nothing."""

from __future__ import annotations

import re
from typing import NamedTuple

from hardware.errors import LinkError

DATARATES = {"250K": 0, "1M": 1, "2M": 2}
"""cflib's numbers of the data rates."""
_URI = re.compile(r"radio://(?P<dongle>\d{1,2})/(?P<channel>\d{1,3})/(?P<rate>250K|1M|2M)/(?P<address>[0-9A-Fa-f]{10})")


class Tuning(NamedTuple):
    """Channel 0..125 (2,400 + channel MHz), data rate by cflib's number, 5-byte address."""

    channel: int
    datarate: int
    address: bytes


def parse_uri(uri: str) -> tuple[int, Tuning]:
    """Index of the dongle and the tuning in ``radio://0/80/2M/E7E7E7E701``.

    Raises:
        LinkError: it is written otherwise.

    """
    match = _URI.fullmatch(uri)
    if not match or int(match["channel"]) > 125:
        raise LinkError(
            f"link '{uri}' is not radio://DONGLE/CHANNEL/RATE/ADDRESS; write it like radio://0/80/2M/E7E7E7E701"
        )
    address = bytes.fromhex(match["address"])
    return int(match["dongle"]), Tuning(int(match["channel"]), DATARATES[match["rate"]], address)
