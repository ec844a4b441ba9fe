"""The living guardian with a virtual lab on the air: links, poses, orders, uploads, wrong orders, a clean end."""

import math
import subprocess
import sys
import zlib
from pathlib import Path

import msgspec
import numpy as np
import pytest
import zmq

from station import config as cfg
from station import messages as m
from station import process, wires
from station.clock import Clock
from station.experiment import LabProcess
from station.lab import truth as truths

WEIGHTS = np.random.default_rng(0).normal(0.0, 0.2, 276).astype("<f2")


def canned(halves):
    """Outputs on the wire's canned observation, written out here so that the guardian is tested without JAX."""
    x, flat, at = (0.1 * (np.arange(20) % 7) - 0.3).astype(np.float32), np.frombuffer(halves, "<f2"), 0
    for n_in, n_out in ((20, 8), (8, 8), (8, 4)):
        weight = flat[at : at + n_in * n_out].astype(np.float32).reshape(n_in, n_out)
        at += (n_in + 1) * n_out
        x = x @ weight + flat[at - n_out : at].astype(np.float32)
        x = np.tanh(x) if n_out == 4 else np.maximum(x, 0.0)
    return tuple(float(v) for v in x)


def image(**fields):
    halves = WEIGHTS.tobytes()
    base = m.PolicyImage(
        t=0.0, drone="cf1", job=1, policy=77, arch=1, halves=halves, crc=zlib.crc32(halves), expected=canned(halves),
        tolerance=0.02, target_m=1.2, success=1.0, initial_success=0.0, initial_sha256="", initial_std=(), curve=(),
        wall_s=0.1, env_steps=180_000, envs=32, parameters=276, compiled_in_flight=False, sha256="",
    )  # fmt: skip
    return msgspec.structs.replace(base, **fields)


class Ground:
    """The rest of the station, by hand: orders and estimates in, news out."""

    def __init__(self, run_dir, station):
        cfg.write(station, run_dir / "station.json")
        self.clock, self.context = Clock(), zmq.Context()
        self.estimates = wires.publisher(self.context, run_dir, "estimate")
        self.orders = wires.outbox(self.context, run_dir, "guardian")
        self.events = wires.subscriber(self.context, run_dir, "guardian.events")
        self.news = []
        self.child = process.start("station.guardian", run_dir, stderr=subprocess.PIPE)

    def order(self, name, drone="cf1", **values):
        wires.send(self.orders, m.Command(t=self.clock.now(), drone=drone, name=name, values=values))

    def upload(self, **fields):
        deadline = self.clock.now() + 10.0
        wires.send(self.orders, m.Upload(t=self.clock.now(), drone="cf1", image=image(**fields), deadline=deadline))

    def pose(self, **fields):
        now = self.clock.now()
        estimate = m.Estimate(
            t=now, drone="cf1", t_meas=now, pos=(0.0, 0.0, 1.0), quat=(0.0, 0.0, 0.0, 1.0), vel=(0.0,) * 3,
            ang_vel=(0.0,) * 3, std=(0.0,) * 4, mode="TRACK",
        )  # fmt: skip
        wires.send(self.estimates, msgspec.structs.replace(estimate, **fields))

    def heard(self, condition):
        """A message from the guardian for which this holds, now or earlier."""
        assert self.child.poll() is None, "the guardian has ended"
        while (message := wires.receive(self.events)) is not None:
            self.news.append(message)
        return next((message for message in self.news if condition(message)), None)

    def event(self, name):
        return self.heard(lambda message: isinstance(message, m.Event) and message.name == name)

    def status(self, state):
        return self.heard(lambda message: isinstance(message, m.UploadStatus) and message.state == state)

    def figure(self, name):
        self.heard(lambda message: False)
        figures = [message.figures for message in self.news if isinstance(message, m.Health)]
        return figures[-1][name] if figures else -1.0

    def close(self):
        process.end([self.child], 5.0)
        self.child.stderr.close()
        self.context.destroy(linger=0)


@pytest.fixture(scope="module")
def air(module_run_dir, free_ports):
    """A lab and the port of its air."""
    ports = free_ports(2)
    hand = cfg.Hand(carry_s=(30.0, 30.0), feint_share=0.0)
    settings = cfg.LabConfig(command_port=ports[0], air_port=ports[1], loss=0.02, hand=hand)
    cfg.write(settings, module_run_dir / "lab.json")
    lab = LabProcess(module_run_dir)
    lab.expect("ready", 300.0)
    yield lab, ports[1], module_run_dir
    process.end([lab.child], 5.0)
    while lab.news.get(timeout=60.0) is not None:
        pass  # its listener reads to the end
    lab.child.stdin.close()
    lab.child.stdout.close()


@pytest.fixture
def flight(air):
    """The lab with a drone switched on, for the length of a test."""
    lab, port, folder = air
    lab.tell("run", seed=5, truth=str(folder / "truth.npz"))
    lab.expect("running", 30.0)
    yield port, folder / "truth.npz"
    lab.tell("finish")
    lab.expect("finished", 30.0)


@pytest.fixture
def ground(run_dir, flight, until):
    station = cfg.StationConfig(dongles=(cfg.Dongle(air_port=flight[0]),))
    ground = Ground(run_dir, station)
    assert until(lambda: ground.figure("links") == 0.0)
    yield ground
    ground.close()


