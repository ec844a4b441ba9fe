"""The station's clock and the deadlines of periodic loops."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from station.clock import Clock, next_tick


def test_clock_is_the_monotonic_clock_scaled():
    for rate in (1.0, 0.25):
        before = time.monotonic()
        now = Clock(rate).now()
        after = time.monotonic()
        assert before * rate - 1e-6 <= now <= after * rate + 1e-6


def test_clock_never_goes_back():
    clock = Clock(0.1)
    stamps = [clock.now() for _ in range(1000)]
    assert stamps == sorted(stamps)


def test_two_clocks_of_one_rate_agree():
    first, second = Clock(0.5), Clock(0.5)
    low, middle, high = first.now(), second.now(), first.now()
    assert low <= middle <= high


@given(st.floats(0.01, 1.0), st.floats(0.0, 1e4))
def test_wall_time_is_longer_when_the_clock_is_slow(rate, seconds):
    assert Clock(rate).wall_s(seconds) * rate == pytest.approx(seconds)
    assert Clock(rate).wall_s(seconds) >= seconds


def test_sleep_ends_after_its_deadline_and_not_before():
    clock = Clock(0.5)
    deadline = clock.now() + 0.01
    clock.sleep_until(deadline)
    assert clock.now() >= deadline


def test_sleep_until_the_past_sleeps_not_at_all(monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("slept"))
    clock = Clock()
    clock.sleep_until(clock.now() - 1.0)


def test_tick_on_time_and_late():
    assert next_tick(10.0, 10.2, 1.0) == (11.0, 0)
    assert next_tick(10.0, 11.5, 1.0) == (12.0, 1)
    assert next_tick(10.0, 14.5, 1.0) == (15.0, 4)
    assert next_tick(10.0, 11.0, 1.0) == (12.0, 1)


@given(st.floats(0.0, 1e6), st.floats(-1.0, 100.0), st.floats(1e-4, 1.0))
def test_next_tick_is_the_first_of_its_grid_after_now(previous, late, period):
    now = previous + late
    due, missed = next_tick(previous, now, period)
    assert due > now
    assert missed >= 0
    assert due == pytest.approx(previous + (missed + 1) * period, rel=1e-12)
    assert missed == 0 or due - period <= now + 1e-6 * period + 1e-9


@given(st.floats(1e-4, 0.1), st.lists(st.floats(0.0, 0.5), max_size=30))
def test_a_loop_counts_every_tick_once(period, delays):
    ticks = missed_in_all = 0
    previous = now = 100.0
    for delay in delays:
        due, missed = next_tick(previous, now, period)
        assert due > now
        ticks += 1 + missed
        missed_in_all += missed
        previous, now = due, due + delay
    assert previous == pytest.approx(100.0 + ticks * period)
    assert missed_in_all <= ticks
