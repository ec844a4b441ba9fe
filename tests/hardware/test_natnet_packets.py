"""NatNet bytes: frames assembled by hand for every layout, and what must be refused."""

from __future__ import annotations

import random

import pytest

from hardware import natnet_packets as packets
from hardware.errors import DecodeError

VERSIONS = [(3, 0), (3, 1), (4, 0), (4, 1), (4, 2)]

# Floats by their bytes: 1.0 0000803f, 2.0 00000040, -0.5 000000bf, 0.5 0000003f, 0.25 0000803e, 0.0 00000000.
POINT = "0000803f 00000040 000000bf"
ATTITUDE = "0000003f 0000003f 000000bf 0000003f"
BODY_1 = f"01000000 {POINT} {ATTITUDE} 0000803e 0100"  # id 1, error 0.25, tracked
BODY_9 = f"09000000 {POINT} {ATTITUDE} 00000000 0000"  # id 9, not tracked
MARKER_SET = f"616c6c00 01000000 {POINT}"  # "all", one marker
SKELETON = f"02000000 01000000 {BODY_1}"  # id 2, one bone
LABELLED = f"05000000 {POINT} 0000003f 0a00 0000803e"
ASSET = f"03000000 01000000 {BODY_1} 01000000 {LABELLED}"
PLATE = "07000000 02000000 01000000 0000803f 02000000 0000803f 00000040"  # id 7, channels of 1 and 2 samples
STAMPS = "000000000000f83f 0001000000000000 0002000000000000 0004000000000000"  # 1.5 s, 256, 512, 1024 ticks


def datagram(message: int, text: str) -> bytes:
    payload = bytes.fromhex(text)
    return message.to_bytes(2, "little") + len(payload).to_bytes(2, "little") + payload


def count(number: int, text: str, sized: bool) -> str:
    size = len(bytes.fromhex(text)).to_bytes(4, "little").hex() if sized else ""
    return number.to_bytes(4, "little").hex() + size + text


def frame_bytes(version: tuple[int, int], flags: str = "0200") -> bytes:
    """A frame with something in every section."""
    sized = version >= (4, 1)
    sections = [
        count(1, MARKER_SET, sized),
        count(2, POINT + POINT, sized),
        count(2, BODY_1 + BODY_9, sized),
        count(1, SKELETON, sized),
        count(1, ASSET, sized) if sized else "",
        count(2, LABELLED + LABELLED, sized),
        count(1, PLATE, sized),
        count(1, PLATE, sized),
    ]
    precise = "11000000 22000000" if sized else ""
    return datagram(7, "02010000" + "".join(sections) + f"00000000 00000000 {STAMPS} {precise} {flags} 00000000")


def definition_bytes(
    version: tuple[int, int], names: tuple[bytes, ...] = (b"cf1", b"wand"), ids: str = "0109"
) -> bytes:
    """A marker set, a camera, a skeleton, a force plate, a device, and two rigid bodies of two markers."""
    markers = "02000000" + POINT * 2 + "01000000 02000000" + ("6100 6200" if version >= (4, 0) else "")
    quat = ATTITUDE if version >= (4, 2) else ""
    bodies = [
        f"{name.hex()}00 {body:02x}000000 ffffffff {POINT} {quat} {markers}"
        for name, body in zip(names, bytes.fromhex(ids), strict=True)
    ]
    entries = [
        ("00000000", "616c6c00 02000000 6100 6200"),
        ("05000000", f"43616d00 {POINT} {ATTITUDE}"),
        ("01000000", bodies[0]),
        ("02000000", f"6d616e00 02000000 01000000 {bodies[0]}"),
        ("03000000", "07000000 7300" + "00000000" * (2 + 3 + 144 + 12 + 2) + "01000000 467a00"),
        ("04000000", "08000000 6400 7300" + "00000000" * 2 + "01000000 763000"),
        ("01000000", bodies[1]),
    ]
    if version >= (4, 1):
        entries.append(("06000000", "1234"))  # an asset, of which only the size matters
    sized = version >= (4, 1)
    text = "".join(kind + count(0, body, True)[8:] if sized else kind + body for kind, body in entries)
    return datagram(5, len(entries).to_bytes(4, "little").hex() + text)


SERVER_BYTES = datagram(
    1, b"Motive".ljust(256, b"\0").hex() + "03020100" + "04000000" + "8096980000000000" + "e705" + "00" + "efff2a01"
)


@pytest.mark.parametrize("version", VERSIONS)
def test_frame_of_each_version(version):
    frame = packets.decode(frame_bytes(version), version)
    assert isinstance(frame, packets.MocapFrame)
    assert frame.seq == 0x102
    assert [body.id for body in frame.bodies] == [1, 9]
    assert [body.tracked for body in frame.bodies] == [True, False]
    assert frame.bodies[0].pos == (1.0, 2.0, -0.5)
    assert frame.bodies[0].quat == (0.5, 0.5, -0.5, 0.5)
    assert frame.bodies[0].error_m == 0.25
    assert (frame.timestamp_s, frame.exposure, frame.received, frame.transmit) == (1.5, 256, 512, 1024)
    assert frame.models_changed
    assert not packets.decode(frame_bytes(version, flags="0100"), version).models_changed


