"""The soft dongle and the air, without cflib and without waiting: the clock is a number that sleeping moves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.errors import PortInUse
from hardware.virtual import crazyradio
from hardware.virtual.crazyradio import Air, SoftCrazyradio

URI = "radio://0/80/2M/E7E7E7E701"
PACKET_S = 780e-6


class FakeClock:
    """Moves only when somebody sleeps or, by a microsecond, when somebody looks."""

    def __init__(self):
        self.t = 100.0

    def now(self):
        self.t += 1e-6
        return self.t

    def sleep_until(self, deadline):
        self.t = max(self.t, deadline + 50e-6)  # as late as a kernel


def dongle(port, clock):
    radio = SoftCrazyradio(("127.0.0.1", port), PACKET_S, clock.now, clock.sleep_until)
    radio.set_channel(80)
    radio.set_data_rate(SoftCrazyradio.DR_2MPS)
    radio.set_address(bytes.fromhex("E7E7E7E701"))
    radio.set_arc(3)
    return radio


@pytest.fixture
def air():
    air = Air("127.0.0.1", 0, seed=3)
    air.start()
    yield air
    air.close()


def test_a_packet_takes_780_us_on_average(air):
    nrf, clock = air.listen(URI), FakeClock()
    radio = dongle(air.port, clock)
    start = clock.t
    for i in range(200):
        ack = radio.send_packet((0x3C, i))
        assert (ack.ack, ack.retry, nrf.take()) == (True, 0, bytes((0x3C, i)))
    assert (clock.t - start) / 200 == pytest.approx(PACKET_S, rel=0.01)
    radio.close()


def test_lost_attempts_are_retried_and_cost_time(air):
    air.listen(URI)
    air.loss = 0.3
    clock = FakeClock()
    radio = dongle(air.port, clock)
    acks, took = [], []
    for i in range(500):
        start = clock.t
        acks.append(radio.send_packet((0x3C, i & 0xFF)))
        took.append(clock.t - start)
    radio.close()
    for ack, seconds in zip(acks, took, strict=True):
        assert seconds == pytest.approx(PACKET_S + ack.retry * crazyradio.RETRY_S, abs=0.21 * PACKET_S)
    # Both ways must succeed: 0.49 an attempt, 1 - 0.51^4 = 0.93 a packet.
    assert sum(ack.ack for ack in acks) / 500 == pytest.approx(0.932, abs=0.05)
    assert air.lost_up / air.attempts == pytest.approx(0.3, abs=0.06)
    assert air.lost_down / (air.attempts - air.lost_up) == pytest.approx(0.3, abs=0.06)


def test_the_same_seed_loses_the_same_attempts():
    def fates(seed):
        air = Air("127.0.0.1", 0, loss=0.5, seed=seed)
        air.listen(URI)
        head = crazyradio.REQUEST.pack(b"Mr", 7, 0, 80, 2, bytes.fromhex("E7E7E7E701"))
        answers = [air.attempt(head + b"\xff") for _ in range(64)]
        air.close()
        return answers

    assert fates(1) == fates(1) != fates(2)


def test_the_acknowledgement_carries_what_the_drone_queued(air):
    radio = dongle(air.port, FakeClock())
    nrf = air.listen(URI)
    nrf.send(b"\xac\x80")
    assert radio.send_packet(b"\xff").data == b"\xac\x80"
    assert radio.send_packet(b"\xff").data == b""
    radio.close()


def test_nobody_listens_on_another_channel(air):
    air.listen(URI)
    radio = dongle(air.port, FakeClock())
    radio.set_channel(81)
    assert radio.send_packet(b"\xff") == crazyradio.Ack(False, 3, b"")
    radio.close()


def test_without_a_lab_the_air_is_silent_and_nothing_raises():
    air = Air("127.0.0.1", 0)
    port = air.port
    air.close()
    clock = FakeClock()
    radio = dongle(port, clock)
    start = clock.t
    assert not radio.send_packet(b"\xff").ack
    assert clock.t - start == pytest.approx(PACKET_S + 3 * crazyradio.RETRY_S, rel=0.1)
    radio.close()
    assert not radio.send_packet(b"\xff").ack


def test_two_labs_cannot_share_a_port(air):
    with pytest.raises(PortInUse, match=f"{air.port}.*air_port"):
        Air("127.0.0.1", air.port)


@given(st.binary(max_size=64))
def test_foreign_datagrams_are_ignored(data):
    air = Air("127.0.0.1", 0)
    try:
        answer = air.attempt(data)
        assert answer is None or data[:2] == b"Mr"
    finally:
        air.close()


def test_closing_frees_the_port():
    first = Air("127.0.0.1", 0)
    first.start()
    first.close()
    second = Air("127.0.0.1", first.port)
    second.close()
    assert not first._thread.is_alive()
