"""The station's only source of time: a monotonic clock, optionally slowed in simulation. Keeps no calendar."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Clock:
    """Seconds of CLOCK_MONOTONIC, scaled.

    One clock serves every process of a host: two clocks of the same rate agree, because both scale the same
    kernel counter. At ``rate`` 0.5 a second of this clock lasts two seconds, for the station and the lab alike.
    """

    rate: float = 1.0

    def now(self) -> float:
        """Seconds since an arbitrary epoch of the host, times ``rate``."""
        return time.monotonic_ns() * 1e-9 * self.rate

    def wall_s(self, seconds: float) -> float:
        """Host seconds that ``seconds`` of this clock last: what a kernel timeout must be given."""
        return seconds / self.rate

    def sleep_until(self, deadline: float) -> None:
        """Block until ``deadline`` of this clock; at once when it has passed."""
        left = deadline - self.now()
        if left > 0.0:
            time.sleep(self.wall_s(left))


def next_tick(previous: float, now: float, period: float) -> tuple[float, int]:
    """The next absolute deadline of a periodic loop, and how many ticks were missed.

    Missed ticks are skipped, never caught up in a burst: the answer is the first ``previous + k * period`` after
    ``now``.
    """
    due = previous + period
    if due > now:
        return due, 0
    missed = int((now - due) / period) + 1
    if due + missed * period <= now:  # the division was rounded down
        missed += 1
    return due + missed * period, missed
