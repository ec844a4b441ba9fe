"""Upstream's ports as the stand-ins answer them, and any packet at all on every port."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

TAKE_OFF = struct.pack("<BBff?f", 7, 0, 1.0, 0.0, True, 1.0)


def test_arm_and_info_bytes(bench):
    bench.onboard.receive(9, 0, b"\x0c")
    bench.onboard.receive(9, 1, b"\x01\x01")
    bench.onboard.receive(9, 0, b"\x0c")
    bench.run(1)
    assert bench.others == [(9, 0, b"\x8c\x01\x00"), (9, 1, b"\x81\x01\x01"), (9, 0, b"\x8c\x0b\x00")]


@pytest.mark.parametrize(("port", "channel", "data"), [(9, 1, b"\x03"), (6, 1, b"\x03")])
def test_both_estops(bench, port, channel, data):
    bench.reach(2)
    bench.onboard.receive(port, channel, data)
    bench.run(2)
    assert bench.rpm == (0, 0, 0, 0)
    bench.onboard.receive(9, 1, b"\x01\x01")
    bench.run(1)
    assert bench.others[-1] == (9, 1, b"\x81\x00\x00")


def test_high_level_needs_arming_and_a_pose(bench):
    bench.onboard.receive(8, 0, TAKE_OFF)
    bench.run(1)
    assert bench.others[-1] == (8, 0, b"\x07\x00" + TAKE_OFF[2:3] + b"\x08")
    bench.arm()
    bench.onboard.receive(8, 0, TAKE_OFF)
    assert bench.run(20, poses=False) == {(0.0,) * 4}
    bench.run(20)
    bench.onboard.receive(8, 0, TAKE_OFF)
    bench.run(10)
    assert bench.others[-1][2][3] == 0 and min(bench.rpm) > 6000
    bench.onboard.receive(8, 0, b"\x03\x00")
    bench.run(3)
    assert bench.rpm == (0, 0, 0, 0)


@pytest.mark.parametrize("height", [math.nan, math.inf, 1e6])
def test_high_level_refuses_numbers_that_are_none(bench, height):
    bench.reach(0)
    bench.onboard.receive(8, 0, struct.pack("<BBff?f", 7, 0, height, 0.0, True, 1.0))
    bench.run(4)
    assert bench.others[-1][2][3] == 22 and bench.rpm == (0, 0, 0, 0)


def test_stop_setpoint_in_flight_stops_the_motors(bench):
    bench.reach(0)
    bench.onboard.receive(8, 0, TAKE_OFF)
    bench.run(20)
    assert min(bench.rpm) > 0
    bench.onboard.receive(7, 0, b"\x00")
    assert bench.run(3) and bench.rpm == (0, 0, 0, 0)


def test_pose_refusals(bench):
    bench.run(20)
    before = bench.onboard.snapshot()
    for pos, quat in (
        ((math.nan, 0, 1), (0, 0, 0, 1)),
        ((0, 0, math.inf), (0, 0, 0, 1)),
        ((0, 0, 1), (0, 0, 0, 0)),
        ((0, 0, 1), (0, 0, 0, math.nan)),
        ((0, 0, 1), (3, 3, 3, 3)),
        ((0, 0, 1e9), (0, 0, 0, 1)),
    ):
        bench.pose(pos, quat)
    after = bench.onboard.snapshot()
    assert after.poses_refused == before.poses_refused + 6
    assert after.pos == before.pos and after.poses_accepted == before.poses_accepted
    bench.onboard.receive(6, 1, b"\x08" + bytes(27))
    assert bench.onboard.snapshot().malformed == 1


def test_every_size_on_every_port_with_random_bytes(bench):
    """Survives all of it; whatever happens, commands stay finite and within the rotors' range."""
    rng = np.random.default_rng(0)
    bench.run(20)
    for _ in range(12):
        for port in range(16):
            for channel in range(4):
                for size in range(31):
                    data = bytearray(rng.integers(0, 256, size, np.uint8).tobytes())
                    if size and rng.random() < 0.7:
                        data[0] = int(rng.integers(0, 13))  # rather a command that exists
                    if (port, channel) in ((9, 1), (6, 1)) and size and data[0] == 3 and rng.random() < 0.99:
                        continue  # an e-stop would end the interesting part
                    bench.onboard.receive(port, channel, bytes(data))
                    if size % 3 == 0:
                        for rpm in bench.onboard.tick((0.0, 0.1, 0.0), (0.0, 0.0, 9.81), 4.0):
                            assert 0 <= rpm < 23000
        bench.collect()
    assert bench.onboard.snapshot().malformed > 1000


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([6, 7, 8, 9, 10]), st.integers(0, 3), st.binary(max_size=30)), max_size=30))
def test_packets_never_stop_the_drone_from_answering(build_onboard, packets):
    onboard = build_onboard()
    for port, channel, data in packets:
        onboard.receive(port, channel, data)
        onboard.tick((0, 0, 0), (0, 0, 9.81), 4.0)
    while onboard.transmit() is not None:
        pass
    onboard.receive(10, 0, b"\x00")
    onboard.tick((0, 0, 0), (0, 0, 9.81), 4.0)
    packet = onboard.transmit()
    assert packet is not None and packet[:2] == (10, 3) and packet[2][0] == 0x80


def test_too_long_and_foreign_addresses_are_counted(onboard):
    for port, channel, size in ((10, 0, 31), (10, 0, 255), (16, 0, 1), (-1, 0, 1), (6, 4, 1)):
        onboard.receive(port, channel, bytes(size))
    assert onboard.snapshot().malformed == 5


def test_outgoing_queue_is_bounded(onboard):
    for _ in range(200):
        onboard.receive(9, 0, b"\x0c")
    count = 0
    while onboard.transmit() is not None:
        count += 1
    assert count == 63 and onboard.snapshot().overflowed == 137
