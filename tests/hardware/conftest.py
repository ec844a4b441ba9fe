"""A small lab for the link's tests: an air, a virtual drone on it, and cflib's way to both."""

import threading
import time
from collections import deque
from dataclasses import dataclass

import pytest

from hardware import crtp
from hardware.crtp import Packet
from hardware.radio import CrazyflieLink
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


@pytest.fixture(name="until")
def _until():
    return until


@pytest.fixture
def make_lab():
    """Makes labs and closes them."""
    made = []

    def make(**settings):
        made.append(Lab(**settings))
        return made[-1]

    yield make
    for lab in made:
        lab.close()


@pytest.fixture
def lab(make_lab):
    return make_lab()


@pytest.fixture
def connect(tmp_path):
    """Opens a link to a lab's drone, its tables cached in tmp_path/toc."""

    def connect(lab, cache=None, timeout_s=20.0, **callbacks):
        return CrazyflieLink.open(
            URI,
            cache or tmp_path / "toc",
            clock=HostClock(),
            dongles=(Soft(lab.air.port),),
            timeout_s=timeout_s,
            **callbacks,
        )

    return connect


@pytest.fixture
def usb_clock():
    return HostClock()
