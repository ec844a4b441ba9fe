"""The upload wire's bytes, and the uploader against a bank that follows the same page."""

import math
import random
import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware import weights
from hardware.crtp import Packet, encode
from hardware.errors import DecodeError, EncodingError

EXPECTED = (0.5, -0.25, 0.125, -1.0)
TOLERANCE = 0.01
IMAGE = struct.pack("<276e", *(0.01 * (i % 200 - 100) for i in range(276)))
CRC = zlib.crc32(IMAGE)


@pytest.mark.parametrize(
    ("packet", "raw"),
    [
        (weights.encode_hello(), "ac 00"),
        (
            weights.encode_begin(7, 1, 276, 20, 0x01020304, 0xA0B0C0D0),
            "ac 01 07 01 01 00 14 01 14 04 03 02 01 d0 c0 b0 a0",
        ),
        (weights.encode_data(7, 19, bytes(range(28))), "ad 07 13 " + bytes(range(28)).hex()),
        (
            weights.encode_commit(7, 0xA0B0C0D0, (1.0, -1.0, 0.5, 0.0), 0.25),
            "ac 02 07 d0c0b0a0 003c 00bc 0038 0000 0034",
        ),
        (
            weights.encode_activate(0x01020304, 0xA0B0C0D0, 20, 300, 250, -1200, 0x00FF),
            "ac 03 04030201 d0c0b0a0 1400 2c01 fa00 50fb ff00",
        ),
        (weights.encode_heartbeat(0x01020304, 0x1FE, 250), "ac 04 04030201 fe fa00"),
        (weights.encode_rollback(), "ac 05"),
        (weights.encode_abort(1), "ac 06 01"),
        (weights.encode_window(30_000), "ac 07 3075"),
        (weights.encode_released(), "ac 08"),
    ],
)
def test_golden_bytes(packet, raw):
    assert encode(packet) == bytes.fromhex(raw)


@pytest.mark.parametrize(
    "encode_bad",
    [
        lambda: weights.encode_begin(0, 1, 276, 20, 1, 1),
        lambda: weights.encode_begin(256, 1, 276, 20, 1, 1),
        lambda: weights.encode_begin(1, 1, 1793, 20, 1, 1),
        lambda: weights.encode_begin(1, 1, 276, 129, 1, 1),
        lambda: weights.encode_begin(1, 1, 276, 20, 1 << 32, 1),
        lambda: weights.encode_data(1, 128, bytes(28)),
        lambda: weights.encode_data(1, 0, bytes(27)),
        lambda: weights.encode_commit(1, 1, (math.nan, 0, 0, 0), 0.1),
        lambda: weights.encode_commit(1, 1, (math.inf, 0, 0, 0), 0.1),
        lambda: weights.encode_commit(1, 1, (70_000.0, 0, 0, 0), 0.1),
        lambda: weights.encode_commit(1, 1, EXPECTED, 0.0),
        lambda: weights.encode_commit(1, 1, EXPECTED, math.nan),
        lambda: weights.encode_commit(1, 1, EXPECTED[:3], 0.1),
        lambda: weights.encode_activate(1, 1, 0, 65_536, 250, 0, 0),
        lambda: weights.encode_activate(1, 1, 0, 300, 250, 40_000, 0),
        lambda: weights.encode_heartbeat(1, 0, -1),
        lambda: weights.encode_abort(2),
        lambda: weights.encode_window(30_001),
        lambda: weights.start(IMAGE[:-2], 1, 1, EXPECTED, TOLERANCE, 1, 0.0),
        lambda: weights.start(IMAGE, 9, 1, EXPECTED, TOLERANCE, 1, 0.0),
    ],
)
def test_what_the_wire_cannot_say_is_refused(encode_bad):
    with pytest.raises(EncodingError):
        encode_bad()


def status_bytes(command, xfer, banks=(0, 0), error=0, policy=0, crc=0, tail=b"", control=0):
    head = struct.pack("<6BII", 0x80 | command, xfer, control, *banks, error, policy, crc)
    return head + tail.ljust(16, b"\0")


@given(
    st.integers(1, 8), st.integers(0, 255), st.integers(0, 3), st.tuples(st.integers(0, 2), st.integers(0, 2)),
    st.integers(0, 14), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.binary(min_size=16, max_size=16),
)  # fmt: skip
def test_status_round_trip(command, xfer, control, banks, error, policy, crc, bitmap):
    raw = status_bytes(command, xfer, banks, error, policy, crc, bitmap, control)
    assert weights.decode(raw) == weights.Status(command, xfer, control, banks, error, policy, crc, bitmap)


