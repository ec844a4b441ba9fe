"""The upload on board: golden bytes, any order, loss, conflicts, refusals; a torn upload is never READY."""

from __future__ import annotations

import itertools
import struct
import zlib

import numpy as np
import pytest

EMPTY, RECV, READY = range(3)


def test_hello_bytes(bench):
    bench.onboard.receive(10, 0, b"\x00")
    bench.onboard.tick((0, 0, 0), (0, 0, 9.81), 4.0)
    port, channel, data = bench.onboard.transmit()
    assert (port, channel) == (10, 3)
    assert data == bytes.fromhex("80 00 00 00 00 00 00000000 00000000 01 0007 03 0100 0200 0300") + bytes(6)
    assert bench.onboard.transmit() is None


def test_begin_and_commit_bytes(bench, network):
    net = network()
    crc = zlib.crc32(net.image)
    begin = bytes.fromhex("01 2a 01 0100 1401 14 78563412") + crc.to_bytes(4, "little")
    assert bench.begin(net, xfer=42, policy=0x12345678) == begin
    status = bench.ask(begin)
    assert (status.command, status.xfer, status.control, status.bank0, status.bank1) == (1, 42, 0, RECV, EMPTY)
    assert (status.error, status.policy, status.crc, status.tail) == (0, 0, crc, bytes(16))
    for chunk in bench.chunks(net, 42):
        bench.onboard.receive(10, 1, chunk)
    status = bench.ask(bench.commit(net, 42))
    assert (status.command, status.xfer, status.bank0, status.error, status.crc) == (2, 42, READY, 0, crc)
    assert status.tail == b"\xff\xff\x0f" + bytes(13)


def test_data_is_never_answered(bench, network):
    net = network()
    bench.ask(bench.begin(net))
    for chunk in bench.chunks(net):
        bench.onboard.receive(10, 1, chunk)
    bench.run(5)
    assert len(bench.statuses) == 1


@pytest.mark.parametrize("arch", [1, 2, 3])
def test_every_architecture_in_any_order_with_duplicates(bench, network, arch):
    net, rng = network(arch, seed=arch), np.random.default_rng(arch)
    bench.ask(bench.begin(net))
    chunks = bench.chunks(net) * 2
    for i in rng.permutation(len(chunks)):
        bench.onboard.receive(10, 1, chunks[i])
    status = bench.ask(bench.commit(net))
    assert (status.error, status.bank0) == (0, READY)


def test_missing_chunks_are_named_and_repaired(bench, network):
    net = network()
    bench.ask(bench.begin(net))
    chunks = bench.chunks(net)
    lost = {0, 3, 19}
    for i, chunk in enumerate(chunks):
        if i not in lost:
            bench.onboard.receive(10, 1, chunk)
    status = bench.ask(bench.commit(net))
    assert (status.error, status.bank0) == (5, RECV)
    assert set(status.missing(20)) == lost
    for i in lost:
        bench.onboard.receive(10, 1, chunks[i])
    assert bench.ask(bench.commit(net)).error == 0


def test_every_single_loss_is_seen(bench, network):
    net = network()
    chunks = bench.chunks(net)
    for lost in range(20):
        bench.ask(bench.begin(net, xfer=lost + 1))
        for chunk in bench.chunks(net, lost + 1):
            if chunk[1] != lost:
                bench.onboard.receive(10, 1, chunk)
        status = bench.ask(bench.commit(net, xfer=lost + 1))
        assert (status.error, status.missing(20)) == (5, [lost])
    assert len(chunks) == 20


@pytest.mark.parametrize("burst", [3, 17])
def test_one_burst_needs_no_pause(bench, network, burst):
    """BEGIN, DATA and COMMIT between two ticks: BEGIN takes the bank on receipt."""
    net = network()
    for data in [bench.begin(net)] * (burst - 2):
        bench.onboard.receive(10, 0, data)
    for chunk in bench.chunks(net):
        bench.onboard.receive(10, 1, chunk)
    if burst < 10:
        bench.onboard.receive(10, 0, bench.commit(net))
    bench.run(1)
    assert bench.onboard.snapshot().bank0 == (READY if burst < 10 else RECV)


