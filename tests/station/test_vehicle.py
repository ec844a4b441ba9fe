"""One drone of the guardian on a link that only records: bytes of every order, pose gate, upload, lease, ladder."""

import math
import struct
import zlib

import msgspec
import pytest

from hardware import crtp, weights
from hardware.crtp import Packet
from hardware.mailbox import Kind
from station import config as cfg
from station import messages as m
from station import orders, vehicle
from station.vehicle import Vehicle

LEVEL = (0.0, 0.0, 0.0, 1.0)
HALVES = struct.pack("<276e", *(0.001 * i for i in range(276)))
CRC = zlib.crc32(HALVES)
ABORT_TO_STOCK = Packet(10, 0, b"\x06\x00")


class FakeLink:
    """Keeps what is posted."""

    def __init__(self):
        self.posts = []

    def post(self, kind, packet):
        self.posts.append((kind, packet))
        return True

    def take(self, *kinds):
        """Packets posted since the last take, of these kinds or all."""
        found = [packet for kind, packet in self.posts if not kinds or kind in kinds]
        self.posts = [(kind, packet) for kind, packet in self.posts if kinds and kind not in kinds]
        return found


class Bench:
    """A vehicle, its link, and what it told."""

    def __init__(self, config=None):
        self.config = config or cfg.StationConfig()
        self.told = []
        self.vehicle = Vehicle(self.config.drones[0], self.config, self.told.append)
        self.link = FakeLink()
        self.vehicle.opened(self.link, 0.0)

    def order(self, name, now=1.0, **values):
        self.vehicle.command(m.Command(t=now, drone="cf1", name=name, values=values), now)
        return self.link.take()

    def report(self, data, now=1.0):
        self.vehicle.packet(Packet(crtp.WEIGHTS, weights.REPORT, data), now)

    def event(self, cause, now=1.0, policy=7):
        self.report(struct.pack("<4BII", 0x40, 2, cause, 0, policy, 0), now)

    def events(self):
        return [message.name for message in self.told if isinstance(message, m.Event)]

    def statuses(self):
        return [message for message in self.told if isinstance(message, m.UploadStatus)]

    def activate(self, now=1.0, lease_ms=250):
        self.order("activate", now, policy=7, crc=CRC, delay_ms=0, valid_ms=400, lease_ms=lease_ms, target_m=1.2)
        self.report(status(weights.ACTIVATE), now)
        self.event(vehicle.ACTIVATED, now)


@pytest.fixture
def bench():
    return Bench()


def status(command, xfer=0, error=0, banks=(0, 0), crc=0, bitmap=bytes(16)):
    return struct.pack("<6BII", 0x80 | command, xfer, 0, *banks, error, 0, crc) + bitmap


def estimate(t=1.0, **fields):
    base = m.Estimate(
        t=t, drone="cf1", t_meas=t, pos=(0.1, -0.2, 1.5), quat=LEVEL, vel=(0.0,) * 3, ang_vel=(0.0,) * 3,
        std=(0.0,) * 4, mode="TRACK",
    )  # fmt: skip
    return msgspec.structs.replace(base, **fields)


def upload(policy=7, halves=HALVES):
    image = m.PolicyImage(
        t=0.0, drone="cf1", job=1, policy=policy, arch=1, halves=halves, crc=zlib.crc32(halves),
        expected=(0.5, -0.5, 0.25, -0.25), tolerance=0.02, target_m=1.2, success=1.0, initial_success=0.0,
        initial_sha256="", initial_std=(), curve=(), wall_s=0.1, env_steps=180_000, envs=32, parameters=276,
        compiled_in_flight=False, sha256="",
    )  # fmt: skip
    return m.Upload(t=0.0, drone="cf1", image=image, deadline=math.inf)


