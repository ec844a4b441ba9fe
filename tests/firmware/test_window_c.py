"""The throw window: no rotor turns before free fall AND the ground's word, however the thrower moves."""

from __future__ import annotations

import struct

import numpy as np
import pytest

OFF, IDLE = (0.0,) * 4, (7000.0,) * 4
RELEASED, FREE_FALL = 36, 37


def window(ms):
    return struct.pack("<BH", 7, ms)


@pytest.fixture
def thrown(bench):
    """An armed drone with a READY network in an open window."""
    bench.net = bench.reach(0)
    bench.z = 2.0
    bench.run(80)
    assert bench.ask(window(5000)).error == 0
    return bench


def test_hand_motion_never_turns_a_rotor(thrown):
    rng = np.random.default_rng(0)
    thrown.ask(b"\x08")
    for _ in range(300):  # |a| below 0.3 g never for 100 ms
        assert thrown.run(int(rng.integers(1, 95)), force=float(rng.uniform(-2, 2)), poses=False) == {OFF}
        assert thrown.run(int(rng.integers(3, 30)), force=float(rng.uniform(4, 40)), poses=False) == {OFF}
        thrown.ask(window(5001)) if rng.random() < 0.02 else None
    assert not thrown.onboard.snapshot().free_fall


def test_free_fall_alone_is_not_enough(thrown):
    assert thrown.run(400, force=0.0) == {OFF}
    assert thrown.causes().count(FREE_FALL) == 1


def test_released_alone_is_not_enough(thrown):
    assert thrown.ask(b"\x08").error == 0
    assert thrown.run(1000) == {OFF}
    assert thrown.causes().count(RELEASED) == 1


@pytest.mark.parametrize("released_at", [0, 50, 99, 130, 250])
def test_idle_from_the_later_of_both(thrown, released_at):
    fall = 300
    for ms in range(fall):
        if ms == released_at:
            thrown.onboard.receive(10, 0, b"\x08")
        thrown.run(1, force=0.0)
        expected = ms >= max(released_at, 102) + 1
        if abs(ms - max(released_at, 102)) > 2:
            assert thrown.rpm == (IDLE if expected else OFF), ms
    thrown.run(100)  # latched: caught by a hand it idles on
    assert thrown.rpm == IDLE


def test_noise_does_not_hide_free_fall_but_single_spikes_pass_the_median(thrown):
    thrown.onboard.receive(10, 0, b"\x08")
    for ms in range(120):
        thrown.run(1, force=50.0 if ms % 5 in (1, 3) else 1.0)
    assert thrown.onboard.snapshot().free_fall


def test_three_of_five_high_samples_are_no_free_fall(thrown):
    for ms in range(300):
        thrown.run(1, force=50.0 if ms % 5 in (0, 2, 3) else 0.0, poses=False)
    assert not thrown.onboard.snapshot().free_fall


def test_not_finite_acceleration_is_no_free_fall(thrown):
    thrown.run(300, force=float("nan"), poses=False)
    assert not thrown.onboard.snapshot().free_fall


def test_sideways_thrust_is_no_free_fall(thrown):
    for _ in range(300):
        thrown.onboard.tick((0, 0, 0), (3.0, 0.0, 0.0), 4.0)
    assert not thrown.onboard.snapshot().free_fall


def throw(bench):
    bench.vz = 3.0
    bench.run(60, force=0.0)
    bench.onboard.receive(10, 0, b"\x08")
    bench.run(60, force=0.0)
    assert bench.rpm == IDLE


def test_a_throw(thrown):
    throw(thrown)
    thrown.activate(thrown.net, gates=0xFF, valid=500)
    thrown.run(4, force=0.0)
    assert thrown.control() == 2 and thrown.rpm not in (IDLE, OFF)
    thrown.run(100, force=9.81, beat=(7,))
    assert thrown.ask(b"\x06\x00").control == 0
    thrown.run(10)
    assert min(thrown.rpm) > 6000 and thrown.rpm != IDLE  # the window is spent: the stock controller flies
    assert thrown.onboard.snapshot().stock_mode == 1


def test_gate_1_needs_the_window(thrown):
    throw(thrown)
    thrown.ask(window(0))
    thrown.activate(thrown.net, gates=0x02, valid=50)
    thrown.run(100, force=0.0)
    assert 32 not in thrown.causes()


@pytest.mark.parametrize("way", ["expired", "abort", "off", "closed", "time", "disarmed", "estop"])
def test_motors_stop_when_the_throw_is_given_up(thrown, way):
    throw(thrown)
    if way == "expired":
        thrown.activate(thrown.net, gates=0x10, valid=40)
        thrown.vz = 6.5  # too fast to take over
        thrown.run(80, force=0.0, poses=False)
    elif way == "time":
        thrown.run(5000, force=9.81)
    elif way == "disarmed":
        thrown.arm(False)
    elif way == "estop":
        thrown.onboard.receive(6, 1, b"\x03")
    else:
        thrown.ask({"abort": b"\x06\x00", "off": b"\x06\x01", "closed": window(0)}[way])
    thrown.run(3, poses=False)
    if way != "expired" or thrown.control() == 0:
        assert thrown.run(500) == {OFF}


def test_a_network_armed_before_the_throw_waits_for_both(thrown):
    thrown.activate(thrown.net, gates=0xFF, valid=60000)
    assert thrown.run(500) == {OFF}
    assert thrown.control() == 1
    thrown.vz = 3.0
    thrown.onboard.receive(10, 0, b"\x08")
    thrown.run(120, force=0.0)
    assert thrown.control() == 2


def test_windows_are_bounded_repeatable_and_renewable(bench):
    assert bench.ask(window(30001)).error == 3
    bench.ask(window(1000))
    bench.run(300, force=0.0, poses=False)
    bench.ask(b"\x08")
    bench.run(300, poses=False)
    assert bench.ask(window(1000)).error == 0  # the same bytes: latches and deadline stay
    snapshot = bench.onboard.snapshot()
    assert (snapshot.free_fall, snapshot.released) == (1, 1)
    bench.run(396, poses=False)
    assert bench.onboard.snapshot().window_open == 1
    bench.run(10, poses=False)
    assert bench.onboard.snapshot().window_open == 0
    bench.ask(window(500))
    snapshot = bench.onboard.snapshot()
    assert (snapshot.window_open, snapshot.free_fall, snapshot.released) == (1, 0, 0)
    bench.ask(window(0))
    assert bench.onboard.snapshot().window_open == 0


def test_released_needs_a_window(bench):
    status = bench.ask(b"\x08")
    assert (status.error, status.tail[0]) == (9, 1)


def test_tumble_check_rests_in_the_window_and_returns_with_its_end(bench):
    bench.reach(0)
    bench.ask(window(1000))
    bench.run(990, force=-9.81, poses=False)
    assert bench.onboard.snapshot().supervisor & 0x20 == 0
    bench.run(200, force=-9.81, poses=False)
    assert bench.onboard.snapshot().supervisor & 0x22 == 0x20  # tumbled, and disarmed


def test_closing_a_window_in_a_hand_leaves_the_motors_off(thrown):
    thrown.ask(window(0))
    assert thrown.run(500) == {OFF}
