"""What a NatNet client believes: datagrams in, frames and requests out, no socket."""

from __future__ import annotations

import dataclasses
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware import natnet_packets as packets
from hardware.natnet_session import CONNECT, KEEP_ALIVE, REQUEST_DEFINITIONS, Session, pose_fault
from hardware.virtual.natnet import encode_definitions, encode_frame, encode_server_info

SERVER = ("192.0.2.1", 1510)
UPRIGHT = (0.0, 0.0, 0.0, 1.0)


@dataclasses.dataclass
class Bench:
    """A session with everything that it sends, delivers and tells."""

    version: tuple[int, int] = (4, 0)

    def __post_init__(self):
        self.sent, self.frames, self.events = [], [], []
        self.session = Session(
            SERVER,
            self.sent.append,
            self.frames.append,
            lambda name, text: self.events.append((name, text)),
            "lab:1510",
        )

    def connect(self, now=0.0, bodies=None, port=1510):
        self.get(encode_server_info("Lab", self.version, port), now)
        self.get(encode_definitions({"cf1": 1, "cf2": 2} if bodies is None else bodies, self.version), now)
        return self

    def get(self, datagram, now, sender=SERVER):
        self.session.receive(datagram, sender, now)

    def frame(self, seq, now, body=1, pos=(1.0, 2.0, 0.5), quat=UPRIGHT, tracked=True, **more):
        stamps = (100.0 + now, 100.001 + now, 100.005 + now)
        self.get(encode_frame(seq, [(body, pos, quat, tracked)], stamps, self.version, **more), now)


def test_frame_carries_the_source_stamps():
    bench = Bench().connect()
    bench.frame(7, now=0.25, error_m=0.5)
    (frame,) = bench.frames
    assert (frame.body, frame.seq, frame.t_arrival, frame.tracked) == ("cf1", 7, 0.25, True)
    assert frame.t_source == pytest.approx(100.25, abs=1e-7)
    assert frame.latency_s == pytest.approx(0.005, abs=1e-6)
    assert frame.error_m == 0.5
    np.testing.assert_array_equal(frame.pos, [1.0, 2.0, 0.5])
    np.testing.assert_array_equal(frame.quat, UPRIGHT)


def test_without_exposure_stamps_the_software_time_stamp_counts():
    bench = Bench().connect()
    body = packets.BODY.pack(1, 0, 0, 0, 0, 0, 0, 1, 0, 1)
    payload = (5).to_bytes(4, "little") + bytes(8) + (1).to_bytes(4, "little") + body + bytes(16)
    payload += packets.TAIL.pack(0, 0, 12.5, 0, 0, 0, 0, 0)
    bench.get(packets.HEADER.pack(7, len(payload)) + payload, 0.0)
    assert [(frame.t_source, frame.latency_s) for frame in bench.frames] == [(12.5, None)]


def test_quaternion_is_normalised_to_double_precision():
    bench = Bench().connect()
    bench.frame(1, 0.0, quat=(0.1, 0.2, 0.3, 0.93))
    assert abs(np.linalg.norm(bench.frames[0].quat) - 1.0) < 1e-12


@pytest.mark.parametrize(
    ("pos", "quat", "reason"),
    [
        ((math.nan, 0.0, 0.0), UPRIGHT, "pose-not-finite"),
        ((0.0, math.inf, 0.0), UPRIGHT, "pose-not-finite"),
        ((math.inf, -math.inf, 0.0), UPRIGHT, "pose-not-finite"),
        ((0.0, 0.0, 0.0), (math.nan,) * 4, "pose-not-finite"),
        ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0), "quat-not-unit"),
        ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.03), "quat-not-unit"),
        ((1200.0, 300.0, 900.0), UPRIGHT, "pose-too-far"),
        ((0.0, 0.0, -50.1), UPRIGHT, "pose-too-far"),
    ],
)
def test_impossible_pose_is_rejected_by_name(pos, quat, reason):
    bench = Bench().connect()
    bench.frame(1, 0.0, pos=pos, quat=quat)
    assert bench.frames == []
    assert bench.session.rejects == {reason: 1}
    assert any(name == "rejected" and reason in text and "cf1" in text for name, text in bench.events)
    bench.frame(2, 0.005)
    assert len(bench.frames) == 1


