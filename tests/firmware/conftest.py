"""The onboard C built once, and a bench: an Onboard with the packets of the ground and a simple world around it."""

from __future__ import annotations

import struct
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest

from firmware_patches.host.onboard import Airframe, Onboard, load

PATCHES = Path(__file__).parents[2] / "firmware_patches"
GRAVITY = 9.81
SIZES = {1: (20, 8, 8, 4), 2: (20, 16, 16, 4), 3: (36, 16, 16, 4)}
CF21B = Airframe(
    mass_kg=0.0434,
    inertia=(2.5e-05, 2.8e-05, 4.9e-05),
    arm_length_m=0.035355,
    rpm2thrust=(0.0, -3.133427287299859e-07, 4.407354891648379e-10),
    rpm2torque=(0.0, 1.65886356219615e-09, 2.4693477924534137e-12),
    thrust_min_N=0.02136263065537499,
    thrust_max_N=0.2,
    mixing=((-1, -1, 1, 1), (-1, 1, 1, -1), (-1, 1, -1, 1)),
    idle_rpm=7000.0,
)


@pytest.fixture(scope="session")
def library():
    """The compiled C as a ctypes library; built on demand."""
    built = subprocess.run([str(PATCHES / "build.sh")], check=False, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stderr
    return load()


@pytest.fixture
def airframe():
    return CF21B


@pytest.fixture(scope="session")
def build_onboard(library):
    """Builds fresh drones: `build_onboard()`."""
    return lambda: Onboard(CF21B)


@pytest.fixture
def onboard(library):
    return Onboard(CF21B)


class Network:
    """Halves of a network with its numpy forward pass in float64."""

    def __init__(self, arch: int = 1, seed: int = 0, scale: float = 0.3, bias: float = 0.0) -> None:
        sizes = SIZES[arch]
        shapes = list(zip(sizes[:-1], sizes[1:], strict=True))
        rng = np.random.default_rng(seed)
        parts = [np.concatenate([rng.normal(0, scale, n * m), rng.normal(0, scale, m)]) for n, m in shapes]
        parts[-1][-4:] += bias
        self.arch, self.shapes = arch, shapes
        self.halves = np.concatenate(parts).astype("<f2")

    @property
    def image(self) -> bytes:
        return self.halves.tobytes()

    def forward(self, obs: np.ndarray) -> np.ndarray:
        flat, x = self.halves.astype(float), np.asarray(obs, float)
        for layer, (n, m) in enumerate(self.shapes):
            x = x @ flat[: n * m].reshape(n, m) + flat[n * m : n * m + m]
            x = np.maximum(x, 0) if layer < 2 else np.tanh(x)
            flat = flat[n * m + m :]
        return x

    def expected(self) -> np.ndarray:
        return self.forward(0.1 * (np.arange(self.shapes[0][0]) % 7) - 0.3)


class Status:
    """A STATUS packet taken apart."""

    def __init__(self, data: bytes) -> None:
        assert len(data) == 30
        self.command, self.xfer, self.control, self.bank0, self.bank1, self.error = data[0] & 0x7F, *data[1:6]
        assert data[0] & 0x80
        self.policy, self.crc = struct.unpack_from("<II", data, 6)
        self.tail = data[14:]

    def missing(self, chunks: int) -> list[int]:
        return [i for i in range(chunks) if not self.tail[i // 8] >> (i % 8) & 1]


class Bench:
    """Packets written from the wire's page, and a drone in an upright world that moves only up and down."""

    def __init__(self, onboard: Onboard) -> None:
        self.onboard = onboard
        self.z, self.vz, self.ms = 1.0, 0.0, 0
        self.battery_V = 4.0
        self.gyro = (0.0, 0.0, 0.0)
        self.rpm = (0.0, 0.0, 0.0, 0.0)
        self.events: list[tuple[int, int, int, int, int]] = []
        self.statuses: list[Status] = []
        self.others: list[tuple[int, int, bytes]] = []

    def run(self, ms: int, force=GRAVITY, gyro=None, poses=True, beat=None) -> set[tuple[float, ...]]:
        """Milliseconds under one specific force, straight up. Returns the rotor commands that occurred."""
        seen = set()
        for _ in range(ms):
            self.z += 0.001 * self.vz
            self.vz += 0.001 * (force - GRAVITY)
            self.ms += 1
            if poses and self.ms % 10 == 0:
                self.pose()
            if beat is not None and self.ms % 50 == 0:
                self.heartbeat(*beat)
            self.rpm = self.onboard.tick(self.gyro if gyro is None else gyro, (0.0, 0.0, force), self.battery_V)
            seen.add(self.rpm)
        self.collect()
        return seen

    def collect(self) -> None:
        while (packet := self.onboard.transmit()) is not None:
            port, channel, data = packet
            if (port, channel) == (10, 3) and data[0] == 0x40:
                assert len(data) == 12
                self.events.append((*data[1:4], *struct.unpack("<II", data[4:])))
            elif (port, channel) == (10, 3):
                self.statuses.append(Status(data))
            else:
                self.others.append(packet)

    def causes(self) -> list[int]:
        return [event[1] for event in self.events]

    def pose(self, pos=None, quat=(0, 0, 0, 1)) -> None:
        pos = (0.0, 0.0, self.z) if pos is None else pos
        self.onboard.receive(6, 1, struct.pack("<B7f", 8, *pos, *quat))

    def ask(self, data: bytes) -> Status:
        """One request, and its STATUS at the next tick."""
        before = len(self.statuses)
        self.onboard.receive(10, 0, data)
        self.run(1)
        assert len(self.statuses) == before + 1, "one request, one STATUS"
        return self.statuses[-1]

    def arm(self, on: bool = True) -> None:
        self.onboard.receive(9, 1, bytes([1, on]))
        self.run(1)

    def begin(self, net: Network, xfer=1, policy=7, **change) -> bytes:
        f = {"version": 1, "arch": net.arch, "n": len(net.halves), "chunks": -(-len(net.halves) // 14)} | change
        crc = change.get("crc", zlib.crc32(net.image))
        return struct.pack("<BBBHHBII", 1, xfer, f["version"], f["arch"], f["n"], f["chunks"], policy, crc)

    def chunks(self, net: Network, xfer=1) -> list[bytes]:
        padded = net.image + bytes(-len(net.image) % 28)
        return [bytes([xfer, i]) + padded[28 * i : 28 * i + 28] for i in range(len(padded) // 28)]

    def commit(self, net: Network, xfer=1, expected=None, tolerance=2e-3, crc=None) -> bytes:
        expected = net.expected() if expected is None else expected
        crc = zlib.crc32(net.image) if crc is None else crc
        return struct.pack("<BBI", 2, xfer, crc) + np.array([*expected, tolerance], "<f2").tobytes()

    def upload(self, net: Network, xfer=1, policy=7) -> Status:
        assert self.ask(self.begin(net, xfer, policy)).error == 0
        for chunk in self.chunks(net, xfer):
            self.onboard.receive(10, 1, chunk)
        return self.ask(self.commit(net, xfer))

    def activate(self, net, policy=7, delay=0, valid=500, lease=250, target=1500, gates=0xFD, crc=None) -> Status:
        crc = zlib.crc32(net.image) if crc is None else crc
        return self.ask(struct.pack("<BIIHHHhH", 3, policy, crc, delay, valid, lease, target, gates))

    def heartbeat(self, policy=7, lease=250, seq=0) -> None:
        self.onboard.receive(10, 0, struct.pack("<BIBH", 4, policy, seq, lease))

    def control(self) -> int:
        return self.onboard.snapshot().control

    def reach(self, control: int, net: Network | None = None) -> Network:
        """Drives a fresh drone at 1 m, armed, with a READY network, into a control state."""
        net = Network() if net is None else net
        self.run(20)
        self.arm()
        assert self.upload(net).bank0 == 2
        if control in (1, 2):
            self.activate(net, delay=0 if control == 2 else 400, valid=60000)
            self.run(4)
        elif control == 3:
            self.ask(b"\x06\x01")
        assert self.control() == control
        return net


@pytest.fixture
def bench(onboard):
    return Bench(onboard)


@pytest.fixture
def network():
    """Builds a network: `network(arch=1, seed=0, scale=0.3, bias=0.0)`."""
    return Network
