"""The living daemon with its children and a virtual lab: verbs, nonsense, relayed telemetry, record, every end."""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
import zmq

from station import config as cfg
from station import messages as m
from station import process, recorder, wires
from station.client import Client
from station.clock import Clock
from station.daemon import CHILDREN, RECORD
from station.experiment import LabProcess

PATIENCE_S = 280.0
"""The training program may have to be compiled first."""
VERB = m.encode(m.Verb(t=0.0, name="ready"))


class Station:
    """A daemon and a client of it."""

    def __init__(self, run_dir, ports):
        self.run_dir = run_dir
        config = cfg.StationConfig(source=cfg.Source(command_port=ports[0]), dongles=(cfg.Dongle(air_port=ports[1]),))
        cfg.write(config, run_dir / "station.json")
        self.client = Client(run_dir, Clock())
        self.child = process.start("station.daemon", run_dir, stderr=subprocess.PIPE)

    def ask(self, name, drone="", **values):
        return self.client.ask(name, drone, timeout_s=60.0, **values)

    def ready(self):
        assert self.child.poll() is None, self.child.stderr.read()
        return self.ask("ready").ok

    def children(self):
        """Live processes by module."""
        found = {}
        for each in psutil.Process(self.child.pid).children(recursive=True):
            try:
                found[each.cmdline()[2]] = each
            except (psutil.Error, IndexError):
                continue  # between its fork and its exec
        return found

    def outcome(self):
        """Exit status and what was said on standard error, once it has ended by itself."""
        _, errors = self.child.communicate(timeout=PATIENCE_S)
        return self.child.returncode, errors.decode()

    def close(self):
        process.end([self.child], 30.0)
        self.child.stderr.close()
        with self.client:
            pass


@pytest.fixture(scope="module")
def lab(module_run_dir, free_ports):
    """A lab that sends frames, with nobody on the air."""
    ports = free_ports(2)
    cfg.write(cfg.LabConfig(command_port=ports[0], air_port=ports[1]), module_run_dir / "lab.json")
    lab = LabProcess(module_run_dir)
    lab.expect("ready", PATIENCE_S)
    yield lab, ports
    process.end([lab.child], 5.0)
    while lab.news.get(timeout=60.0) is not None:
        pass  # its listener reads to the end
    lab.child.stdin.close()
    lab.child.stdout.close()


@pytest.fixture(scope="module")
def station(lab, until):
    """One daemon for all tests that leave it as it was."""
    with tempfile.TemporaryDirectory(prefix="midair-") as name:
        station = Station(Path(name), lab[1])
        try:
            assert until(station.ready, PATIENCE_S)
            yield station
        finally:
            station.close()


@pytest.fixture
def another(lab, run_dir):
    """A daemon to be ended."""
    station = Station(run_dir, lab[1])
    yield station
    station.close()


def test_unknown_verbs_are_refused_with_those_that_are_known(station):
    reply = station.ask("dance")
    assert not reply.ok and "dance" in reply.text
    for verb in ("estop", "ready", "record", "shutdown", "throw"):
        assert verb in reply.text


@pytest.mark.parametrize(
    "body",
    [b"", b"\xc1", b"garbage", b"\xff" * 1000, m.encode(m.Event(t=0.0, name="throw")), VERB[:-1]],
    ids=["empty", "c1", "text", "ff", "no verb", "cut"],
)
def test_garbage_on_the_api_is_answered_and_changes_nothing(station, body):
    context = zmq.Context()
    socket = context.socket(zmq.REQ)
    socket.connect(wires.endpoint(station.run_dir, "api"))
    try:
        socket.send(body)
        assert socket.poll(60_000)
        assert m.decode(socket.recv()).ok is False
    finally:
        context.destroy(linger=0)
    assert station.ask("ready").ok


@pytest.mark.parametrize("frames", [[b"x"], [b"", b""], [b"", b"", b"", b""], [b"\xc1", b"\xc1"]])
def test_frames_of_another_kind_of_socket_are_survived(station, frames):
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.connect(wires.endpoint(station.run_dir, "api"))
    try:
        socket.send_multipart(frames)
        socket.send_multipart([b"", VERB])
        assert socket.poll(60_000)
        while m.decode(socket.recv_multipart()[-1]).ok is not True:
            assert socket.poll(60_000)
    finally:
        context.destroy(linger=0)


def test_unknown_drones_and_seeds_are_refused(station):
    reply = station.ask("throw", "cf9")
    assert not reply.ok and "cf9" in reply.text and "cf1" in reply.text
    for seed in ("seven", float("nan"), float("inf")):
        assert not station.ask("throw", seed=seed).ok
    assert station.ask("ready").ok


