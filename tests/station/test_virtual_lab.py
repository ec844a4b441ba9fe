"""The living virtual lab: a process obeying orders, streaming frames, answering the radio, throwing, ending cleanly."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest

from hardware import crtp, natnet_packets, natnet_session, weights
from hardware.virtual.crazyradio import SoftCrazyradio
from station import config, process
from station.clock import Clock
from station.lab import truth as truths

URI_CHANNEL, URI_ADDRESS = 80, bytes.fromhex("E7E7E7E701")
PATIENCE_S = 120.0
"""Only a hang takes this long."""
SHORT = config.Hand(carry_s=(0.1, 0.2), wait_s=(0.1, 0.2), feint_share=0.0)


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Lab:
    """A lab process and what an experimenter does with it."""

    child: subprocess.Popen[bytes]
    settings: config.LabConfig
    run_dir: Path

    def order(self, do: str, **more: Any) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps({"do": do, **more}).encode() + b"\n")
        self.child.stdin.flush()

    def news(self, name: str) -> dict[str, Any]:
        """The next event, which must be the one named."""
        assert self.child.stdout is not None
        event = json.loads(self.child.stdout.readline() or b'{"event": "nothing more"}')
        assert event["event"] == name, event
        return event

    def run(self, seed: int) -> Path:
        path = self.run_dir / f"truth-{seed}.npz"
        self.order("run", seed=seed, truth=str(path))
        assert self.news("running")["seed"] == seed
        return path

    def finish(self) -> dict[str, Any]:
        self.order("finish")
        return self.news("finished")


def start(run_dir: Path, **settings: Any) -> Lab:
    chosen = config.LabConfig(command_port=free_port(), air_port=free_port(), loss=0.0, hand=SHORT)
    chosen = msgspec.structs.replace(chosen, **settings)
    config.write(chosen, run_dir / "lab.json")
    pipe = subprocess.PIPE
    return Lab(process.start("station.virtual_lab", run_dir, stdin=pipe, stdout=pipe, stderr=pipe), chosen, run_dir)


def outcome(lab: Lab) -> tuple[int, str]:
    """Exit status and what was said on standard error."""
    _, errors = lab.child.communicate(timeout=PATIENCE_S)
    return lab.child.returncode, errors.decode()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = start(tmp_path_factory.mktemp("lab"))
    lab.news("ready")
    yield lab
    lab.order("quit")
    assert outcome(lab) == (0, "")


@pytest.fixture
def cameras(lab: Lab) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", lab.settings.command_port))
        client.settimeout(PATIENCE_S)
        client.send(natnet_session.CONNECT)
        yield client


@pytest.fixture
def dongle(lab: Lab) -> Iterator[SoftCrazyradio]:
    clock = Clock()
    radio = SoftCrazyradio(("127.0.0.1", lab.settings.air_port), 780e-6, clock.now, clock.sleep_until)
    radio.set_channel(URI_CHANNEL)
    radio.set_address(URI_ADDRESS)
    yield radio
    radio.close()


def frames(client: socket.socket, count: int) -> list[natnet_packets.MocapFrame]:
    found: list[natnet_packets.MocapFrame] = []
    while len(found) < count:
        event = natnet_packets.decode(client.recv(65535), (4, 0))
        if isinstance(event, natnet_packets.MocapFrame):
            found.append(event)
    return found


def test_frames_arrive_200_times_a_second_of_the_source(lab: Lab, cameras: socket.socket) -> None:
    lab.run(1)
    seen = frames(cameras, 400)
    lab.finish()
    seq = np.array([f.seq for f in seen])
    exposure = np.array([f.exposure for f in seen]) / 1e7
    np.testing.assert_array_equal(np.diff(seq), 1)
    # The first frames may be from before the run, on another clock.
    steady = np.diff(exposure[10:])
    assert np.median(steady) == pytest.approx(0.005, abs=1e-6)
    assert exposure[-1] - exposure[10] == pytest.approx(0.005 * (len(seen) - 11), rel=0.05)
    latency = np.array([(f.transmit - f.exposure) / 1e7 for f in seen])
    assert 0.003 - 1e-6 <= latency.min() and np.median(latency) <= 0.009


def test_body_comes_into_sight_a_little_after_the_run_begins(lab: Lab, cameras: socket.socket) -> None:
    lab.run(2)
    tracked = [f.bodies[0].tracked for f in frames(cameras, 200)]
    lab.finish()
    assert not tracked[0] and tracked[-1]
    assert 70 <= tracked.index(True) <= 130
    assert all(tracked[tracked.index(True) :])


def test_each_run_has_a_source_clock_of_its_own(lab: Lab, cameras: socket.socket) -> None:
    stamps = []
    for seed in (3, 4):
        lab.run(seed)
        stamps.append(frames(cameras, 30)[-1].exposure / 1e7)
        lab.finish()
    assert abs(stamps[1] - stamps[0]) > 5.0


def test_finish_writes_the_truth_of_a_drone_that_was_not_thrown(lab: Lab, cameras: socket.socket) -> None:
    path = lab.run(5)
    frames(cameras, 100)
    told = lab.finish()
    assert told["thrown"] is False and told["truth"] == str(path)
    assert told["plant_lag_max_s"] >= 0.0
    truth = truths.load(path)
    assert truth.moment("release") is None
    assert np.isfinite(truth.pos).all() and truth.pos[:, 2].min() > 0.5
    np.testing.assert_allclose(np.diff(truth.t_plant), 0.002, atol=1e-9)
    assert (np.diff(truth.t_host) > 0.0).all()
    assert not truth.rotor_rpm.any()


def test_same_seed_same_drone(lab: Lab) -> None:
    scalars = []
    for seed in (6, 6, 7):
        path = lab.run(seed)
        lab.finish()
        scalars.append({k: v for k, v in truths.load(path).scalars.items() if k.startswith("factor_")})
    assert scalars[0] == scalars[1] != scalars[2]


def test_drone_is_on_the_air_during_a_run_only(lab: Lab, dongle: SoftCrazyradio) -> None:
    null = b"\xff"
    assert not dongle.send_packet(null).ack
    lab.run(8)
    assert dongle.send_packet(null).ack
    lab.finish()
    assert not dongle.send_packet(null).ack


def test_throw_follows_when_the_window_opens(lab: Lab, dongle: SoftCrazyradio) -> None:
    path = lab.run(9)
    assert dongle.send_packet(crtp.encode(weights.encode_window(20_000))).ack
    released = lab.news("released")
    landed = lab.news("touchdown")
    told = lab.finish()
    assert told["thrown"] is True
    assert landed["t_host"] > released["t_host"] > 0.0
    truth = truths.load(path)
    assert truth.scalars["release_s"] == released["t_host"]
    assert truth.scalars["touchdown_s"] == pytest.approx(landed["t_host"] - released["t_host"])
    assert truth.moment("release") == 0.0 and truth.moment("activation") is None
    assert truth.t_plant[0] == pytest.approx(-1.0, abs=0.01)
    assert np.interp(0.0, truth.t_plant, truth.t_host) == pytest.approx(0.0, abs=1e-3)
    at = int(np.argmin(np.abs(truth.t_plant)))
    assert 1.3 <= truth.pos[at, 2] <= 1.8 and 2.4 <= truth.vel[at, 2] <= 3.5
    assert truth.pos[-1, 2] == 0.0
    # Without the ground's word no rotor may turn, whatever the drone felt.
    assert not truth.rotor_rpm.any()
    free = (truth.t_plant > 0.0) & (truth.t_plant < 0.5)
    speed_lost = np.polyfit(truth.t_plant[free], truth.vel[free, 2], 1)[0]
    assert -11.5 < speed_lost < -9.5


def test_wrong_orders_are_told_and_survived(lab: Lab) -> None:
    assert lab.child.stdin is not None
    for line in (b"nonsense\n", b'{"do": "run", "seed": "seven"}\n', b'{"do": "run", "speed": 1}\n', b"[]\n"):
        lab.child.stdin.write(line)
        lab.child.stdin.flush()
        assert "order" in lab.news("error")["text"]
    lab.order("dance")
    assert "dance" in lab.news("error")["text"]
    lab.order("finish")
    assert "no run" in lab.news("error")["text"]
    lab.order("run", seed=1, truth="/nowhere/at/all.npz")
    assert "/nowhere/at/all.npz" in lab.news("error")["text"]
    lab.run(10)
    lab.order("run", seed=11, truth=str(lab.run_dir / "x.npz"))
    assert "10" in lab.news("error")["text"]
    lab.finish()


@pytest.mark.parametrize("key", ["command_port", "air_port"])
def test_port_in_use_is_one_line_and_status_2(tmp_path: Path, key: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        status, errors = outcome(start(tmp_path, **{key: port}))
    assert status == 2
    assert errors.count("\n") == 1 and str(port) in errors and key in errors


def test_unknown_drone_is_one_line_and_status_2(tmp_path: Path) -> None:
    status, errors = outcome(start(tmp_path, drone="cf99"))
    assert status == 2
    assert errors.count("\n") == 1 and "cf99" in errors and "cf21B_500" in errors


def test_missing_configuration_is_one_line_and_status_2(tmp_path: Path) -> None:
    child = process.start("station.virtual_lab", tmp_path, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, errors = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 2
    assert errors.count(b"\n") == 1 and b"lab.json" in errors


@pytest.mark.parametrize("how", ["end of input", signal.SIGTERM, signal.SIGINT])
def test_ends_in_the_middle_of_a_run_and_leaves_nothing(tmp_path: Path, how: str | signal.Signals) -> None:
    lab = start(tmp_path)
    lab.news("ready")
    lab.run(1)
    children = psutil.Process(lab.child.pid).children(recursive=True)
    if isinstance(how, signal.Signals):
        lab.child.send_signal(how)
    assert outcome(lab) == (0, "")  # communicate() ends the input
    assert children == []
    for port in (lab.settings.command_port, lab.settings.air_port):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as again:
            again.bind(("127.0.0.1", port))


def test_dies_with_the_parent_that_is_killed(tmp_path: Path) -> None:
    ports = {"command_port": free_port(), "air_port": free_port()}
    config.write(config.LabConfig(**ports), tmp_path / "lab.json")
    code = (
        "import subprocess, sys; from pathlib import Path; from station import process;"
        "lab = process.start('station.virtual_lab', Path(sys.argv[1]), stdin=subprocess.PIPE, stdout=subprocess.PIPE);"
        "print(lab.pid, lab.stdout.readline(), flush=True); lab.wait()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, cwd=process.ROOT, env=dict(os.environ)
    )
    assert parent.stdout is not None
    pid, told = parent.stdout.readline().split(maxsplit=1)
    assert b"ready" in told
    orphan = psutil.Process(int(pid))
    parent.kill()
    parent.communicate()
    _, alive = psutil.wait_procs([orphan], timeout=PATIENCE_S)
    assert alive == []