def test_hello_is_answered_with_the_capability():
    raw = status_bytes(weights.HELLO, 0, tail=struct.pack("<BHBHH", 1, 1792, 2, 1, 3))
    assert weights.decode(raw).capability == weights.Capability(1, 1792, (1, 3))
    with pytest.raises(DecodeError):
        weights.decode(status_bytes(weights.HELLO, 0, tail=struct.pack("<BHB", 1, 1792, 200)))


def test_event():
    raw = bytes.fromhex("40 02 20 01 04030201 e8030000")
    event = weights.decode(raw)
    assert event == weights.PolicyEvent(control=weights.ACTIVE, cause=32, bank=1, policy=0x01020304, tick=1000)
    assert weights.CAUSES[event.cause] == "activated"


@given(st.binary(max_size=31))
def test_any_bytes_are_a_report_or_refused(data):
    try:
        weights.decode(data)
    except DecodeError as error:
        assert error.reason in ("kind", "size")


def test_missing_chunks_are_read_from_the_bitmap():
    status = weights.decode(status_bytes(2, 1, tail=bytes((0xFE, 0xFF, 0x07))))
    assert status.missing(20) == (0, 19)


class Bank:
    """The drone's side of the page, for one transfer: no gates, no policies."""

    def __init__(self, refuse=0):
        self.state, self.xfer, self.crc, self.chunks, self.refuse = weights.EMPTY, 0, 0, {}, refuse
        self.commits = 0

    def receive(self, packet):
        data = packet.data
        if packet.channel == weights.DATA:
            if self.state == weights.RECEIVING and data[0] == self.xfer and data[1] < 20:
                self.chunks.setdefault(data[1], data[2:])
            return None
        if data[0] == weights.BEGIN:
            xfer, crc = data[1], struct.unpack_from("<I", data, 12)[0]
            if (xfer, crc) != (self.xfer, self.crc):
                self.state, self.xfer, self.crc, self.chunks = weights.RECEIVING, xfer, crc, {}
            return self.answer(weights.BEGIN, self.refuse)
        assert data[0] == weights.COMMIT
        self.commits += 1
        if data[1] != self.xfer:
            return self.answer(weights.COMMIT, 13, xfer=data[1])
        if len(self.chunks) < 20:
            return self.answer(weights.COMMIT, 5)
        flat = b"".join(self.chunks[i] for i in range(20))
        if zlib.crc32(flat[:552]) != self.crc:
            return self.answer(weights.COMMIT, 6)
        self.state = weights.READY
        return self.answer(weights.COMMIT, 0)

    def answer(self, command, error, xfer=None):
        bitmap = sum(1 << i for i in self.chunks).to_bytes(16, "little")
        return status_bytes(command, self.xfer if xfer is None else xfer, (self.state, 0), error, 0, self.crc, bitmap)


def fly(bank, *, seed=0, loss=0.0, duplicate=0.0, jitter_s=0.0, forget_at=None, deadline=math.inf, seconds=0.3):
    """Upload to the bank over a link of 800 us a packet; returns the final state and the time it took."""
    chance = random.Random(seed)
    upload, queue = weights.start(IMAGE, 1, 42, EXPECTED, TOLERANCE, 9, 0.0, deadline)
    up, down, now = [], [], 0.0

    def send(where, item):
        for _ in range(0 if chance.random() < loss else 2 if chance.random() < duplicate else 1):
            where.append((now + 0.0004 + chance.uniform(0, jitter_s), item))

    for step in range(int(seconds / 0.0008)):
        now = step * 0.0008
        if forget_at is not None and step == forget_at:
            bank.state, bank.xfer, bank.crc, bank.chunks = weights.EMPTY, 0, 0, {}
        if queue:
            packet = queue.pop(0)
            upload = weights.on_sent(upload, packet, now)
            send(up, packet)
        for due, packet in sorted((x for x in up if x[0] <= now), key=lambda x: x[0]):
            up.remove((due, packet))
            reply = bank.receive(packet)
            if reply:
                send(down, reply)
        for item in [x for x in down if x[0] <= now]:
            down.remove(item)
            upload, more = weights.on_status(upload, weights.decode(item[1]), now)
            queue += more
        upload, more = weights.on_tick(upload, now)
        queue += more
        if upload.outcome != "SENDING":
            return upload, now
    return upload, now


def test_without_loss_an_upload_is_22_packets_and_one_answer():
    bank = Bank()
    upload, took = fly(bank)
    assert (upload.outcome, upload.packets, upload.resent, bank.commits) == ("READY", 22, 0, 1)
    assert took < 0.02
    assert b"".join(bank.chunks[i] for i in range(20)) == IMAGE + bytes(8)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.floats(0, 0.3), st.floats(0, 0.3), st.floats(0, 0.004))
