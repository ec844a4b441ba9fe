"""Golden bytes of every row the ground sends, and what it refuses to send."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware import crtp
from hardware.crtp import Packet
from hardware.errors import DecodeError, EncodingError

NOT_FINITE = (math.nan, math.inf, -math.inf)
LEVEL = (0.0, 0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("packet", "raw"),
    [
        (crtp.encode_arm(True), "9d 01 01"),
        (crtp.encode_arm(False), "9d 01 00"),
        (crtp.encode_recover(), "9d 02"),
        (crtp.encode_estop()[0], "9d 03"),
        (crtp.encode_estop()[1], "6d 03"),
        (crtp.encode_info(), "9c 0c"),
        (crtp.encode_stop(), "7c 00"),
        (crtp.encode_notify_stop(1000), "7d 00 e8 03 00 00"),
        (crtp.encode_high_level_stop(), "8c 03 00"),
        (crtp.encode_takeoff(0.5, 2.0), "8c 07 00 00 00 00 3f 00 00 00 00 01 00 00 00 40"),
        (crtp.encode_takeoff(0.5, 2.0, 1.0), "8c 07 00 00 00 00 3f 00 00 80 3f 00 00 00 00 40"),
        (crtp.encode_land(0.0, 1.5), "8c 08 00 00 00 00 00 00 00 00 00 01 00 00 c0 3f"),
        (
            crtp.encode_goto((1.0, -2.0, 0.5), 0.0, 3.0, linear=True),
            "8c 0c 00 00 01 00 00 80 3f 00 00 00 c0 00 00 00 3f 00 00 00 00 00 00 40 40",
        ),
        (
            crtp.encode_extpose((1.0, -2.0, 0.5), LEVEL),
            "6d 08 00 00 80 3f 00 00 00 c0 00 00 00 3f" + " 00" * 12 + " 00 00 80 3f",
        ),
        (crtp.encode_echo(b"abc"), "fc 61 62 63"),
    ],
)
def test_golden_bytes(packet, raw):
    assert crtp.encode(packet) == bytes.fromhex(raw)


def test_an_external_pose_has_29_bytes_of_data():
    assert len(crtp.encode_extpose((0.0, 0.0, 0.0), LEVEL).data) == 29


@given(st.integers(0, 15), st.integers(0, 3), st.binary(max_size=30), st.integers(0, 3))
def test_round_trip_whatever_the_radio_does_to_its_bits(port, channel, data, bits):
    raw = bytearray(crtp.encode(Packet(port, channel, data)))
    raw[0] = raw[0] & 0xF3 | bits << 2
    assert crtp.decode(bytes(raw)) == Packet(port, channel, data)


@pytest.mark.parametrize("raw", [b"", bytes(32)])
def test_packets_of_impossible_sizes_are_refused(raw):
    with pytest.raises(DecodeError):
        crtp.decode(raw)


@pytest.mark.parametrize("bad", NOT_FINITE)
@pytest.mark.parametrize(
    "encode",
    [
        lambda x: crtp.encode_extpose((x, 0.0, 0.0), LEVEL),
        lambda x: crtp.encode_extpose((0.0, 0.0, 0.0), (0.0, 0.0, x, 1.0)),
        lambda x: crtp.encode_takeoff(x, 1.0),
        lambda x: crtp.encode_takeoff(1.0, x),
        lambda x: crtp.encode_takeoff(1.0, 1.0, x),
        lambda x: crtp.encode_land(x, 1.0),
        lambda x: crtp.encode_goto((0.0, x, 0.0), 0.0, 1.0),
        lambda x: crtp.encode_goto((0.0, 0.0, 0.0), x, 1.0),
        lambda x: crtp.encode_goto((0.0, 0.0, 0.0), 0.0, x),
    ],
)
def test_what_is_not_finite_is_not_sent(encode, bad):
    with pytest.raises(EncodingError):
        encode(bad)


@pytest.mark.parametrize(
    "encode",
    [
        lambda: Packet(16, 0),
        lambda: Packet(0, 4),
        lambda: Packet(0, 0, bytes(31)),
        lambda: crtp.encode_extpose((1e6, 0.0, 0.0), LEVEL),
        lambda: crtp.encode_extpose((0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.5)),
        lambda: crtp.encode_extpose((0.0, 0.0), LEVEL),
        lambda: crtp.encode_goto((0.0, 0.0), 0.0, 1.0),
        lambda: crtp.encode_takeoff(1.0, -1.0),
        lambda: crtp.encode_takeoff(1.0, 3600.0),
        lambda: crtp.encode_notify_stop(-1),
    ],
)
def test_what_is_out_of_range_is_not_sent(encode):
    with pytest.raises(EncodingError):
        encode()


def test_replies():
    assert crtp.decode_reply(Packet(9, 1, b"\x81\x01\x00")) == crtp.ArmReply(ok=True, armed=False)
    assert crtp.decode_reply(Packet(8, 0, b"\x07\x00\x00\x08")) == crtp.HighLevelReply(command=7, error=8)
    assert crtp.decode_reply(Packet(0, 0, b"text")) is None
    assert crtp.decode_reply(Packet(9, 0, b"")) is None
    info = crtp.decode_reply(Packet(9, 0, bytes.fromhex("8c 2a 00")))
    assert (info.armed, info.can_fly, info.tumbled) == (True, True, True)
    assert not any((info.can_arm, info.auto_arm, info.flying, info.locked, info.crashed))


@pytest.mark.parametrize("packet", [Packet(9, 1, b"\x81\x01"), Packet(9, 0, b"\x8c\x00"), Packet(8, 0, b"\x07\x00")])
def test_short_replies_are_refused(packet):
    with pytest.raises(DecodeError):
        crtp.decode_reply(packet)


@given(st.integers(0, 15), st.integers(0, 3), st.binary(max_size=30))
def test_any_packet_is_a_reply_or_none_or_refused(port, channel, data):
    try:
        crtp.decode_reply(Packet(port, channel, data))
    except DecodeError as error:
        assert error.reason == "truncated"


def test_null_packets():
    assert crtp.is_null(b"") and crtp.is_null(b"\xff") and crtp.is_null(b"\xf3\x01\x20")
    assert not crtp.is_null(b"\xfc\x00")