@given(st.lists(st.floats(width=32), min_size=7, max_size=7))
def test_no_fault_means_a_usable_pose(values):
    pos, quat = tuple(values[:3]), tuple(values[3:])
    if not pose_fault(pos, quat):
        assert np.linalg.norm(pos) <= 50.0
        assert abs(np.linalg.norm(quat) - 1.0) <= 0.02


@pytest.mark.parametrize("pos", [(1.0, 2.0, 0.5), (math.nan,) * 3])
def test_untracked_body_is_delivered_without_a_pose(pos):
    bench = Bench().connect()
    bench.frame(1, 0.0, pos=pos, tracked=False)
    (frame,) = bench.frames
    assert not frame.tracked
    assert np.isnan(frame.pos).all()
    assert np.isnan(frame.quat).all()
    with pytest.raises(ValueError, match="read-only"):
        frame.pos[0] = 0.0


def test_duplicate_and_late_frames_are_dropped_and_counted():
    bench = Bench().connect()
    for seq in (1, 2, 2, 5, 4, 3, 6):
        bench.frame(seq, 0.01)
    assert [frame.seq for frame in bench.frames] == [1, 2, 5, 6]
    assert bench.session.rejects == {"duplicate": 1, "late": 2}
    assert bench.session.counts["lost"] == 2


def test_restarted_frame_count_is_followed():
    bench = Bench().connect()
    bench.frame(50_000, 1.0)
    bench.frame(3, 1.005)
    bench.frame(4, 1.010)
    assert [frame.seq for frame in bench.frames] == [50_000, 3, 4]
    assert bench.session.counts["restarts"] == 1


def test_strangers_are_not_heard():
    bench = Bench().connect(port=1511)
    for sender in (("192.0.2.2", 1510), ("192.0.2.1", 9), ("127.0.0.1", 1510)):
        bench.get(encode_frame(1, [(1, (0.0, 0.0, 0.0), UPRIGHT, True)], (1.0, 1.0, 1.0)), 0.0, sender)
        bench.get(encode_definitions({"evil": 1}), 0.0, sender)
    assert bench.frames == []
    assert bench.session.rejects == {"foreign": 6}
    assert list(bench.session.names.values()) == ["cf1", "cf2"]
    bench.get(encode_frame(1, [(1, (0.0, 0.0, 0.0), UPRIGHT, True)], (1.0, 1.0, 1.0)), 0.0, ("192.0.2.1", 1511))
    assert len(bench.frames) == 1


def test_nothing_counts_before_the_server_has_told_its_version():
    bench = Bench()
    bench.frame(1, 0.0)
    bench.get(encode_definitions({"cf1": 1}), 0.0)
    assert bench.session.rejects == {"early": 2}
    assert not bench.session.streaming


def test_unknown_id_asks_again_and_lists_the_names():
    bench = Bench().connect(now=0.0)
    bench.sent.clear()
    for seq in range(1, 101):
        bench.frame(seq, 1.0 + seq * 0.005, body=7)
    assert bench.frames == []
    assert bench.session.rejects == {"unknown-body": 100}
    assert 1 <= bench.sent.count(REQUEST_DEFINITIONS) <= 4  # half a second, five a second at most
    (text,) = (text for name, text in bench.events if name == "unknown-body")
    assert "id 7" in text
    assert "cf1 (id 1), cf2 (id 2)" in text
    bench.get(encode_definitions({"cf1": 7}), 1.6)
    bench.frame(101, 1.61, body=7)
    assert bench.frames[0].body == "cf1"