def test_loss_duplicates_and_reordering_end_ready_or_given_up_in_time(seed, loss, duplicate, jitter):
    bank = Bank()
    upload, took = fly(bank, seed=seed, loss=loss, duplicate=duplicate, jitter_s=jitter)
    assert upload.outcome in ("READY", "FAILED")
    assert (upload.outcome == "READY") <= (bank.state == weights.READY)
    assert took <= weights.UPLOAD_S + 0.0016
    assert upload.finished is not None and bool(upload.reason) == (upload.outcome == "FAILED")


def test_thirty_percent_loss_behind_the_radio_is_repaired_nearly_always():
    ready = sum(fly(Bank(), seed=seed, loss=0.3)[0].outcome == "READY" for seed in range(100))
    assert ready >= 95


def test_only_missing_chunks_are_sent_again():
    upload, _ = weights.start(IMAGE, 1, 42, EXPECTED, TOLERANCE, 9, 0.0)
    upload = weights.on_sent(upload, upload.commit, 0.02)
    have = (0xFFFFF & ~(1 << 3 | 1 << 17)).to_bytes(16, "little")
    upload, packets = weights.on_status(upload, weights.decode(status_bytes(2, 9, (1, 0), 5, 0, CRC, have)), 0.021)
    assert packets == [upload.chunks[3], upload.chunks[17], upload.commit]
    assert (upload.resent, upload.packets) == (3, 25)
    again, packets = weights.on_status(upload, weights.decode(status_bytes(2, 9, (1, 0), 5, 0, CRC, have)), 0.022)
    assert packets == [] and again == upload, "the repair is still queued: a second answer is stale"


def test_a_drone_that_forgot_the_transfer_gets_it_from_the_start():
    upload, _ = fly(Bank(), forget_at=18)
    assert upload.outcome == "READY"
    assert upload.resent >= 22


def test_a_silent_drone_is_asked_again_every_8_ms_and_given_up():
    upload, packets = weights.start(IMAGE, 1, 42, EXPECTED, TOLERANCE, 9, 0.0)
    asked, now = [], 0.02
    upload = weights.on_sent(upload, upload.commit, now)
    while upload.outcome == "SENDING":
        now += 0.001
        upload, more = weights.on_tick(upload, now)
        if more:
            assert more == [upload.commit]
            asked.append(now)
            upload = weights.on_sent(upload, upload.commit, now)
    assert asked[0] == pytest.approx(0.028)
    assert min(b - a for a, b in zip(asked, asked[1:], strict=False)) > 0.0079
    assert upload.outcome == "FAILED" and "not answered" in upload.reason and now == pytest.approx(0.150)


def test_the_missions_deadline_comes_first():
    upload, _ = weights.start(IMAGE, 1, 42, EXPECTED, TOLERANCE, 9, 0.0, deadline=0.05)
    upload, _ = weights.on_tick(upload, 0.05)
    assert upload.outcome == "FAILED" and "50 ms" in upload.reason


@pytest.mark.parametrize("error", [1, 2, 3, 4, 6, 7, 8, 14, 99])
def test_what_cannot_be_repaired_fails_with_the_reason(error):
    upload, _ = weights.start(IMAGE, 1, 42, EXPECTED, TOLERANCE, 9, 0.0)
    upload, packets = weights.on_status(upload, weights.decode(status_bytes(1, 9, error=error)), 0.01)
    assert (upload.outcome, packets) == ("FAILED", [])
    assert upload.reason == weights.ERRORS.get(error, f"error {error}")


def test_answers_of_other_transfers_and_after_the_end_change_nothing():
    upload, _ = weights.start(IMAGE, 1, 42, EXPECTED, TOLERANCE, 9, 0.0)
    for raw in (status_bytes(2, 8, error=6), status_bytes(3, 9, error=9), status_bytes(2, 9, (1, 0), 0, 0, CRC)):
        assert weights.on_status(upload, weights.decode(raw), 0.01) == (upload, [])
    assert weights.on_sent(upload, Packet(6, 1, b"\x08"), 0.01) == upload
    ready, _ = weights.on_status(upload, weights.decode(status_bytes(2, 9, (2, 0), 0, 0, CRC)), 0.02)
    assert (ready.outcome, ready.finished) == ("READY", 0.02)
    assert weights.on_status(ready, weights.decode(status_bytes(2, 9, error=6)), 0.03) == (ready, [])
    assert weights.on_tick(ready, 9.0) == (ready, [])
    assert weights.on_sent(ready, ready.commit, 9.0) == ready