def test_one_throw_at_a_time_and_an_emergency_stop_ends_it(station, until):
    assert station.ask("throw", seed=1.0).ok
    again = station.ask("throw", seed=2.0)
    assert not again.ok and "running" in again.text
    assert station.ask("estop").ok
    seen = []

    def failed():
        seen.append(station.client.next(0.1))
        return isinstance(seen[-1], m.Event) and seen[-1].name == "mission_failed"

    assert until(failed)
    assert "emergency stop" in seen[-1].text
    orders = [message.name for message in seen if isinstance(message, m.Command)]
    assert orders == ["connect", "abort"]
    assert station.ask("throw", seed=3.0).ok, "the next one is welcome"
    assert station.ask("estop").ok
    assert station.ask("estop").ok, "twice is no fault"


def test_estimates_and_health_of_all_are_relayed(station, lab, run_dir, until):
    lab[0].tell("run", seed=1, truth=str(run_dir / "truth.npz"))
    lab[0].expect("running", 60.0)
    seen = []

    def enough():
        seen.append(station.client.next(0.1))
        spoke = {message.process for message in seen if isinstance(message, m.Health)}
        return {"ingest", "guardian", "compute"} <= spoke and any(isinstance(s, m.Estimate) for s in seen)

    assert until(enough)
    lab[0].tell("finish")
    lab[0].expect("finished", 60.0)


def test_no_jax_in_the_live_daemon_ingest_and_guardian(station):
    live = station.children()
    assert set(live) == set(CHILDREN)
    if sys.platform != "linux":
        pytest.skip("maps of a process are Linux's")
    maps = {name: Path(f"/proc/{each.pid}/maps").read_text() for name, each in live.items()}
    maps["station.daemon"] = Path(f"/proc/{station.child.pid}/maps").read_text()
    assert {name for name, text in maps.items() if "jaxlib" in text} == {"station.compute"}


def test_no_module_of_the_daemon_imports_jax():
    code = "import sys, station.daemon; print(sorted(m for m in ('jax', 'jaxlib', 'scipy', 'sim') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=process.ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_shutdown_reaps_the_children_and_leaves_a_whole_record(another, until):
    assert until(another.ready, PATIENCE_S)
    assert another.ask("record").ok
    assert another.ask("record").ok, "twice is once"
    live = list(another.children().values())
    assert len(live) == 3
    now = Clock().now()
    assert until(lambda: isinstance(heard := another.client.next(0.1), m.Health) and heard.t > now)
    assert another.ask("shutdown").ok
    assert another.outcome() == (0, "")
    assert psutil.wait_procs(live, timeout=30.0)[1] == []
    topics = {topic for topic, _ in recorder.read(another.run_dir / RECORD)}
    assert "/Health" in topics


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_even_while_it_starts(another, until, number):
    assert until(lambda: len(another.children()) == 3)
    live = list(another.children().values())
    another.child.send_signal(number)
    assert another.outcome() == (0, "")
    assert psutil.wait_procs(live, timeout=30.0)[1] == []


@pytest.mark.parametrize("module", CHILDREN)
def test_a_child_that_dies_ends_the_station_with_one_line(another, until, module):
    assert until(lambda: len(another.children()) == 3)
    live = another.children()
    live[module].kill()
    status, errors = another.outcome()
    assert status == 1
    assert errors.count("\n") == 1 and module in errors
    assert psutil.wait_procs(list(live.values()), timeout=30.0)[1] == []


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's word for a parent's death is Linux's")
def test_children_follow_a_daemon_that_is_killed(another, until):
    assert until(lambda: len(another.children()) == 3)
    assert until(another.ready, PATIENCE_S)
    live = list(another.children().values())
    another.child.kill()
    another.child.communicate(timeout=60.0)
    assert psutil.wait_procs(live, timeout=60.0)[1] == []


@pytest.mark.parametrize("module", ["station.daemon", "station.ingest", "station.guardian"])
@pytest.mark.parametrize("text", [None, b"{", b'{"rate": 2.0}'], ids=["missing", "cut", "wrong"])
def test_a_config_that_cannot_be_used_is_one_line_and_status_2(run_dir, module, text):
    if text is not None:
        (run_dir / "station.json").write_bytes(text)
    child = process.start(module, run_dir, stderr=subprocess.PIPE)
    _, errors = child.communicate(timeout=60.0)
    assert child.returncode == 2, errors.decode()
    assert errors.count(b"\n") == 1 and b"station.json" in errors
