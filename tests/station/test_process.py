"""Children are ended and reaped whatever they do, follow a killed parent, and take of the machine what they may."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from station import process

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)
MEEK = "import time; print('up', flush=True); time.sleep(600)"


def spawn(code):
    """A Python child that has said 'up'."""
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=process.ROOT, env=dict(os.environ)
    )
    assert child.stdout.readline().strip() == b"up"
    child.stdout.close()
    return child


def run(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        check=False,
        cwd=process.ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_end_asks_first_then_kills_and_reaps_all():
    meek, stubborn, gone = spawn(MEEK), spawn(STUBBORN), spawn("print('up', flush=True)")
    gone.wait(60.0)
    process.end([stubborn, meek, gone], 0.2)
    assert (stubborn.returncode, meek.returncode, gone.returncode) == (-signal.SIGKILL, -signal.SIGTERM, 0)
    for child in (meek, stubborn, gone):
        assert not psutil.pid_exists(child.pid), "not even a zombie is left"


def test_end_of_nobody_and_of_the_dead_is_nothing():
    process.end([], 1.0)
    child = spawn(MEEK)
    process.end([child], 30.0)
    process.end([child], 30.0)
    assert child.returncode == -signal.SIGTERM


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's word for a parent's death is Linux's")
@pytest.mark.parametrize("last", [signal.SIGKILL, signal.SIGTERM])
def test_a_child_follows_its_parent_however_that_dies(last):
    child = (
        "from station import process; process.follow_parent(); print('up', flush=True); import time; time.sleep(600)"
    )
    parent = (
        "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE);"
        "child.stdout.readline(); print(child.pid, flush=True); child.wait()"
    )
    above = subprocess.Popen([sys.executable, "-c", parent, child], stdout=subprocess.PIPE, cwd=process.ROOT)
    orphan = psutil.Process(int(above.stdout.readline()))
    above.send_signal(last)
    above.communicate()
    assert psutil.wait_procs([orphan], timeout=60.0)[1] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_on_stop_calls_instead_of_dying(number):
    code = (
        "import os, sys; from station import process; said = []; process.on_stop(lambda: said.append('stop'));"
        "os.kill(os.getpid(), int(sys.argv[1])); print(said)"
    )
    done = run(code, str(int(number)))
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "['stop']", "")


def test_start_runs_a_module_of_the_checkout_from_anywhere(run_dir, monkeypatch):
    monkeypatch.chdir("/")
    child = process.start("station.ingest", run_dir, stderr=subprocess.PIPE)
    _, errors = child.communicate(timeout=60.0)
    assert child.returncode != 0
    assert b"station.json" in errors


@pytest.mark.parametrize(
    "wish", [{}, {"nice": 1}, {"fifo": 1}, {"cores": (0,)}, {"cores": (9999,)}, {"fifo": 1000}], ids=str
)
def test_claim_takes_what_it_may_and_tells(wish):
    done = run(f"from station import process; print(process.claim(**{wish!r}))")
    assert (done.returncode, done.stderr) == (0, "")
    granted = done.stdout.strip()
    if not wish:
        assert granted == "nothing"
    if "cores" in wish:
        assert granted.startswith("cores [")


def test_claim_never_raises_where_nothing_is_allowed(monkeypatch):
    def refused(*_):
        raise PermissionError(1, "Operation not permitted")

    for name in ("sched_setscheduler", "nice", "sched_setaffinity"):
        monkeypatch.setattr(os, name, refused, raising=False)
    assert process.claim(fifo=20, cores=(0,)) == "nice refused"
    assert process.claim(nice=5) == "nice refused"


def test_claim_falls_back_to_niceness(monkeypatch):
    def refused(*_):
        raise PermissionError(1, "Operation not permitted")

    asked = []
    monkeypatch.setattr(os, "sched_setscheduler", refused, raising=False)
    monkeypatch.setattr(os, "nice", lambda step: asked.append(step) or step)
    assert process.claim(fifo=20) == "nice -10"
    assert asked == [-10]


def test_refuse_is_one_line_and_status_2():
    done = run("from station import process; process.refuse('the port 1 is taken; choose another')")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "the port 1 is taken; choose another\n")


def test_freeze_hides_what_is_there_from_the_collector():
    done = run("import gc; from station import process; process.freeze(); print(gc.get_freeze_count() > 1000)")
    assert done.stdout.strip() == "True"