@pytest.mark.parametrize(
    ("name", "values", "packet"),
    [
        ("arm", {}, Packet(9, 1, b"\x01\x01")),
        ("disarm", {}, Packet(9, 1, b"\x01\x00")),
        ("window", {"open_ms": 20_000.0}, Packet(10, 0, b"\x07\x20\x4e")),
        ("close_window", {}, Packet(10, 0, b"\x07\x00\x00")),
        ("released", {}, Packet(10, 0, b"\x08")),
        (
            "activate",
            {"policy": 2**32 - 2, "crc": 0x01020304, "delay_ms": 0, "valid_ms": 400, "lease_ms": 250, "target_m": 1.2},
            Packet(10, 0, bytes.fromhex("03 feffffff 04030201 0000 9001 fa00 b004 ff00")),
        ),
        ("abort", {"mode": 1.0}, Packet(10, 0, b"\x06\x01")),
        ("abort", {"mode": 0.0}, ABORT_TO_STOCK),
        ("hold", {}, ABORT_TO_STOCK),
        ("stop", {}, Packet(8, 0, b"\x03\x00")),
    ],
)  # fmt: skip
def test_each_order_is_these_bytes(bench, name, values, packet):
    assert bench.order(name, **values) == [packet]


def test_landing_holds_first_and_descends_slowly_from_where_it_is(bench):
    bench.vehicle.forward(estimate(pos=(0.0, 0.0, 1.8)), 1.0)
    bench.link.take()
    hold, land = bench.order("land")
    assert hold == ABORT_TO_STOCK
    assert (land.port, land.channel) == (8, 0)
    command, group, height, yaw, keep_yaw, duration = struct.unpack("<BBff?f", land.data)
    assert (command, group, yaw, keep_yaw) == (8, 0, 0.0, True)
    assert height == pytest.approx(-vehicle.BELOW_FLOOR_M)
    assert duration == pytest.approx((1.8 + vehicle.BELOW_FLOOR_M) / vehicle.SINK_MPS)


def test_emergency_stop_goes_out_in_both_forms_at_once_and_most_urgently(bench):
    bench.vehicle.command(m.Command(t=1.0, drone="cf1", name="estop"), 1.0)
    assert {kind for kind, _ in bench.link.posts} == {Kind.ESTOP}
    packets = bench.link.take()
    assert packets[:2] == [Packet(9, 1, b"\x03"), Packet(6, 1, b"\x03")]
    assert packets == packets[:2] * vehicle.ESTOP_COPIES


def test_without_a_link_orders_go_nowhere_and_harm_nothing():
    alone = Vehicle(cfg.Drone(), cfg.StationConfig(), lambda message: None)
    for name in ("arm", "land", "estop", "disconnect"):
        alone.command(m.Command(t=1.0, drone="cf1", name=name), 1.0)
    alone.forward(estimate(), 1.0)
    assert alone.tick(5.0, 0.0) is False


# Orders until answered ---------------------------------------------------------------------------------------------


def test_an_order_is_repeated_until_its_answer(bench):
    (window,) = bench.order("window", 1.0, open_ms=5000)
    bench.vehicle.tick(1.005, 0.0)
    assert bench.link.take() == []
    for i in range(1, 4):
        bench.vehicle.tick(1.0 + 0.013 * i, 0.0)
        assert bench.link.take() == [window]
    bench.report(status(weights.RELEASED), 1.05)
    bench.vehicle.tick(1.06, 0.0)
    assert bench.link.take() == [window], "the answer to another command is none to this one"
    bench.report(status(weights.WINDOW), 1.07)
    bench.vehicle.tick(2.0, 0.0)
    assert bench.link.take() == [] and not bench.vehicle.busy()


def test_arming_is_answered_by_the_supervisor(bench):
    bench.order("arm")
    bench.vehicle.packet(Packet(9, 1, b"\x81\x01\x01"), 1.01)
    bench.vehicle.tick(2.0, 0.0)
    assert bench.link.take() == []