@pytest.mark.parametrize("version", VERSIONS)
def test_definitions_of_each_version(version):
    assert packets.decode(definition_bytes(version), version) == packets.Definitions({1: "cf1", 9: "wand"})


def test_server_info():
    assert len(SERVER_BYTES) == 283
    assert packets.decode(SERVER_BYTES, (0, 0)) == packets.ServerInfo("Motive", (4, 0), 10_000_000, 1511, False)


def test_server_older_than_its_clock_tells_its_version():
    old = datagram(1, b"Old".ljust(256, b"\0").hex() + "01080000" + "02090000")
    assert packets.decode(old, (4, 0)) == packets.ServerInfo("Old", (2, 9), 0, 0, False)


def test_other_messages_are_nothing():
    assert packets.decode(datagram(100, ""), (4, 0)) == packets.Other(100)


@pytest.mark.parametrize("other", [(3, 0), (4, 1)])
@pytest.mark.parametrize("version", [(4, 0), (4, 2)])
def test_frame_of_another_layout_is_refused(version, other):
    if (version >= (4, 1)) != (other >= (4, 1)):
        with pytest.raises(DecodeError):
            packets.decode(frame_bytes(version), other)
    else:
        assert packets.decode(frame_bytes(version), other) == packets.decode(frame_bytes(version), version)


@pytest.mark.parametrize("version", [(2, 9), (4, 3), (5, 0)])
def test_version_without_layout(version):
    with pytest.raises(DecodeError) as error:
        packets.decode(frame_bytes((4, 0)), version)
    assert error.value.reason == "version"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("build", [frame_bytes, definition_bytes, lambda _: SERVER_BYTES])
def test_truncation_at_every_byte_is_refused(version, build):
    whole = build(version)
    for size in range(len(whole)):
        with pytest.raises(DecodeError):
            packets.decode(whole[:size], version)
        if size >= 4:  # the same cut with a header that agrees with it
            honest = whole[:2] + (size - 4).to_bytes(2, "little") + whole[4:size]
            with pytest.raises(DecodeError):
                packets.decode(honest, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_trailing_bytes_are_refused(version):
    for whole in (frame_bytes(version), definition_bytes(version)):
        longer = whole + b"\0"
        with pytest.raises(DecodeError) as error:
            packets.decode(longer, version)
        assert error.value.reason == "length"
        honest = longer[:2] + (len(longer) - 4).to_bytes(2, "little") + longer[4:]
        with pytest.raises(DecodeError):
            packets.decode(honest, version)


def test_ten_thousand_mutations_raise_nothing_else():
    draw = random.Random(1)
    decoded = refused = 0
    for _ in range(10_000):
        version = draw.choice(VERSIONS)
        data = bytearray(draw.choice((frame_bytes(version), definition_bytes(version), SERVER_BYTES)))
        for _ in range(draw.randint(1, 8)):
            at = draw.randrange(len(data))
            data[at] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
        if draw.random() < 0.3:
            del data[draw.randrange(len(data)) :]
        try:
            packets.decode(bytes(data), draw.choice(VERSIONS))
            decoded += 1
        except DecodeError:
            refused += 1
    assert decoded > 100  # floats that changed are still floats
    assert refused > 1000


@pytest.mark.parametrize("value", ["ffffffff", "ffffff7f", "00000080"])
@pytest.mark.parametrize("version", [(4, 0), (4, 1)])
def test_absurd_counts_are_refused(version, value):
    whole = frame_bytes(version)
    # Marker sets (from 4.1 on their size: the count is skipped by it), then rigid bodies.
    for at in [12, 68, 72] if version >= (4, 1) else [8, 16, 60]:
        with pytest.raises(DecodeError):
            packets.decode(whole[:at] + bytes.fromhex(value) + whole[at + 4 :], version)


def test_ambiguous_definitions_are_refused():
    for names, ids, reason in (
        ((b"cf1", b"cf1"), "0109", "duplicate-name"),
        ((b"cf1", b"cf2"), "0101", "duplicate-id"),
    ):
        with pytest.raises(DecodeError) as error:
            packets.decode(definition_bytes((4, 0), names, ids), (4, 0))
        assert error.value.reason == reason


def test_name_without_end_is_refused():
    with pytest.raises(DecodeError) as error:
        packets.decode(datagram(5, "01000000 01000000" + "61" * 400), (4, 0))
    assert error.value.reason == "name"


def test_server_clock_of_zero_is_refused():
    with pytest.raises(DecodeError) as error:
        packets.decode(SERVER_BYTES.replace(bytes.fromhex("8096980000000000"), bytes(8)), (4, 0))
    assert error.value.reason == "clock"
