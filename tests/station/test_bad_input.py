"""Mistakes at the command line: one line that names place, value and cure, status 2, nothing started, nothing left."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

from firmware_patches.host import onboard
from hardware.errors import LinkError
from hardware.radio import CrazyflieLink
from station import cli, demo, process, run_dir
from station import config as cfg
from station.clock import Clock

DEFAULTS = demo.Options(
    runs=1,
    seed=7,
    rate=None,
    loss=None,
    mismatch=None,
    drone=None,
    json=None,
    report=None,
    record=None,
    config=cli.CONFIGS / "sim_throw.yaml",
    lab=cli.CONFIGS / "scenarios" / "throw.yaml",
)


class Started(AssertionError):
    """Something was started that should have been refused."""


@pytest.fixture
def refused(monkeypatch, capfd, tmp_path):
    """Fly with wrong options; the one line that was said."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def start(*_arguments, **_streams):
        raise Started

    monkeypatch.setattr(process, "start", start)
    handlers = {number: signal.getsignal(number) for number in demo.STOPS}

    def fly(**options) -> str:
        assert demo.fly(dataclasses.replace(DEFAULTS, **options)) == 2
        said = capfd.readouterr()
        assert said.out == ""
        assert said.err.startswith("midair: ") and said.err.count("\n") == 1, said.err
        assert not list(tmp_path.glob("midair-*"))
        assert {number: signal.getsignal(number) for number in demo.STOPS} == handlers
        return said.err

    return fly


def changed(source: Path, place: Path, **values) -> Path:
    """A configuration with other values."""
    data = yaml.safe_load(source.read_text())
    for key, value in values.items():
        section, _, inner = key.partition("__")
        if inner:
            data[section][inner] = value
        else:
            data[section] = value
    path = place / source.name
    path.write_text(yaml.safe_dump(data))
    return path


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"thrwo": 1}, ["unknown key `thrwo`", "throw"]),
        ({"throw__window_s": "twenty"}, ["throw.window_s", "str"]),
        ({"throw__target_m": float("nan")}, ["throw.target_m", "finite"]),
        ({"train__learning_rate": "1e-3"}, ["train.learning_rate", "1.0e-3"]),
        ({"train__window": 47}, ["train: env_steps 180000", "1504", "set it to 180480"]),
        ({"source__rate_hz": 1e6}, ["source.rate_hz", "2000"]),
        ({"drones": [{"uri": "radio://0/80/2M/XYZ"}]}, ["drones[0]", "radio://0/80/2M/XYZ", "write it like"]),
        ({"drones": [{"type": "hb_x500"}]}, ["drones[0].type", "hb_x500", "cf21B_500"]),
    ],
    ids=str,
)
def test_station_config(refused, tmp_path, values, words):
    said = refused(config=changed(DEFAULTS.config, tmp_path, **values))
    assert "sim_throw.yaml" in said
    assert all(word in said for word in words), said


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"gravity": 9.81}, ["unknown key `gravity`", "mismatch"]),
        ({"hand__feints": 1}, ["hand: unknown key `feints`", "feint_share"]),
        ({"mocap_latency_ms": [8.0, 3.0]}, ["mocap_latency_ms", "lower value first"]),
        ({"air_port": 15100}, ["command_port and air_port are both 15100"]),
        ({"uri": "usb://0"}, ["usb://0", "write it like"]),
        ({"drone": "nope"}, ["drone", "'nope'", "cf2x_T350"]),
    ],
    ids=str,
)
def test_lab_config(refused, tmp_path, values, words):
    said = refused(lab=changed(DEFAULTS.lab, tmp_path, **values))
    assert "throw.yaml" in said
    assert all(word in said for word in words), said


@pytest.mark.parametrize("key", ["config", "lab"])
def test_a_config_that_is_missing_or_no_file(refused, tmp_path, key):
    assert "none.yaml" in refused(**{key: tmp_path / "none.yaml"})
    assert "irectory" in refused(**{key: tmp_path})
    assert "[/red]x" in refused(**{key: Path("[/red]x")}), "brackets in a name are no markup"


@pytest.mark.parametrize("drone", ["foo", "hb_x500", ""])
def test_an_unknown_drone(refused, drone):
    said = refused(drone=drone)
    assert f"--drone: unknown drone type '{drone}'" in said and "cf21B_500" in said


@pytest.mark.parametrize("key", ["json", "report", "record"])
def test_results_that_cannot_be_written_are_refused_before_the_flight(refused, tmp_path, key):
    assert f"--{key} {tmp_path / 'no' / 'x'}" in refused(**{key: tmp_path / "no" / "x"})
    assert "no file" in refused(**{key: tmp_path})
    assert "no file" in refused(**{key: Path("/dev/null")})
    (tmp_path / "file").touch()
    assert "file" in refused(**{key: tmp_path / "file" / "x"})


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_results_in_a_read_only_directory(refused, tmp_path):
    place = tmp_path / "locked"
    place.mkdir(mode=0o500)
    assert "ermission" in refused(json=place / "x.json")