def test_an_order_nobody_answers_is_given_up_and_told(bench):
    bench.order("arm")
    for i in range(1, 60):
        bench.vehicle.tick(1.0 + 0.013 * i, 0.0)
    assert len(bench.link.take()) == orders.TRIES - 1
    assert bench.events().count("order_unanswered") == 1
    assert "port 9, command 1" in bench.told[-1].text


@pytest.mark.parametrize("errno", sorted(vehicle.NOT_YET))
def test_a_landing_refused_because_the_policy_still_flies_is_asked_again(bench, errno):
    _, land = bench.order("land")
    bench.report(status(weights.ABORT))
    bench.vehicle.packet(Packet(8, 0, bytes((8, 0, 0, errno))), 1.005)
    bench.vehicle.tick(1.02, 0.0)
    assert bench.link.take() == [land]
    assert "refused_onboard" not in bench.events()
    bench.vehicle.packet(Packet(8, 0, bytes((8, 0, 0, 0))), 1.03)
    bench.vehicle.tick(2.0, 0.0)
    assert bench.link.take() == []


def test_a_landing_refused_for_good_is_told_and_not_asked_again(bench):
    bench.order("land")
    bench.report(status(weights.ABORT))
    bench.vehicle.packet(Packet(8, 0, bytes((8, 0, 0, 22))), 1.005)
    bench.vehicle.tick(2.0, 0.0)
    assert bench.link.take() == []
    assert "error 22" in next(e.text for e in bench.told if getattr(e, "name", "") == "refused_onboard")


def test_an_answer_with_an_error_is_told_in_words(bench):
    bench.order("activate", policy=7, crc=1, delay_ms=0, valid_ms=400, lease_ms=250, target_m=1.2)
    bench.report(status(weights.ACTIVATE, error=13))
    assert bench.told[-1].name == "refused_onboard" and "unknown" in bench.told[-1].text


@pytest.mark.parametrize("data", [b"", b"\x40", b"\x80short", bytes(30), b"\x40" + bytes(12)])
def test_reports_that_are_none_are_told_and_change_nothing(bench, data):
    bench.report(data)
    assert bench.events() == ["connected", "not_understood"]
    assert bench.vehicle.policy == 0 and not bench.vehicle.flying


def test_a_link_is_closed_when_its_last_orders_are_answered_or_a_little_later(bench):
    bench.order("disarm")
    bench.order("disconnect")
    assert bench.vehicle.busy()
    assert bench.vehicle.tick(1.001, 0.0) is False
    bench.vehicle.packet(Packet(9, 1, b"\x81\x01\x00"), 1.002)
    assert bench.vehicle.tick(1.003, 0.0) is True
    silent = Bench()
    silent.order("disarm")
    silent.order("disconnect")
    assert silent.vehicle.tick(1.0 + vehicle.CLOSE_S + 0.001, 0.0) is True


# Poses -------------------------------------------------------------------------------------------------------------


def test_a_pose_is_these_bytes_made_up_for_the_radio(bench):
    bench.vehicle.forward(estimate(1.0, vel=(1.0, 0.0, -2.0)), 1.002)
    ((kind, packet),) = bench.link.posts
    assert kind is Kind.POSE and (packet.port, packet.channel) == (6, 1)
    ahead = 0.002 + vehicle.RADIO_S
    values = struct.unpack("<B7f", packet.data)
    assert values[0] == 8
    assert values[1:4] == pytest.approx((0.1 + ahead, -0.2, 1.5 - 2.0 * ahead), abs=1e-6)
    assert values[4:] == pytest.approx(LEVEL)