def test_conflicting_duplicate_is_latched(bench, network):
    net = network()
    bench.ask(bench.begin(net))
    for chunk in bench.chunks(net):
        bench.onboard.receive(10, 1, chunk)
    other = bytearray(bench.chunks(net)[4])
    other[9] ^= 1
    bench.onboard.receive(10, 1, bytes(other))
    assert [bench.ask(bench.commit(net)).error for _ in range(2)] == [14, 14]
    assert bench.onboard.snapshot().bank0 == RECV
    assert bench.upload(net, xfer=2).error == 0  # a new transfer is clean


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"version": 2}, 1),
        ({"arch": 4}, 2),
        ({"arch": 0}, 2),
        ({"n": 275}, 3),
        ({"arch": 2}, 3),
        ({"chunks": 21}, 3),
        ({"chunks": 0}, 3),
        ({"xfer": 0}, 13),
    ],
)
def test_begin_refusals(bench, network, change, error):
    status = bench.ask(bench.begin(network(), **change))
    assert (status.error, status.bank0, status.bank1) == (error, EMPTY, EMPTY)


def broken(net, at, value):
    net.halves[at] = value
    return net


def test_commit_refusals(bench, network):
    good, crc = network(), zlib.crc32(network().image)
    assert bench.ask(bench.commit(good, xfer=9)).error == 13
    cases = [
        (good, {"crc": crc ^ 1}, 6),
        (broken(network(), 7, np.nan), {"expected": good.expected()}, 7),
        (broken(network(), 275, np.inf), {"expected": good.expected()}, 7),
        (broken(network(), 0, 64.1), {"expected": good.expected()}, 7),
        (good, {"expected": good.expected() + np.array([0, 0.01, 0, 0])}, 8),
        (good, {"expected": [np.nan] * 4}, 8),
        (good, {"tolerance": np.inf}, 8),
        (good, {"tolerance": np.nan}, 8),
        (good, {"tolerance": -1.0}, 8),
    ]
    for xfer, (net, change, error) in enumerate(cases, start=10):
        assert bench.ask(bench.begin(net, xfer)).error == 0
        for chunk in bench.chunks(net, xfer):
            bench.onboard.receive(10, 1, chunk)
        status = bench.ask(bench.commit(net, xfer, **change))
        assert (status.error, READY in (status.bank0, status.bank1)) == (error, False)


def test_largest_weight_and_bytes_that_lie_about_their_crc(bench, network):
    edge = network()
    edge.halves[:] = 0
    edge.halves[0] = -64.0
    assert bench.upload(edge).error == 0
    net = network(seed=1)
    bench.ask(bench.begin(net, xfer=2, crc=zlib.crc32(net.image) ^ 0x80))
    for chunk in bench.chunks(net, 2):
        bench.onboard.receive(10, 1, chunk)
    assert bench.ask(bench.commit(net, 2, crc=zlib.crc32(net.image) ^ 0x80)).error == 6


@pytest.mark.parametrize("swap", ["transposed", "layers"])
def test_canned_pass_catches_a_wrong_layout(bench, network, swap):
    net = network()
    want = net.expected()
    if swap == "transposed":
        net.halves[:160] = net.halves[:160].reshape(20, 8).T.ravel().copy()
    else:
        net.halves[168:240] = np.roll(net.halves[168:240], 8)
    bench.ask(bench.begin(net))
    for chunk in bench.chunks(net):
        bench.onboard.receive(10, 1, chunk)
    assert bench.ask(bench.commit(net, expected=want)).error == 8


def test_torn_upload_is_never_ready(bench, network):
    """Chunks of one network under another's CRC, in every cut."""
    old, new = network(seed=1), network(seed=2)
    for cut in range(1, 20):
        bench.ask(bench.begin(new, xfer=cut))
        for chunk in bench.chunks(new, cut)[:cut] + bench.chunks(old, cut)[cut:]:
            bench.onboard.receive(10, 1, chunk)
        status = bench.ask(bench.commit(new, xfer=cut))
        assert (status.error, READY in (status.bank0, status.bank1)) == (6, False)


def test_ignored_data(bench, network):
    net = network()
    chunk = bench.chunks(net)[0]
    bench.onboard.receive(10, 1, chunk)  # nobody receives
    bench.ask(bench.begin(net))
    bench.onboard.receive(10, 1, chunk[:-1])
    bench.onboard.receive(10, 1, bytes([9]) + chunk[1:])
    bench.onboard.receive(10, 1, bytes([1, 20]) + chunk[2:])
    assert bench.onboard.snapshot().ignored == 4
    assert bench.ask(bench.commit(net)).missing(20) == list(range(20))


