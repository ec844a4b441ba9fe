"""Keeps the lab's beat from two cores: a host that takes one of them away for milliseconds does not stop it.

A virtual machine's core can stand still for 5 to 13 ms while the host runs others on it (measured on 2 shared cores by
a thread of real-time priority that only read the clock; the two hardly ever stood still together). A thread that sleeps
there cannot wake, so a spare one on another core looks a little after each deadline whether the work has been done.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from station.clock import Clock

SPARE_S = 0.0004
"""How long after a deadline the spare looks."""


def keep(beat: Callable[[], float | None], clock: Clock, stopped: Callable[[], bool]) -> None:
    """Call ``beat`` whenever it wants to be called, by one thread at a time, until it or ``stopped`` ends it.

    Args:
        beat: Does what is due and returns the time of ``clock`` at which more will be; None to end.
        clock: The clock of these times.
        stopped: Whether to end from outside.

    Raises:
        Exception: whatever ``beat`` raised, on either thread.
    """
    working, over = threading.Lock(), threading.Event()
    failures: list[BaseException] = []
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []

    def loop(core: int | None, late_s: float) -> None:
        if core is not None:
            os.sched_setaffinity(0, {core})  # of this thread
        while not over.is_set() and not stopped():
            due: float | None = clock.now() + SPARE_S
            if working.acquire(blocking=False):
                try:
                    due = beat()
                finally:
                    working.release()
            if due is None:
                over.set()
                return
            clock.sleep_until(due + late_s)

    def spare() -> None:
        try:
            loop(cores[-1], SPARE_S)
        except BaseException as failure:  # raised again by the thread that waits
            failures.append(failure)
            over.set()

    helper = threading.Thread(target=spare, name="spare")
    if len(cores) > 1:
        helper.start()
    try:
        loop(cores[0] if len(cores) > 1 else None, 0.0)
    finally:
        over.set()
        if len(cores) > 1:
            helper.join()
            os.sched_setaffinity(0, cores)
    if failures:
        raise failures[0]
