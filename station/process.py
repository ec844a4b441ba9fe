"""A process of the station: how it is started, what it may claim of the machine, how it ends."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
REFUSED = 2
"""Exit status of a process that has told in one line why it cannot do what it was asked."""
_PR_SET_PDEATHSIG = 1
_PARENT = "MIDAIR_PARENT"
"""Environment variable in which a child finds the process that started it."""


def start(module: str, run_dir: Path, **streams: int) -> subprocess.Popen[bytes]:
    """Start ``python -m module RUN_DIR`` from the checkout; its errors share our stderr.

    It gets a session of its own: Ctrl-C at the terminal reaches whoever started it, and that one ends it in order.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", _PARENT: str(os.getpid())}
    command = [sys.executable, "-m", module, str(run_dir)]
    return subprocess.Popen(command, env=environment, cwd=ROOT, start_new_session=True, **streams)  # type: ignore[call-overload, no-any-return]


def end(children: Sequence[subprocess.Popen[bytes]], grace_s: float) -> None:
    """End children and reap them: SIGTERM, then SIGKILL to whoever is still there after ``grace_s`` host seconds."""
    for child in children:
        if child.poll() is None:
            child.terminate()
    for child in children:
        try:
            child.wait(grace_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def follow_parent() -> None:
    """Be sent SIGTERM when the parent dies, however it dies (Linux; elsewhere a child outlives a killed parent)."""
    if sys.platform == "linux":
        parent = int(os.environ.get(_PARENT) or os.getppid())
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died while we were being loaded
            os.kill(os.getpid(), signal.SIGTERM)


def on_stop(stop: Callable[[], None]) -> None:
    """Call ``stop`` on SIGTERM and SIGINT instead of dying."""

    def handler(_signal: int, _frame: FrameType | None) -> None:
        stop()

    signal.signal(signal.SIGTERM, handler)
    signal.signal(signal.SIGINT, handler)


def claim(*, fifo: int = 0, nice: int = 0, cores: Sequence[int] = ()) -> str:
    """Ask for real-time priority, niceness and cores; what is not allowed is left as it is.

    Args:
        fifo: SCHED_FIFO priority, 0 for none; where it is refused a niceness of -10 is tried.
        nice: added to the niceness.
        cores: CPU cores to stay on; empty leaves the kernel its choice.

    Returns:
        What was granted, for the record.
    """
    granted = []
    if cores and hasattr(os, "sched_setaffinity"):
        allowed = os.sched_getaffinity(0)
        wanted = allowed.intersection(cores) or allowed
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, wanted)
            granted.append(f"cores {sorted(wanted)}")
    if fifo:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(fifo))
            granted.append(f"fifo {fifo}")
        except (OSError, AttributeError):
            nice = nice or -10
    if nice:
        try:
            granted.append(f"nice {os.nice(nice)}")
        except OSError:
            granted.append("nice refused")
    return ", ".join(granted) or "nothing"


def freeze() -> None:
    """Move everything built so far out of the garbage collector's sight, so that no pause comes from it in flight."""
    gc.collect()
    gc.freeze()


def ending(status: int) -> str:
    """How a child ended, for people: "ended with status 3", "was killed by SIGKILL"."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


def refuse(text: str) -> None:
    """End with one line for the person at the terminal: wrong use, status 2."""
    print(text, file=sys.stderr, flush=True)
    raise SystemExit(REFUSED)
