"""The link through the real cflib, over the soft dongle, to a virtual drone: connect, carry, lose, close."""

import os
import threading
import time

import pytest

from hardware import crtp, radio, weights
from hardware.crtp import Packet
from hardware.errors import DongleMissing, LinkError
from hardware.mailbox import Kind
from hardware.radio import CrazyflieLink

URI = "radio://0/80/2M/E7E7E7E701"


def ours():
    """Threads of links and of cflib."""
    names = ("link-", "Shared Radio", "RadioDriver", "Incoming", "ParamUpdater", "ping_thread", "Thread-")
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(names)]


@pytest.fixture(autouse=True)
def no_threads_left(until):
    yield
    assert until(lambda: not ours(), 3.0), ours()


def test_it_connects_carries_both_ways_in_order_and_closes(lab, connect, until):
    heard, sent = [], []
    link = connect(lab, on_packet=heard.append, on_sent=sent.append)
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


def test_the_tables_are_cached_and_a_dongle_can_be_opened_again(lab, connect, tmp_path):
    connect(lab).close()
    asked = lab.nrf.received
    assert len(list((tmp_path / "toc").glob("*.json"))) == 2
    assert (tmp_path / "toc").stat().st_mode & 0o777 == 0o700
    connect(lab).close()
    assert lab.nrf.received - asked < asked


def test_log_blocks_stream_through_cflib(lab, connect, until):
    link = connect(lab)
    seen = []
    link.log("battery", {"pm.vbat": "float"}, 20, lambda stamp, values: seen.append((stamp, values["pm.vbat"])))
    assert until(lambda: len(seen) >= 5)
    assert [value for _, value in seen] == [pytest.approx(4.1)] * len(seen)
    assert {b[0] - a[0] for a, b in zip(seen, seen[1:], strict=False)} == {20}
    with pytest.raises(LinkError, match="no.such"):
        link.log("nothing", {"no.such": "float"}, 20, lambda stamp, values: None)
    link.close()


def test_through_thirty_percent_loss_everything_arrives_once_and_in_order(make_lab, connect, until):
    lab = make_lab(loss=0.3)
    link = connect(lab)
    packets = [Packet(crtp.WEIGHTS, 1, bytes((i,))) for i in range(200)]
    for packet in packets:
        link.post(Kind.UPLOAD, packet)
    assert until(lambda: len(lab.onboard.got) >= 200, 20.0)
    link.close()
    assert lab.onboard.got == packets
    assert lab.air.lost_up and lab.air.lost_down and lab.nrf.duplicates


def test_an_unplugged_lab_is_told_once_and_leaves_nothing(lab, connect, until):
    lost = []
    link = connect(lab, on_lost=lost.append)
    lab.close()
    assert until(lambda: bool(lost))
    assert len(lost) == 1 and URI in lost[0]
    assert not link.connected and not link.post(Kind.ESTOP, crtp.encode_estop()[0])
    link.close()


def test_a_lab_that_hangs_is_lost_too(lab, connect, until, monkeypatch):
    lost = []
    link = connect(lab, on_lost=lost.append)
    monkeypatch.setattr(lab.air, "attempt", lambda data: None)
    assert until(lambda: bool(lost))
    link.close()


def test_a_dongle_that_fails_without_a_word_is_noticed(lab, connect, until, monkeypatch):
    """A USB dongle that is pulled out gives None for ever and cflib never says so."""
    pulled, send, lost = threading.Event(), radio.SoftCrazyradio.send_packet, []

    def send_packet(self, data):
        time.sleep(0.0005)
        return None if pulled.is_set() else send(self, data)

    monkeypatch.setattr(radio.SoftCrazyradio, "send_packet", send_packet)
    link = connect(lab, on_lost=lost.append)
    pulled.set()
    assert until(lambda: bool(lost))
    assert "nothing heard" in lost[0]
    link.close()


def test_nobody_on_the_air_is_an_error_with_the_cure(lab, connect):
    lab.close()
    with pytest.raises(LinkError, match="virtual lab"):
        connect(lab)


def test_a_drone_that_stops_answering_while_connecting_is_an_error_in_bounded_time(lab, connect):
    lab.running = False
    with pytest.raises(LinkError, match="within 0.5 s|does not answer"):
        connect(lab, timeout_s=0.5)


def test_no_usb_dongle_is_an_error_with_the_cure(usb_clock, tmp_path, monkeypatch):
    monkeypatch.setattr("cflib.drivers.crazyradio._find_devices", lambda serial=None: [])
    with pytest.raises(DongleMissing, match="plug it in"):
        CrazyflieLink.open(URI, tmp_path, clock=usb_clock)


def test_soft_links_never_look_at_usb(lab, connect, monkeypatch):
    def forbidden(serial=None):
        raise AssertionError("USB was searched")

    monkeypatch.setattr("cflib.drivers.crazyradio._find_devices", forbidden)
    connect(lab).close()


def test_a_cache_that_others_can_write_is_refused(lab, connect, tmp_path):
    (tmp_path / "toc").mkdir()
    os.chmod(tmp_path / "toc", 0o777)
    with pytest.raises(LinkError, match="chmod 700"):
        connect(lab)


def test_a_wrong_uri_is_refused_before_anything_starts(usb_clock, tmp_path):
    with pytest.raises(LinkError, match="radio://0/80"):
        CrazyflieLink.open("radio://0", tmp_path, clock=usb_clock)


def test_errors_of_the_callbacks_are_counted_and_the_link_lives_on(lab, connect, until):
    def broken(packet):
        raise ValueError(packet)

    link = connect(lab, on_packet=broken, on_sent=broken)
    link.post(Kind.COMMAND, weights.encode_hello())
    assert until(lambda: lab.onboard.got == [weights.encode_hello()])
    assert until(lambda: link.stats().sent == 1)
    assert link.stats().callback_errors >= 2
    link.close()


def test_closing_from_a_callback_does_not_hang(lab, connect):
    done = threading.Event()
    box = {}

    def close(packet):
        box["link"].close()
        done.set()

    box["link"] = connect(lab, on_sent=close)
    box["link"].post(Kind.COMMAND, weights.encode_hello())
    assert done.wait(10.0)
