"""The peer simulator's own environment: made on demand from pinned wheels, and only for benches. Runs no simulation."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

REQUIREMENTS = "requirements/peer.txt"
FOLDER = ".cache/peer"
MEGABYTES = 330
"""What its first making downloads, about."""


class PeerError(Exception):
    """The environment cannot be made; the text says why and what helps."""


def python(root: Path) -> Path:
    """Interpreter of the peer's environment."""
    return root / FOLDER / "bin" / "python"


def packages(root: Path) -> list[str]:
    """Names and versions of what goes into it."""
    lines = (root / REQUIREMENTS).read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _key(root: Path) -> str:
    checksum = zlib.crc32("\n".join(packages(root)).encode())
    return f"{checksum:08x} {sys.version_info[0]}.{sys.version_info[1]}"


def _stamp(root: Path) -> Path:
    return root / FOLDER / "midair.stamp"


def is_ready(root: Path) -> bool:
    """Whether the environment is there, whole and of these versions."""
    try:
        return python(root).exists() and _stamp(root).read_text() == _key(root)
    except OSError:
        return False


def ready(root: Path, say: Callable[[str], None]) -> Path:
    """The peer's interpreter; its environment is made first where it is missing or out of date.

    Args:
        root: the checkout.
        say: told what is going on; making it takes a minute or more.

    Raises:
        PeerError: no network, no space, no wheel for this machine.
    """
    if is_ready(root):
        return python(root)
    with _alone(root):
        if not is_ready(root):
            _make(root, say)
    return python(root)


def _make(root: Path, say: Callable[[str], None]) -> None:
    wanted = packages(root)
    say(f"making the peer's environment in {FOLDER}: {len(wanted)} packages, about {MEGABYTES} MB to download, once")
    folder = root / FOLDER
    _stamp(root).unlink(missing_ok=True)
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    whole = (folder / "lib" / f"python{version}" / "site-packages" / "pip").is_dir() and python(root).exists()
    if not whole:
        _run([sys.executable, "-m", "venv", "--clear", str(folder)], lambda _: None)
    seen = 0

    def heard(line: str) -> None:
        nonlocal seen
        words = line.split()
        if line.startswith(("Collecting ", "Requirement already satisfied: ")):
            seen += 1
            name = words[1] if line.startswith("Collecting ") else words[3]
            say(f"[{seen}/{len(wanted)}] {name.split('=')[0]}")
        elif line.startswith("Installing collected"):
            say(f"unpacking {len(wanted)} packages")

    command = [str(python(root)), "-I", "-m", "pip", "install", "--no-input", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--progress-bar", "off", "-r", str(root / REQUIREMENTS)]
    _run(command, heard)
    _stamp(root).write_text(_key(root))


def _run(command: list[str], heard: Callable[[str], None]) -> None:
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
        assert child.stdout is not None
        lines = []
        for line in child.stdout:
            lines.append(line.rstrip())
            heard(line.strip())
    if child.returncode:
        errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:]
        raise PeerError(
            f"the peer's environment cannot be made: {' '.join(errors) or f'status {child.returncode}'}; "
            "it needs the package index (behind a proxy set HTTPS_PROXY) and 1.5 GB of disk; then run this again"
        )


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """One making at a time; whoever comes second waits, and finds it done."""
    path = root / FOLDER
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
