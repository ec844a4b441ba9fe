"""The link through the real cflib, over the soft dongle, to a virtual drone: connect, carry, lose, close."""

import os
import threading
import time
from collections import deque
from dataclasses import dataclass

import pytest

from hardware import crtp, radio, weights
from hardware.crtp import Packet
from hardware.errors import DongleMissing, LinkError
from hardware.radio import CrazyflieLink, Kind, Mailbox
from hardware.virtual.crazyflie import VirtualCrazyflie
from hardware.virtual.crazyradio import Air

URI = "radio://0/80/2M/E7E7E7E701"


@dataclass
class Soft:
    air_port: int
    type: str = "soft"
    air_host: str = "127.0.0.1"
    packet_us: float = 780.0


class HostClock:
    now = staticmethod(time.monotonic)

    def sleep_until(self, deadline):
        time.sleep(max(deadline - self.now(), 0.0))


class FakeOnboard:
    """Keeps what it gets, answers arming."""

    def __init__(self):
        self.got, self.out = [], deque()

    def receive(self, port, channel, data):
        self.got.append(Packet(port, channel, data))
        if (port, channel, data[:1]) == (9, 1, b"\x01"):
            self.out.append((9, 1, b"\x81\x01" + data[1:2]))

    def transmit(self):
        return self.out.popleft() if self.out else None


class Lab:
    """An air and a drone on it, moved on once a millisecond by a thread."""

    def __init__(self, loss=0.0, onboard=None, step=lambda: None):
        self.onboard = onboard or FakeOnboard()
        self.drone = VirtualCrazyflie(self.onboard, {"pm.vbat": lambda: 4.1})
        self.air = Air("127.0.0.1", 0, loss=loss, seed=11)
        self.nrf = self.air.listen(URI)
        self.step, self.running = step, True
        self.thread = threading.Thread(target=self._run, name="lab")
        self.air.start()
        self.thread.start()

    def _run(self):
        ms = 0
        while self.running:
            while (raw := self.nrf.take()) is not None:
                packet = crtp.decode(raw)
                self.drone.receive(packet.port, packet.channel, packet.data)
            self.drone.tick(ms)
            self.step()
            while self.nrf.room and (message := self.drone.transmit()) is not None:
                self.nrf.send(crtp.encode(Packet(*message)))
            ms += 1
            time.sleep(0.001)

    def close(self):
        self.running = False
        self.thread.join()
        self.air.close()