def test_changed_models_are_asked_for_until_they_come():
    bench = Bench().connect(now=0.0)
    bench.frame(1, 0.1, models_changed=True)
    bench.sent.clear()
    bench.session.tend(0.3)
    assert REQUEST_DEFINITIONS in bench.sent
    bench.get(encode_definitions({"renamed": 1}), 0.31)
    bench.sent.clear()
    bench.frame(2, 0.32)
    bench.session.tend(0.5)
    assert REQUEST_DEFINITIONS not in bench.sent
    assert bench.frames[-1].body == "renamed"


def test_restarted_server_may_number_its_bodies_anew():
    bench = Bench().connect()
    bench.frame(400, 0.0)
    bench.session.tend(1.0)
    assert bench.sent[-1] == CONNECT
    bench.get(encode_server_info("Lab", (4, 0), 1510), 1.01)
    bench.frame(1, 1.02)  # id 1 may be anybody now
    assert len(bench.frames) == 1
    assert bench.session.rejects["undefined"] == 1
    bench.get(encode_definitions({"cf2": 1, "cf1": 2}), 1.03)
    bench.frame(2, 1.04)
    assert bench.frames[-1].body == "cf2"
    assert [name for name, _ in bench.events if name in ("silent", "restarted", "resumed")] == [
        "silent",
        "restarted",
        "resumed",
    ]


def test_answer_while_frames_flow_changes_nothing():
    bench = Bench().connect()
    bench.frame(10, 0.0)
    bench.get(encode_server_info("Lab", (4, 0), 1510), 0.1)
    bench.frame(10, 0.11)
    bench.frame(11, 0.12)
    assert [frame.seq for frame in bench.frames] == [10, 11]
    assert bench.session.counts["restarts"] == 0


def test_server_changing_its_version_is_followed_or_told():
    bench = Bench().connect()
    bench.frame(1, 0.0)
    bench.get(encode_server_info("Lab", (2, 9), 1510), 0.1)
    bench.frame(2, 0.1)
    assert len(bench.frames) == 1
    assert any(name == "wrong-version" and "2.9" in text for name, text in bench.events)
    bench.version = (4, 1)
    bench.connect(now=0.2)
    bench.frame(3, 0.21)
    assert bench.frames[-1].seq == 3


def test_a_live_stream_is_kept_alive_and_a_silent_one_greeted():
    bench = Bench().connect()
    bench.sent.clear()
    for tick in range(20):
        bench.frame(tick + 1, tick * 0.2)
        bench.session.tend(tick * 0.2)
    assert bench.sent.count(KEEP_ALIVE) == 4
    assert CONNECT not in bench.sent
    bench.session.tend(4.2)
    assert bench.sent[-1] == CONNECT


@pytest.mark.parametrize("version", [(3, 0), (4, 0), (4, 1), (4, 2)])
def test_mutated_datagrams_raise_nothing_and_deliver_only_possible_poses(version):
    draw = random.Random(2)
    bench = Bench(version).connect()
    seeds = [
        encode_frame(
            5, [(1, (1.0, 2.0, 0.5), UPRIGHT, True), (2, (0.0, 0.0, 0.0), UPRIGHT, True)], (9.0,) * 3, version
        ),
        encode_definitions({"cf1": 1, "cf2": 2}, version),
        encode_server_info("Lab", version, 1510),
    ]
    for step in range(2500):
        data = bytearray(draw.choice(seeds))
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data))] = draw.choice((0, 0x7F, 0xFF, draw.randrange(256)))
        bench.get(bytes(data[: draw.randrange(len(data))]) if draw.random() < 0.2 else bytes(data), step * 0.01)
        bench.session.tend(step * 0.01)
    for frame in bench.frames:
        if frame.tracked:
            assert not pose_fault(tuple(frame.pos), tuple(frame.quat))
        assert math.isfinite(frame.t_source)
    assert sum(bench.session.rejects.values()) > 100
