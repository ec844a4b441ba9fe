"""Whole demonstrations interrupted, robbed of a process, fed with rubbish: a verdict or one line, and nothing left.

Nothing here asserts a catch: a machine under test may be too slow for one. What must hold on any machine is the end.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import psutil
import pytest
import yaml

from hardware import crtp
from hardware.virtual import crazyradio, natnet
from station import cli, process

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="other kernels do not tell a child that its parent is killed"),
]
PATIENCE_S = 280.0
"""Only a hang takes so long, or the first compilation."""
MARK = "MIDAIR_CHAOS"
"""Environment variable by which the processes of one demonstration are found."""


class Demo:
    """`demo throw` on ports of its own, with a folder for all that it leaves."""

    def __init__(self, place: Path, ports: list[int], *arguments: str) -> None:
        self.place, self.ports, self.name = place, ports, str(place)
        self.lines: list[str] = []
        self.temporary = place / "t"
        self.temporary.mkdir()
        self.result = place / "out.json"
        station = yaml.safe_load((cli.CONFIGS / "sim_throw.yaml").read_text())
        lab = yaml.safe_load((cli.CONFIGS / "scenarios" / "throw.yaml").read_text())
        station["source"]["command_port"] = lab["command_port"] = ports[0]
        station["dongles"][0]["air_port"] = lab["air_port"] = ports[1]
        lab["hand"] |= {"carry_s": [0.3, 0.5], "wait_s": [0.5, 0.8], "feint_share": 0.0}
        for name, data in (("station.yaml", station), ("lab.yaml", lab)):
            (place / name).write_text(yaml.safe_dump(data))
        options = ["--config", place / "station.yaml", "--lab", place / "lab.yaml", "--json", self.result, *arguments]
        self.child = subprocess.Popen(
            [sys.executable, "-m", "station.cli", "demo", "throw", *map(str, options)],
            env={**os.environ, "PYTHONPATH": str(process.ROOT), "TMPDIR": str(self.temporary), MARK: self.name},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        with self.child.stdout:
            self.lines += iter(self.child.stdout.readline, "")

    def said(self, words: str) -> bool:
        """Whether it has been said; a demonstration that ended before is a failure."""
        if any(words in line for line in self.lines):
            return True
        assert self.child.poll() is None, self.lines
        return False

    def processes(self) -> dict[str, int]:
        """Live processes of this demonstration by module."""
        found = {}
        for each in psutil.process_iter():
            try:
                if each.environ().get(MARK) == self.name and each.status() != psutil.STATUS_ZOMBIE:
                    found[each.cmdline()[2]] = each.pid
            except (psutil.Error, IndexError):
                continue
        return found

    def end(self, until) -> int:
        """Its status, after checking that nothing of it is left and that nobody saw a traceback."""
        status = self.child.wait(PATIENCE_S)
        assert until(lambda: not self.processes()), self.processes()
        self.reader.join(60.0)
        assert "Traceback" not in "".join(self.lines), self.lines
        for port in self.ports:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.bind(("127.0.0.1", port))
        return status

    def complaints(self) -> list[str]:
        return [line for line in self.lines if line.startswith("midair:")]


@pytest.fixture
def demo(run_dir, free_ports):
    started = []

    def start(*arguments: str) -> Demo:
        started.append(Demo(run_dir, free_ports(2), *arguments))
        return started[-1]

    yield start
    for each in started:
        for pid in each.processes().values():
            os.kill(pid, signal.SIGKILL)
        each.child.wait()


def test_an_interruption_while_the_hand_holds_the_drone(demo, until):
    throw = demo()
    assert until(lambda: throw.said("throw, seed"), PATIENCE_S)
    os.killpg(throw.child.pid, signal.SIGINT)  # as a terminal does
    assert throw.end(until) == 130
    assert throw.complaints() == ["midair: interrupted; everything is switched off\n"]
    assert not list(throw.temporary.iterdir())


def test_an_interruption_in_flight_lands_first_and_a_second_one_changes_nothing(demo, until):
    throw = demo()
    assert until(lambda: throw.said("  activated"), PATIENCE_S)
    throw.child.send_signal(signal.SIGINT)
    throw.child.send_signal(signal.SIGINT)
    throw.child.send_signal(signal.SIGTERM)
    assert throw.end(until) == 130
    assert len(throw.complaints()) == 1
    assert not list(throw.temporary.iterdir())


def test_a_killed_demo_takes_everything_with_it(demo, until):
    throw = demo()
    assert until(lambda: throw.said("throw, seed"), PATIENCE_S)
    assert len(throw.processes()) == 6
    throw.child.kill()
    assert throw.end(until) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("module", "number", "words"),
    [
        ("station.guardian", signal.SIGKILL, "station.guardian was killed by SIGKILL"),
        ("station.ingest", signal.SIGSTOP, "station.ingest hangs"),
        ("station.virtual_lab", signal.SIGKILL, "the virtual lab was killed by SIGKILL"),
    ],
)
def test_a_process_that_goes_is_named(demo, until, module, number, words):
    throw = demo()
    assert until(lambda: throw.said("throw, seed"), PATIENCE_S)
    os.kill(throw.processes()[module], number)
    assert throw.end(until) in (1, 2)
    assert any(words in line for line in throw.lines), throw.lines
    assert len(throw.complaints()) <= 1
    assert not list(throw.temporary.iterdir())


def rubbish(seed: int) -> list[bytes]:
    """Datagrams that a lab, a source or a dongle might take for theirs."""
    draw = random.Random(seed)
    nan = float("nan")
    frame = natnet.encode_frame(draw.randrange(1 << 31), [(1, (nan, nan, nan), (0.0, 0.0, 0.0, 1.0), True)], (1, 1, 1))
    far = natnet.encode_frame(draw.randrange(1 << 31), [(1, (9.0, 9.0, 9.0), (0.0, 0.0, 0.0, 1.0), True)], (1, 1, 1))
    estop = crtp.encode_estop()[0]
    asked = crazyradio.REQUEST.pack(b"Mr", draw.randrange(1 << 32), 0, 80, 2, b"\xe7\xe7\xe7\xe7\x02")
    return [
        b"",
        draw.randbytes(draw.randrange(1, 1400)),
        frame,
        frame[: draw.randrange(len(frame))],
        far,
        b"\x01\x00" + draw.randbytes(40),
        b"\x05\x00\xff\xff" + draw.randbytes(40),
        asked[: draw.randrange(len(asked))],
        asked + bytes([estop.port << 4 | estop.channel, *estop.data]),
        b"Mr" + draw.randbytes(draw.randrange(60)),
    ]


def test_rubbish_from_strangers_on_every_port_ends_nothing(demo, until):
    throw = demo()
    assert until(lambda: throw.said("throw, seed"), PATIENCE_S)
    live = throw.processes()
    targets = {*throw.ports}
    for module in ("station.ingest", "station.guardian"):
        targets |= {each.laddr.port for each in psutil.Process(live[module]).net_connections("udp4")}
    assert len(targets) >= 4
    seed = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        while throw.child.poll() is None:
            for datagram in rubbish(seed):
                for port in targets:
                    stranger.sendto(datagram, ("127.0.0.1", port))
            seed += 1
            threading.Event().wait(0.02)
    assert throw.end(until) in (0, 1)
    (run,) = msgspec.json.decode(throw.result.read_bytes())["runs"]
    assert run["events_s"]["activated"] is not None, run
    assert throw.complaints() == []


@pytest.mark.parametrize("loss", [0.3, 1.0])
def test_a_bad_radio_ends_in_a_catch_or_with_a_named_reason(demo, until, loss):
    throw = demo("--loss", str(loss))
    status = throw.end(until)
    (run,) = msgspec.json.decode(throw.result.read_bytes())["runs"]
    assert status == (0 if run["caught"] else 1)
    assert run["caught"] or run["reason"]
    if loss == 1.0:
        assert "link_failed" in run["reason"] and "does not answer" in run["reason"]