@pytest.mark.parametrize(
    "bad",
    [
        {"mode": "LOST"},
        {"mode": "INIT"},
        {"flags": ("FLIP",)},
        {"pos": (math.nan, 0.0, 1.0)},
        {"pos": (0.0, 0.0, math.inf)},
        {"quat": (0.0, 0.0, 0.0, math.nan)},
        {"quat": (0.0, 0.0, 0.0, 0.9)},
        {"quat": (0.0, 0.0, 0.0, 1.015)},
        {"vel": (0.0, math.nan, 0.0)},
        {"vel": (0.0, 0.0, -99.0)},
        {"ang_vel": (0.0, 0.0, math.nan)},
        {"ang_vel": (math.inf, 0.0, 0.0)},
        {"pos": (9.0, 0.0, 1.0)},
        {"pos": (0.0, 0.0, -5.0)},
        {"t": math.nan},
    ],
    ids=str,
)
def test_what_is_no_pose_is_never_posted_and_renews_nothing(bench, bad):
    bench.vehicle.forward(estimate(1.0), 1.0)
    good = bench.vehicle.estimate
    assert len(bench.link.take()) == 1
    for i in range(1, 11):
        t = 1.0 + 0.005 * i
        bench.vehicle.forward(estimate(**{"t": t, "t_meas": t, **bad}), t)
    assert bench.link.take() == []
    assert bench.vehicle.estimate == good, "the ladder must see a drone without poses"
    bench.vehicle.forward(estimate(1.1), 1.1)
    assert len(bench.link.take()) == 1


def test_refused_poses_are_counted(bench):
    for i in range(3):
        bench.vehicle.forward(estimate(pos=(0.0, 0.0, math.nan)), 1.0 + 0.02 * i)
    assert bench.vehicle.poses_refused == 3


@pytest.mark.parametrize("jitter_s", [0.0, 0.001])
def test_every_second_frame_of_a_200_hz_source_goes_out(bench, jitter_s):
    for i in range(400):
        t = 1.0 + 0.005 * i + (jitter_s if i % 3 == 0 else 0.0)
        bench.vehicle.forward(estimate(t), t)
    assert len(bench.link.take(Kind.POSE)) == 200


def test_a_slower_source_goes_out_whole():
    slow = Bench(cfg.StationConfig(source=cfg.Source(rate_hz=50.0)))
    for i in range(100):
        slow.vehicle.forward(estimate(1.0 + 0.02 * i), 1.0 + 0.02 * i)
    assert len(slow.link.take(Kind.POSE)) == 100


# Upload ------------------------------------------------------------------------------------------------------------


def begin(bench, now=1.0):
    bench.vehicle.begin_upload(upload(), now)
    burst = bench.link.take(Kind.UPLOAD)
    for packet in burst:
        bench.vehicle.sent(packet, now + 0.017)
    return burst


def test_an_upload_is_the_image_in_one_burst(bench):
    burst = begin(bench)
    assert [packet.channel for packet in burst] == [0, *[1] * 20, 0]
    assert burst[0].data == struct.pack("<BBBHHBII", 1, 1, 1, 1, 276, 20, 7, CRC)
    assert b"".join(packet.data[2:] for packet in burst[1:-1])[: len(HALVES)] == HALVES
    assert burst[-1].data == struct.pack("<BBI5e", 2, 1, CRC, 0.5, -0.5, 0.25, -0.25, 0.02)
    assert bench.vehicle.busy()


def test_sent_is_told_once_when_the_radio_has_the_whole_burst(bench):
    bench.vehicle.begin_upload(upload(), 1.0)
    *first, commit = bench.link.take(Kind.UPLOAD)
    pose = crtp.encode_extpose((0.0, 0.0, 1.0), LEVEL)
    for packet in [*first, pose, pose, pose]:
        bench.vehicle.sent(packet, 1.01)
    assert bench.statuses() == [], "packets of other kinds are no part of the burst"
    for _ in range(2):
        bench.vehicle.sent(commit, 1.02)
    assert [(s.state, s.t, s.policy) for s in bench.statuses()] == [("SENT", 1.02, 7)]


def test_an_upload_becomes_ready_with_its_figures(bench):
    begin(bench)
    bench.report(status(weights.COMMIT, xfer=1, banks=(weights.READY, 0), crc=CRC), 1.02)
    ready = bench.statuses()[-1]
    assert (ready.state, ready.policy, ready.packets, ready.resent) == ("READY", 7, 22, 0)
    assert ready.wall_s == pytest.approx(0.02)
    assert not bench.vehicle.busy()