def until(condition, seconds=10.0):
    """Wait for something that must come; a test never measures how long."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.002)
    return condition()


def ours():
    """Threads of links and of cflib."""
    names = ("link-", "Shared Radio", "RadioDriver", "Incoming", "ParamUpdater", "ping_thread", "Thread-")
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(names)]


@pytest.fixture
def lab():
    lab = Lab()
    yield lab
    lab.close()


@pytest.fixture(autouse=True)
def no_threads_left():
    yield
    assert until(lambda: not ours(), 3.0), ours()


def connect(lab, tmp_path, **callbacks):
    return CrazyflieLink.open(
        URI, tmp_path / "toc", clock=HostClock(), dongles=(Soft(lab.air.port),), timeout_s=20.0, **callbacks
    )


def test_it_connects_carries_both_ways_in_order_and_closes(lab, tmp_path):
    heard, sent = [], []
    link = connect(lab, tmp_path, on_packet=heard.append, on_sent=sent.append)
    assert link.connected
    packets = [Packet(crtp.WEIGHTS, 1, bytes((i,))) for i in range(200)]
    assert all(link.post(Kind.UPLOAD, packet) for packet in packets)
    assert until(lambda: len(lab.onboard.got) == 200)
    assert lab.onboard.got == packets == sent
    link.post(Kind.COMMAND, crtp.encode_arm(True))
    assert until(lambda: any(packet.port == crtp.SUPERVISOR for packet in heard))
    assert crtp.ArmReply(True, True) in [crtp.decode_reply(packet) for packet in heard]
    link.close()
    assert not link.connected and not ours()
    assert not link.post(Kind.POSE, packets[0])
    link.close()
    commander = [packet for packet in lab.onboard.got if packet.port == crtp.COMMANDER]
    assert commander == [], "closing must not send a setpoint: it would drop a flying drone"


def test_the_tables_are_cached_and_a_dongle_can_be_opened_again(lab, tmp_path):
    connect(lab, tmp_path).close()
    asked = lab.nrf.received
    assert len(list((tmp_path / "toc").glob("*.json"))) == 2
    assert (tmp_path / "toc").stat().st_mode & 0o777 == 0o700
    connect(lab, tmp_path).close()
    assert lab.nrf.received - asked < asked


def test_log_blocks_stream_through_cflib(lab, tmp_path):
    link = connect(lab, tmp_path)
    seen = []
    link.log("battery", {"pm.vbat": "float"}, 20, lambda stamp, values: seen.append((stamp, values["pm.vbat"])))
    assert until(lambda: len(seen) >= 5)
    assert [value for _, value in seen] == [pytest.approx(4.1)] * len(seen)
    assert {b[0] - a[0] for a, b in zip(seen, seen[1:], strict=False)} == {20}
    with pytest.raises(LinkError, match="no.such"):
        link.log("nothing", {"no.such": "float"}, 20, lambda stamp, values: None)
    link.close()


def test_through_thirty_percent_loss_everything_arrives_once_and_in_order(tmp_path):
    lab = Lab(loss=0.3)
    try:
        link = connect(lab, tmp_path)
        packets = [Packet(crtp.WEIGHTS, 1, bytes((i,))) for i in range(200)]
        for packet in packets:
            link.post(Kind.UPLOAD, packet)
        assert until(lambda: len(lab.onboard.got) >= 200, 20.0)
        link.close()
        assert lab.onboard.got == packets
        assert lab.air.lost_up and lab.air.lost_down and lab.nrf.duplicates
    finally:
        lab.close()


def test_the_mailbox_serves_the_most_urgent_and_the_newest():
    box = Mailbox()
    data = [Packet(10, 1, bytes((i,))) for i in range(6)]
    box.put(Kind.COMMAND, data[0])
    box.put(Kind.UPLOAD, data[1])
    box.put(Kind.POSE, data[2])
    box.put(Kind.POSE, data[3])
    box.put(Kind.UPLOAD, data[4])
    box.put(Kind.ESTOP, data[5])
    order = [box.get(0.0) for _ in range(6)]
    assert order == [
        (Kind.ESTOP, data[5]),
        (Kind.POSE, data[3]),
        (Kind.UPLOAD, data[1]),
        (Kind.UPLOAD, data[4]),
        (Kind.COMMAND, data[0]),
        None,
    ]
    assert box.overwritten == 1
    taken = [box.put(Kind.UPLOAD, data[0]) for _ in range(radio.QUEUE + 1)]
    assert taken == [True] * radio.QUEUE + [False] and box.refused == 1
    assert box.drop(Kind.UPLOAD) == radio.QUEUE
    box.put(Kind.ESTOP, data[5])
    box.close()
    assert box.get(10.0) is None


def test_an_unplugged_lab_is_told_once_and_leaves_nothing(tmp_path):
    lab, lost = Lab(), []
    link = connect(lab, tmp_path, on_lost=lost.append)
    lab.close()
    assert until(lambda: bool(lost))
    assert len(lost) == 1 and URI in lost[0]
    assert not link.connected and not link.post(Kind.ESTOP, crtp.encode_estop()[0])
    link.close()


def test_a_lab_that_hangs_is_lost_too(tmp_path, monkeypatch):
    lab, lost = Lab(), []
    link = connect(lab, tmp_path, on_lost=lost.append)
    monkeypatch.setattr(lab.air, "attempt", lambda data: None)
    assert until(lambda: bool(lost))
    link.close()
    lab.close()


def test_a_dongle_that_fails_without_a_word_is_noticed(lab, tmp_path, monkeypatch):
    """A USB dongle that is pulled out gives None for ever and cflib never says so."""
    pulled, send, lost = threading.Event(), radio.SoftCrazyradio.send_packet, []

    def send_packet(self, data):
        time.sleep(0.0005)
        return None if pulled.is_set() else send(self, data)

    monkeypatch.setattr(radio.SoftCrazyradio, "send_packet", send_packet)
    link = connect(lab, tmp_path, on_lost=lost.append)
    pulled.set()
    assert until(lambda: bool(lost))
    assert "nothing heard" in lost[0]
    link.close()


def test_nobody_on_the_air_is_an_error_with_the_cure(tmp_path):
    lab = Lab()
    lab.close()
    with pytest.raises(LinkError, match="virtual lab"):
        connect(lab, tmp_path)


def test_a_drone_that_stops_answering_while_connecting_is_an_error_in_bounded_time(lab, tmp_path):
    lab.running = False
    with pytest.raises(LinkError, match="within 0.5 s|does not answer"):
        CrazyflieLink.open(URI, tmp_path, clock=HostClock(), dongles=(Soft(lab.air.port),), timeout_s=0.5)


def test_no_usb_dongle_is_an_error_with_the_cure(tmp_path, monkeypatch):
    monkeypatch.setattr("cflib.drivers.crazyradio._find_devices", lambda serial=None: [])
    with pytest.raises(DongleMissing, match="plug it in"):
        CrazyflieLink.open(URI, tmp_path, clock=HostClock())


def test_soft_links_never_look_at_usb(lab, tmp_path, monkeypatch):
    def forbidden(serial=None):
        raise AssertionError("USB was searched")

    monkeypatch.setattr("cflib.drivers.crazyradio._find_devices", forbidden)
    connect(lab, tmp_path).close()


def test_a_cache_that_others_can_write_is_refused(lab, tmp_path):
    (tmp_path / "toc").mkdir()
    os.chmod(tmp_path / "toc", 0o777)
    with pytest.raises(LinkError, match="chmod 700"):
        connect(lab, tmp_path)


def test_a_wrong_uri_is_refused_before_anything_starts(tmp_path):
    with pytest.raises(LinkError, match="radio://0/80"):
        CrazyflieLink.open("radio://0", tmp_path, clock=HostClock())


def test_errors_of_the_callbacks_are_counted_and_the_link_lives_on(lab, tmp_path):
    def broken(packet):
        raise ValueError(packet)

    link = connect(lab, tmp_path, on_packet=broken, on_sent=broken)
    link.post(Kind.COMMAND, weights.encode_hello())
    assert until(lambda: lab.onboard.got == [weights.encode_hello()])
    assert until(lambda: link.stats().sent == 1)
    assert link.stats().callback_errors >= 2
    link.close()


def test_closing_from_a_callback_does_not_hang(lab, tmp_path):
    done = threading.Event()
    box = {}

    def close(packet):
        box["link"].close()
        done.set()

    box["link"] = connect(lab, tmp_path, on_sent=close)
    box["link"].post(Kind.COMMAND, weights.encode_hello())
    assert done.wait(10.0)
