"""The live process against the virtual NatNet server: estimates flow, alarms come, it loads no JAX and ends at once."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import zmq

from hardware.virtual.natnet import NatNetServer
from station import config, process, wires
from station.messages import ArmThrow, Estimate, Event, Health

LEVEL = (0.0, 0.0, 0.0, 1.0)


@pytest.fixture
def server():
    server = NatNetServer("127.0.0.1", 0, ["cf1", "other"])
    server.start()
    yield server
    server.close()


class Lab:
    """A server's loop by hand, and the subscriber's side of the process."""

    def __init__(self, run_dir: Path, server: NatNetServer, station: config.StationConfig) -> None:
        config.write(station, run_dir / "station.json")
        self.context, self.server, self.run_dir = zmq.Context(), server, run_dir
        self.estimates = wires.subscriber(self.context, run_dir, "estimate")
        self.events = wires.subscriber(self.context, run_dir, "ingest.events")
        self.child = process.start("station.ingest", run_dir, stderr=subprocess.PIPE)
        self.rng, self.seq, self.due = np.random.default_rng(0), 0, time.monotonic()
        self.seen: list[Estimate] = []
        self.said: list[Event | Health] = []

    def run_until(self, done, limit_s, pose=lambda pos: (pos, LEVEL, True)):
        """Stream until ``done()``; fail after ``limit_s``, which is far more than it takes."""
        end = time.monotonic() + limit_s
        while not done():
            now = time.monotonic()
            assert now < end, [event.name for event in self.said if isinstance(event, Event)]
            assert self.child.poll() is None, self.child.stderr.read()
            self.server.service(now)
            if now >= self.due:
                self.due = max(self.due + 0.005, now - 0.02)
                self.seq += 1
                pos = (0.0003 * self.rng.standard_normal(3) + (0.5, 0.0, 1.0)).tolist()
                self.server.send(self.seq, now, {"cf1": pose(pos)})
            for socket, kept in ((self.estimates, self.seen), (self.events, self.said)):
                while (message := wires.receive(socket)) is not None:
                    kept.append(message)
            time.sleep(0.0005)

    def names(self):
        return [event.name for event in self.said if isinstance(event, Event)]

    def close(self):
        process.end([self.child], 5.0)
        self.child.stderr.close()
        self.context.destroy(linger=0)


@pytest.fixture
def lab(tmp_path, server):
    station = config.StationConfig(source=config.Source(command_port=server.port))
    lab = Lab(tmp_path, server, station)
    yield lab
    lab.close()


def test_estimates_alarms_and_a_clean_end(lab):
    lab.run_until(lambda: "ready" in lab.names() and len(lab.seen) > 40, 20.0)
    last = lab.seen[-1]
    assert last.mode in ("TRACK", "COAST") and abs(last.pos[0] - 0.5) < 0.01
    assert [m.seq for m in lab.seen[-5:]] == list(range(last.seq - 4, last.seq + 1))
    loaded = Path(f"/proc/{lab.child.pid}/maps").read_text() if sys.platform == "linux" else ""
    assert "jaxlib" not in loaded

    orders = wires.outbox(lab.context, lab.run_dir, "ingest")
    wires.send(orders, ArmThrow(t=time.monotonic(), drone="cf1", until=time.monotonic() + 5.0))
    lab.run_until(lambda: "OCCLUDED" in lab.names(), 10.0, pose=lambda pos: (pos, LEVEL, False))
    lab.run_until(lambda: "NAN" in lab.names(), 10.0, pose=lambda pos: ((float("nan"),) * 3, LEVEL, True))
    lab.server.transmit(b"\x07\x00\xff\xff short")
    lab.run_until(lambda: lab.seen[-1].mode == "TRACK", 10.0)
    lab.run_until(lambda: any(isinstance(m, Health) and m.figures.get("rate_hz", 0.0) > 20.0 for m in lab.said), 10.0)
    assert all(np.isfinite([*m.pos, *m.quat, *m.vel, *m.ang_vel]).all() for m in lab.seen)
    orders.close()
    lab.child.terminate()
    assert lab.child.wait(5.0) == 0
    assert lab.child.stderr.read() == b""


def test_a_body_that_is_not_streamed_is_named_with_those_that_are(tmp_path, server):
    drone = config.Drone(body="cf7")
    lab = Lab(tmp_path, server, config.StationConfig(source=config.Source(command_port=server.port), drones=(drone,)))
    try:
        lab.run_until(lambda: "UNKNOWN BODY" in lab.names(), 20.0)
        text = next(m.text for m in lab.said if isinstance(m, Event) and m.name == "UNKNOWN BODY")
        assert "'cf7'" in text and "cf1, other" in text
    finally:
        lab.close()


def test_no_source_ends_in_one_line(tmp_path, server):
    port = server.port
    server.close()
    config.write(config.StationConfig(source=config.Source(command_port=port)), tmp_path / "station.json")
    child = process.start("station.ingest", tmp_path, stderr=subprocess.PIPE)
    _, errors = child.communicate(timeout=30.0)
    assert child.returncode == 2
    assert errors.decode().count("\n") == 1 and f"127.0.0.1:{port}" in errors.decode()


def test_no_module_of_the_process_imports_jax():
    code = "import sys, station.ingest; print(sorted(m for m in ('jax', 'scipy', 'sim') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=process.ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