def test_missing_chunks_are_sent_again(bench):
    burst = begin(bench)
    bitmap = bytearray(b"\xff\xff\x0f".ljust(16, b"\0"))
    bitmap[1] &= ~0x04  # chunk 10
    bench.report(status(weights.COMMIT, xfer=1, error=5, banks=(1, 0), crc=CRC, bitmap=bytes(bitmap)), 1.02)
    assert bench.link.take(Kind.UPLOAD) == [burst[11], burst[-1]]
    bench.vehicle.sent(burst[-1], 1.023)
    bench.report(status(weights.COMMIT, xfer=1, banks=(weights.READY, 0), crc=CRC), 1.025)
    assert (bench.statuses()[-1].state, bench.statuses()[-1].resent) == ("READY", 2)


def test_a_commit_without_an_answer_is_sent_again_and_in_the_end_given_up(bench):
    burst = begin(bench)
    for i in range(1, 100):
        bench.vehicle.tick(1.0 + 0.005 * i, 0.0)
        for packet in bench.link.take(Kind.UPLOAD):
            assert packet == burst[-1]
            bench.vehicle.sent(packet, 1.0 + 0.005 * i)
    failed = bench.statuses()[-1]
    assert failed.state == "FAILED" and "not ready" in failed.reason and failed.resent > 3
    assert [s.state for s in bench.statuses()] == ["SENT", "FAILED"]


def test_a_refused_upload_fails_in_words(bench):
    begin(bench)
    bench.report(status(weights.COMMIT, xfer=1, error=8, crc=CRC), 1.02)
    assert bench.statuses()[-1].state == "FAILED" and "canned" in bench.statuses()[-1].reason


def test_an_answer_to_an_earlier_upload_is_none_to_this_one(bench):
    begin(bench)
    bench.report(status(weights.COMMIT, xfer=1, error=8, crc=CRC), 1.02)
    begin(bench, 2.0)
    assert bench.vehicle.xfer == 2
    bench.report(status(weights.COMMIT, xfer=1, banks=(weights.READY, 0), crc=CRC), 2.02)
    assert bench.statuses()[-1].state == "SENT"


def test_an_image_that_does_not_fit_fails_and_sends_nothing(bench):
    bench.vehicle.begin_upload(upload(halves=HALVES[:100]), 1.0)
    assert bench.link.take() == []
    assert bench.statuses()[-1].state == "FAILED" and "100 bytes" in bench.statuses()[-1].reason
    assert not bench.vehicle.busy()


# Lease -------------------------------------------------------------------------------------------------------------


def beats(bench, start, ticks):
    for i in range(ticks):
        bench.vehicle.forward(estimate(start + 0.001 * i), start + 0.001 * i)
        bench.vehicle.tick(start + 0.001 * i, 0.0)
    return bench.link.take(Kind.HEARTBEAT)


def test_the_lease_of_the_active_policy_is_renewed_20_times_a_second(bench):
    assert beats(bench, 1.0, 500) == []
    bench.activate(2.0)
    packets = beats(bench, 2.0, 1000)
    assert len(packets) in (19, 20, 21)
    for i, packet in enumerate(packets):
        assert packet == Packet(10, 0, struct.pack("<BIBH", 4, 7, i + 1, 250))


@pytest.mark.parametrize("cause", sorted(vehicle.FAULTS | {vehicle.LANDED}))
def test_no_lease_for_a_policy_that_has_ended(bench, cause):
    bench.activate(2.0)
    bench.event(cause, 2.1)
    assert beats(bench, 2.2, 300) == []
    assert bench.events()[-1] == ("landed" if cause == vehicle.LANDED else "policy_fault")


@pytest.mark.parametrize("name", ["estop", "hold", "land"])
def test_no_lease_after_an_order_that_ends_the_policy(bench, name):
    bench.activate(2.0)
    bench.order(name, 2.1)
    assert beats(bench, 2.2, 300) == []