def test_the_same_bytes_again_change_nothing(bench, network):
    net = network()
    for _ in range(2):
        bench.ask(bench.begin(net))
        bench.onboard.receive(10, 1, bench.chunks(net)[0])
    assert bench.ask(bench.commit(net)).missing(20) == list(range(1, 20))
    for chunk in bench.chunks(net):
        bench.onboard.receive(10, 1, chunk)
    for _ in range(2):
        assert bench.ask(bench.commit(net)).bank0 == READY
    assert bench.ask(bench.begin(net)).bank0 == READY


def test_banks_are_taken_empty_then_receiving_then_ready(bench, network):
    a, b, c, d = (network(seed=s) for s in range(4))
    bench.ask(bench.begin(a, 1, 1))
    status = bench.ask(bench.begin(b, 2, 2))
    assert (status.bank0, status.bank1) == (RECV, RECV)
    for chunk in bench.chunks(a, 1):
        bench.onboard.receive(10, 1, chunk)
    assert bench.ask(bench.commit(a, 1)).bank0 == READY
    status = bench.ask(bench.begin(c, 3, 3))  # rather the one that receives than the READY one
    assert (status.bank0, status.bank1) == (READY, RECV)
    for chunk in bench.chunks(c, 3):
        bench.onboard.receive(10, 1, chunk)
    assert bench.ask(bench.commit(c, 3)).bank1 == READY
    status = bench.ask(bench.begin(d, 4, 4))
    assert sorted((status.bank0, status.bank1)) == [RECV, READY]


def test_a_flying_network_is_never_overwritten(bench, network):
    flying = bench.reach(2)
    for xfer in range(2, 6):
        status = bench.upload(network(seed=xfer), xfer, policy=100 + xfer)
        assert (status.error, status.bank0, status.bank1, status.control) == (0, READY, READY, 2)
        assert status.policy == 7
    other = network(seed=5)
    assert bench.activate(other, policy=105, delay=5000, valid=6000).error == 0
    assert bench.ask(bench.begin(network(seed=9), 9, 9)).error == 4  # both banks are spoken for
    assert flying.halves.size == 276


def test_unknown_commands_and_sizes_are_answered(bench):
    for command in (9, 0x10, 0x7F):
        assert bench.ask(bytes([command])).error == 12
    for data in (b"\x01", b"\x02" + bytes(14), b"\x03" + bytes(17), b"\x06", b"\x07\x01", b"\x08\x00"):
        assert bench.ask(data).error == 3


def test_a_full_ring_drops_requests_but_never_an_abort(bench):
    bench.reach(2)
    for _ in range(40):
        bench.onboard.receive(10, 0, b"\x00")
    bench.onboard.receive(10, 0, b"\x06\x00")
    bench.run(2)
    assert bench.control() == 0
    assert bench.onboard.snapshot().dropped > 0


def test_crc_is_zlibs(library):
    for size in itertools.chain(range(40), (552, 3584)):
        data = bytes(range(256)) * 14
        assert library.weights_crc32(data[:size], size) & 0xFFFFFFFF == zlib.crc32(data[:size])


def test_activate_and_event_bytes(bench, network):
    net = network()
    bench.run(20)
    bench.arm()
    bench.upload(net, policy=0xCAFE)
    crc = zlib.crc32(net.image)
    request = bytes.fromhex("03 feca0000") + crc.to_bytes(4, "little") + bytes.fromhex("0000 f401 fa00 dc05 fd00")
    assert request[9:] == struct.pack("<HHHhH", 0, 500, 250, 1500, 0xFD)
    status = bench.ask(request)
    assert (status.command, status.error, status.control in (1, 2), status.policy) == (3, 0, True, 0xCAFE)
    bench.run(2)
    control, cause, bank, policy, tick = bench.events[-1]
    assert (control, cause, bank, policy) == (2, 32, 0, 0xCAFE)
    assert tick % 2 == 0 and tick <= bench.onboard.snapshot().tick_ms
    assert bench.onboard.snapshot().target_m == pytest.approx(1.5)