@pytest.fixture
def linked(ground, until):
    ground.order("connect")
    assert until(lambda: ground.event("connected") or ground.event("link_failed"))
    assert ground.event("connected"), ground.event("link_failed")
    return ground


def test_a_network_reaches_the_drone_and_nothing_spins_without_a_throw(linked, until):
    linked.order("window", open_ms=20_000.0)
    linked.order("arm")
    linked.upload()
    assert until(lambda: linked.status("READY") or linked.status("FAILED"))
    assert linked.status("READY"), linked.status("FAILED")
    sent, ready = linked.status("SENT"), linked.status("READY")
    assert (ready.policy, ready.packets - ready.resent) == (77, 22) and sent.t <= ready.t
    linked.order(
        "activate", policy=77.0, crc=float(image().crc), delay_ms=0.0, valid_ms=100.0, lease_ms=250.0, target_m=1.2
    )
    assert until(lambda: linked.event("policy_fault")), "an ACTIVATE without a throw expires on board"
    linked.order("abort", mode=1.0)
    linked.order("close_window")
    assert not until(lambda: linked.event("order_unanswered"), 0.3)
    assert linked.event("activated") is None


def test_poses_go_out_and_what_is_no_pose_does_not(linked, until):
    before = linked.figure("sent")
    for _ in range(100):
        linked.pose()
        until(lambda: False, 0.005)
    assert until(lambda: linked.figure("sent") >= before + 20)
    assert linked.figure("poses_refused") == 0.0
    for bad in ({"pos": (math.nan, 0.0, 1.0)}, {"quat": (0.0, 0.0, 0.0, 1.015)}, {"ang_vel": (math.inf, 0.0, 0.0)}):
        linked.pose(**bad)
        until(lambda: False, 0.05)
    assert until(lambda: linked.figure("poses_refused") == 3.0)


def test_wrong_orders_are_told_or_passed_over_and_survived(linked, until):
    linked.orders.send(b"\xc1 no message")
    linked.estimates.send(b"\xc1 no message")
    linked.order("arm", drone="cf9")
    linked.pose(drone="cf9")
    linked.order("window")
    assert until(lambda: linked.event("order_refused"))
    assert "open_ms" in linked.event("order_refused").text
    linked.news.clear()
    linked.order("window", open_ms=math.nan)
    assert until(lambda: linked.event("order_refused"))
    linked.news.clear()
    linked.order("window", open_ms=1e9)
    assert until(lambda: linked.event("order_refused"))
    assert "open_ms" in linked.event("order_refused").text
    linked.upload(halves=b"\0" * 100)
    assert until(lambda: linked.status("FAILED"))
    linked.news.clear()
    linked.upload(expected=(9.0, 9.0, 9.0, 9.0))
    assert until(lambda: linked.status("FAILED"))
    assert "canned" in linked.status("FAILED").reason
    linked.upload()
    assert until(lambda: linked.status("READY")), "the next one is as good as ever"


def test_an_emergency_stop_is_obeyed_and_the_link_can_be_opened_again(linked, until):
    linked.order("estop")
    linked.order("disconnect")
    assert until(lambda: linked.figure("links") == 0.0)
    linked.news.clear()
    linked.order("connect")
    assert until(lambda: linked.event("connected"))
    linked.order("arm")
    until(lambda: linked.event("order_unanswered"), 0.3)
    assert linked.event("order_unanswered") is None


def test_no_jax_in_the_live_process_and_a_clean_end_with_an_open_link(linked, flight):
    if sys.platform == "linux":
        assert "jaxlib" not in Path(f"/proc/{linked.child.pid}/maps").read_text()
    linked.child.terminate()
    assert linked.child.wait(10.0) == 0
    assert linked.child.stderr.read() == b""


def test_no_module_of_the_process_imports_jax():
    code = "import sys, station.guardian; print(sorted(m for m in ('jax', 'scipy', 'sim', 'yaml') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=process.ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("[]", "['yaml']")


def test_nobody_on_the_air_is_told_with_the_cure(run_dir, free_ports, until):
    ground = Ground(run_dir, cfg.StationConfig(dongles=(cfg.Dongle(air_port=free_ports(1)[0]),)))
    try:
        assert until(lambda: ground.figure("links") == 0.0)
        ground.order("connect")
        assert until(lambda: ground.event("link_failed"))
        assert "virtual lab" in ground.event("link_failed").text
    finally:
        ground.close()


def test_a_drone_that_is_switched_off_is_lost_and_told(air, run_dir, until):
    lab, port, folder = air
    lab.tell("run", seed=6, truth=str(folder / "truth-6.npz"))
    lab.expect("running", 30.0)
    ground = Ground(run_dir, cfg.StationConfig(dongles=(cfg.Dongle(air_port=port),)))
    try:
        assert until(lambda: ground.figure("links") == 0.0)
        ground.order("connect")
        assert until(lambda: ground.event("connected"))
        lab.tell("finish")
        lab.expect("finished", 30.0)
        assert until(lambda: ground.event("link_lost"))
        assert until(lambda: ground.figure("links") == 0.0)
    finally:
        ground.close()
    assert not truths.load(folder / "truth-6.npz").rotor_rpm.any()