# Ladder ------------------------------------------------------------------------------------------------------------


def climb(bench, start, end, daemon=lambda t: 0.0, answer=True):
    """Tick every 5 ms without poses; what was posted, with its time."""
    posted, t = [], start
    while t < end:
        bench.vehicle.tick(t, daemon(t))
        for kind, packet in bench.link.posts:
            if kind is not Kind.HEARTBEAT:
                posted.append((round(t - start, 3), kind, packet))
            if answer and packet.port == 10:
                bench.report(status(packet.data[0]), t)
            elif answer and packet.port == 8:
                bench.vehicle.packet(Packet(8, 0, bytes((packet.data[0], 0, 0, 0))), t)
        bench.link.posts.clear()
        t += 0.005
    return posted


def rungs(bench):
    return [e.text.split(":")[0] for e in bench.told if isinstance(e, m.Event) and e.name == "ladder"]


def test_a_flying_drone_without_poses_holds_then_lands_each_once(bench):
    bench.activate(2.0)
    bench.vehicle.forward(estimate(2.0, pos=(0.0, 0.0, 1.2)), 2.0)
    bench.link.take()
    posted = climb(bench, 2.0, 6.0)
    assert rungs(bench) == ["WARN", "HOLD", "LAND"], "inside the space and high up nobody cuts the motors"
    assert [(kind, packet.port, packet.data[0]) for _, kind, packet in posted] == [
        (Kind.COMMAND, 10, weights.ABORT),
        (Kind.COMMAND, 10, weights.ABORT),
        (Kind.COMMAND, 8, 8),
    ]
    assert [at for at, _, _ in posted] == pytest.approx([0.15, 0.5, 0.5], abs=0.011)


@pytest.mark.parametrize("pos", [(0.0, 0.0, 0.4), (3.2, 0.0, 1.5)], ids=["low", "outside"])
def test_low_or_outside_it_is_killed_in_the_end(bench, pos):
    bench.activate(2.0)
    bench.vehicle.forward(estimate(2.0, pos=pos), 2.0)
    bench.link.take()
    posted = climb(bench, 2.0, 4.0)
    assert rungs(bench) == ["WARN", "HOLD", "LAND", "KILL"]
    stops = [at for at, kind, _ in posted if kind is Kind.ESTOP]
    assert len(stops) == 2 * vehicle.ESTOP_COPIES and stops[0] == stops[-1] == pytest.approx(1.5, abs=0.011)
    assert not bench.vehicle.flying


def test_a_silent_daemon_is_replaced_hold_then_land(bench):
    bench.activate(2.0)
    posted = []
    for i in range(400):
        t = 2.0 + 0.005 * i
        bench.vehicle.forward(estimate(t), t)
        bench.link.take(Kind.POSE)
        posted += climb(bench, t, t + 0.004, daemon=lambda at: at - 2.0)
    assert rungs(bench) == ["HOLD", "LAND"]
    assert [(packet.port, packet.data[0]) for _, _, packet in posted] == [(10, 6), (10, 6), (8, 8)]


def test_poses_that_come_back_reset_the_ladder(bench):
    bench.activate(2.0)
    for start in (2.0, 3.0):
        bench.vehicle.forward(estimate(start), start)
        climb(bench, start, start + 0.3)
        bench.vehicle.forward(estimate(start + 0.3), start + 0.3)
        bench.vehicle.tick(start + 0.3, 0.0)
    assert rungs(bench) == ["WARN", "HOLD"] * 2


def test_on_the_ground_the_ladder_rests(bench):
    bench.vehicle.forward(estimate(2.0), 2.0)
    bench.link.take()
    assert climb(bench, 2.0, 5.0, daemon=lambda t: 10.0) == []
    bench.activate(6.0)
    bench.event(vehicle.LANDED, 6.1)
    bench.link.take()
    assert climb(bench, 6.2, 9.0, daemon=lambda t: 10.0) == []
