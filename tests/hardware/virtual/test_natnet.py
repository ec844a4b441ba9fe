"""The virtual NatNet server: bytes against hand-assembled ones, round trips, and manners on the socket."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware import natnet_packets as packets
from hardware.errors import EncodingError, PortInUse, SourceError
from hardware.virtual.natnet import NatNetServer, encode_definitions, encode_frame, encode_server_info

VERSIONS = [(3, 0), (3, 1), (4, 0), (4, 1), (4, 2)]
UPRIGHT = (0.0, 0.0, 0.0, 1.0)

# id 1, position 1 2 -0.5, quaternion 0.5 0.5 -0.5 0.5, error 0.25, tracked
BODY = "01000000 0000803f 00000040 000000bf 0000003f 0000003f 000000bf 0000003f 0000803e 0100"
# 1.5 s = 15 000 000 ticks of 100 ns, 16 000 000 and 17 000 000
STAMPS = "00000000 00000000 000000000000f83f c0e1e40000000000 0024f40000000000 4066030100000000"
OLD_FRAME = f"0700 7400 02010000 00000000 00000000 01000000 {BODY} {'00000000' * 4} {STAMPS} 0200 00000000"
SIZED_FRAME = (
    f"0700 a000 02010000 {'00000000' * 4} 01000000 26000000 {BODY} {'00000000' * 10} {STAMPS} "
    "01000000 00000000 0200 00000000"
)

floats = st.floats(width=32, allow_nan=False)
bodies = st.lists(
    st.tuples(
        st.integers(0, 2**31 - 1),
        st.tuples(floats, floats, floats),
        st.tuples(floats, floats, floats, floats),
        st.booleans(),
    ),
    max_size=8,
)


@pytest.mark.parametrize("version", VERSIONS)
def test_frame_bytes(version):
    frame = encode_frame(
        0x102,
        [(1, (1.0, 2.0, -0.5), (0.5, 0.5, -0.5, 0.5), True)],
        (1.5, 1.6, 1.7),
        version,
        error_m=0.25,
        models_changed=True,
    )
    assert frame == bytes.fromhex(SIZED_FRAME if version >= (4, 1) else OLD_FRAME)


def test_server_info_bytes():
    expected = b"\x01\x00\x17\x01" + b"Lab".ljust(256, b"\0") + bytes((0, 1, 0, 0, 4, 0, 0, 0))
    expected += bytes.fromhex("8096980000000000 fc3a 00 00000000")
    assert encode_server_info("Lab", (4, 0), 15100) == expected


@given(
    st.sampled_from(VERSIONS),
    st.integers(0, 2**31 - 1),
    bodies,
    st.tuples(*[st.floats(0.0, 1e6)] * 3),
    st.booleans(),
)
def test_frame_round_trip(version, seq, poses, stamps, changed):
    frame = packets.decode(encode_frame(seq, poses, stamps, version, models_changed=changed), version)
    assert frame.seq == seq
    assert [(body.id, body.pos, body.quat, body.tracked) for body in frame.bodies] == poses
    assert frame.models_changed == changed
    for ticks, stamp in zip((frame.exposure, frame.received, frame.transmit), stamps, strict=True):
        assert abs(ticks / 10_000_000 - stamp) <= 1e-7


names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60)


@given(st.sampled_from(VERSIONS), st.dictionaries(names, st.integers(0, 2**31 - 1), max_size=8))
def test_definitions_round_trip(version, ids):
    unique = {body: name for name, body in ids.items()}
    bodies = {name: body for body, name in unique.items()}
    assert packets.decode(encode_definitions(bodies, version), version).names == unique


@pytest.mark.parametrize("stamp", [-1.0, float("nan"), float("inf"), 1e13])
def test_impossible_stamp_is_refused(stamp):
    with pytest.raises(EncodingError, match="stamps"):
        encode_frame(1, [], (stamp, stamp, stamp))


@pytest.fixture
def server():
    server = NatNetServer("127.0.0.1", 0, ["cf1", "cf2"])
    server.start()
    yield server
    server.close()


@pytest.fixture
def client():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(5.0)
        yield sock


def ask(client, server, message, now=0.0):
    client.sendto(packets.HEADER.pack(message, 0), ("127.0.0.1", server.port))
    server.service(now)  # loopback delivers within sendto


def test_only_clients_that_connected_get_frames(server, client):
    pose = ((0.0, 0.0, 1.0), UPRIGHT, True)
    server.send(1, 1.0, {"cf1": pose})
    ask(client, server, packets.CONNECT)
    assert packets.decode(client.recv(2048), (0, 0)).name == "Midair lab"
    server.send(2, 1.5, {"cf2": pose}, t_transmit=1.504)
    frame = packets.decode(client.recv(2048), (4, 0))
    assert (frame.seq, frame.bodies[0].id, frame.exposure, frame.transmit) == (2, 2, 15_000_000, 15_040_000)


def test_definitions_answered_and_change_announced_once(server, client):
    ask(client, server, packets.CONNECT)
    client.recv(2048)
    ask(client, server, packets.REQUEST_DEFINITIONS)
    assert packets.decode(client.recv(2048), (4, 0)).names == {1: "cf1", 2: "cf2"}
    server.define({"cf1": 9})
    server.send(1, 1.0, {"cf1": ((0.0, 0.0, 1.0), UPRIGHT, True)})
    server.send(2, 1.1, {"cf1": ((0.0, 0.0, 1.0), UPRIGHT, True)})
    frames = [packets.decode(client.recv(2048), (4, 0)) for _ in range(2)]
    assert [(frame.models_changed, frame.bodies[0].id) for frame in frames] == [(True, 9), (False, 9)]


def test_silent_client_is_forgotten_and_a_live_one_kept(server, client):
    ask(client, server, packets.CONNECT, now=10.0)
    ask(client, server, packets.KEEP_ALIVE, now=14.0)
    server.service(18.9)
    assert server.clients == (client.getsockname(),)
    server.service(19.1)
    assert server.clients == ()
    ask(client, server, packets.KEEP_ALIVE, now=19.2)
    assert server.clients == ()


def test_goodbye_ends_the_stream(server, client):
    ask(client, server, packets.CONNECT)
    ask(client, server, packets.DISCONNECT)
    assert server.clients == ()


def test_garbage_is_ignored(server, client):
    for size in (0, 1, 3, 4, 500):
        client.sendto(b"\xee" * size, ("127.0.0.1", server.port))
        server.service(0.0)
    assert server.clients == ()
    assert server.sent == 0


def test_clients_are_bounded(server):
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(20)]
    try:
        for sock in sockets:
            ask(sock, server, packets.CONNECT)
        assert len(server.clients) == 16
    finally:
        for sock in sockets:
            sock.close()


def test_port_in_use_names_port_and_key(server):
    second = NatNetServer("127.0.0.1", server.port, ["cf1"])
    with pytest.raises(PortInUse, match=rf"{server.port}.*command_port.*in use"):
        second.start()
    second.close()


def test_foreign_address_is_one_clear_error():
    with pytest.raises(SourceError, match=r"192\.0\.2\.1:15100 \(command_port\).*address of this machine"):
        NatNetServer("192.0.2.1", 15100, []).start()


def test_port_is_free_after_close(server):
    server.close()
    again = NatNetServer("127.0.0.1", server.port, ["cf1"])
    again.start()
    again.close()
