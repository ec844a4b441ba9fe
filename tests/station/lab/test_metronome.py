"""The beat on two cores: by one thread at a time, by the spare when the first does not come, ended by either."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from station.clock import Clock
from station.lab import metronome

PATIENCE_S = 60.0
CORES = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
TWO_CORES = pytest.mark.skipif(len(CORES) < 2, reason="a spare needs a second core")


@dataclass(frozen=True)
class Sticking(Clock):
    """A clock on which the main thread never wakes until it is told to."""

    freed: threading.Event = field(default_factory=threading.Event)

    def sleep_until(self, deadline: float) -> None:
        if threading.current_thread() is threading.main_thread():
            assert self.freed.wait(PATIENCE_S)
        else:
            super().sleep_until(deadline)


def counted(last: int, each: Callable[[int], None]) -> Callable[[], float | None]:
    """A beat every 0.2 ms that does something with its number and ends after ``last``."""
    numbers = iter(range(last + 1))

    def beat() -> float | None:
        number = next(numbers)
        each(number)
        return None if number == last else Clock().now() + 2e-4

    return beat


def test_beats_until_it_says_none() -> None:
    seen: list[int] = []
    metronome.keep(counted(300, seen.append), Clock(), lambda: False)
    assert seen == list(range(301))


def test_ends_when_told_from_outside() -> None:
    seen: list[int] = []
    metronome.keep(counted(10_000, seen.append), Clock(), lambda: len(seen) >= 50)
    assert 50 <= len(seen) < 60


def test_no_two_threads_beat_at_once() -> None:
    inside = threading.Lock()

    def alone(_: int) -> None:
        assert inside.acquire(blocking=False)
        Clock().sleep_until(Clock().now() + 5e-4)
        inside.release()

    metronome.keep(counted(200, alone), Clock(), lambda: False)


@TWO_CORES
def test_spare_goes_on_while_the_first_thread_does_not_wake() -> None:
    clock, seen = Sticking(), []

    def note(number: int) -> None:
        seen.append(threading.current_thread().name)
        if number == 100:
            clock.freed.set()

    metronome.keep(counted(100, note), clock, lambda: False)
    assert len(seen) == 101
    assert seen.count("spare") >= 99


@TWO_CORES
@pytest.mark.parametrize("name", ["MainThread", "spare"])
def test_failure_on_either_thread_is_raised_and_ends_both(name: str) -> None:
    clock = Sticking()
    if name == "MainThread":
        clock.freed.set()

    def fail(_: int) -> None:
        if threading.current_thread().name == name:
            clock.freed.set()
            raise ZeroDivisionError(name)

    with pytest.raises(ZeroDivisionError, match=name):
        metronome.keep(counted(1_000_000, fail), clock, lambda: False)
    assert "spare" not in [thread.name for thread in threading.enumerate()]


@TWO_CORES
def test_thread_keeps_its_cores() -> None:
    metronome.keep(lambda: None, Clock(), lambda: False)
    assert os.sched_getaffinity(0) == CORES