def test_two_results_in_one_file(refused, tmp_path):
    said = refused(json=tmp_path / "x", report=tmp_path / "y" / ".." / "x") if (tmp_path / "y").mkdir() is None else ""
    assert "--json writes there" in said
    assert not (tmp_path / "x").exists()


def test_probing_for_a_place_keeps_what_is_there(refused, tmp_path):
    (tmp_path / "x.json").write_text("old")
    refused(json=tmp_path / "x.json", drone="foo")
    refused(json=tmp_path / "x.json", report=tmp_path)
    assert (tmp_path / "x.json").read_text() == "old"


def test_a_run_directory_too_deep_for_sockets(refused, tmp_path, monkeypatch):
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    said = refused()
    assert "a socket's directory" in said and "TMPDIR" in said
    assert not list(deep.iterdir())


def test_directories_of_killed_runs_are_swept_and_no_others(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    stale, live = tmp_path / f"midair-{ended.pid}-abc", tmp_path / f"midair-{os.getpid()}-abc"
    others = [live, tmp_path / "midair-abc", tmp_path / f"other-{ended.pid}-abc"]
    for path in (stale, *others):
        path.mkdir()
        (path / "file").touch()
    (tmp_path / f"midair-{ended.pid}-link").symlink_to(live)
    with run_dir.make() as place:
        assert place.stat().st_mode & 0o777 == 0o700
        assert not stale.exists()
        assert all((path / "file").exists() for path in others)
    assert not place.exists()


def command(*arguments: str, cwd: Path | str = "/", **more) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "station.cli", "demo", "throw", *arguments],
        env={**os.environ, "PYTHONPATH": str(process.ROOT), **more},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    "arguments",
    ["--runs 0", "--runs x", "--rate 2", "--rate nan", "--loss nan", "--loss 1.1", "--mismatch 0.6", "--seed -1"]
    + ["--seed 99999999999999999999", "--what"],
)
def test_options_out_of_bounds(arguments):
    done = command(*arguments.split())
    assert done.returncode == 2 and done.stdout == ""
    assert arguments.split()[0] in done.stderr and "Traceback" not in done.stderr


def test_from_another_folder_without_a_home():
    done = command("--drone", "foo", HOME="/nowhere", TERM="dumb")
    assert done.returncode == 2
    assert done.stderr.startswith("midair: --drone: unknown drone type 'foo'") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("key", ["command_port", "air_port"])
def test_a_port_in_use_is_said_once(tmp_path, free_ports, key):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
        held.bind(("127.0.0.1", 0))
        ports = {"command_port": free_ports(1)[0], "air_port": free_ports(2)[1], key: held.getsockname()[1]}
        lab = changed(DEFAULTS.lab, tmp_path, **ports)
        done = command("--lab", str(lab), TMPDIR=tempfile.gettempdir())
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and str(ports[key]) in done.stderr and key in done.stderr


def test_closed_standard_streams_are_no_sockets():
    code = "import os; from station import cli; cli.hold_streams(); print(os.open(os.devnull, 0), file=open(2, 'w'))"
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" -c "$1" <&- >&-', sys.executable, code],
        cwd=process.ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert int(done.stderr) > 2


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (b'{"pm": {"vbat": {"__class__": "LogTocElement", "ident": 1}}}', True),
        (b"{}", True),
        (b"[1, 2]", False),
        (b'{"pm": 3}', False),
        (b'{"pm": {"vbat": 3}}', False),
        (b'{"cut', False),
        (b"\xff\xfe", False),
    ],
)
def test_cached_tables_that_are_none_are_dropped(tmp_path, text, kept):
    """Else the link would fail for ever, with nothing wrong on the air."""
    cache = tmp_path / "toc"
    cache.mkdir(mode=0o700)
    (cache / "00C0FFEE.json").write_bytes(text)
    with pytest.raises(LinkError, match="does not answer"):
        CrazyflieLink.open(
            "radio://0/80/2M/E7E7E7E701", cache, clock=Clock(), dongles=(cfg.Dongle(air_port=9),), timeout_s=0.2
        )
    assert (cache / "00C0FFEE.json").exists() == kept


def test_an_onboard_library_that_is_none_is_named_with_its_cure(tmp_path):
    (tmp_path / "libonboard.so").write_bytes(b"nonsense")
    with pytest.raises(OSError, match=r"libonboard\.so.*build it anew"):
        onboard.load(tmp_path / "libonboard.so")


def test_an_end_that_has_begun_is_not_disturbed_and_children_can_still_be_ended():
    code = (
        "import os, subprocess; from station import demo\n"
        "with demo._interruptible():\n"
        "    demo._undisturbed()\n"
        "    for number in demo.STOPS:\n"
        "        os.kill(os.getpid(), number)\n"
        "        child = subprocess.Popen(['sleep', '20'])\n"
        "        child.send_signal(number)\n"
        "        print(child.wait() == -number)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=process.ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["True"] * len(demo.STOPS), "")
