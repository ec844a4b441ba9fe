"""What the tests of live processes share: short run directories, free ports, waiting for what must come."""

import socket
import tempfile
import time
from pathlib import Path

import pytest


def free_ports(count):
    """UDP ports nobody has now; all are held until all are known, so that they differ."""
    probes = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def until(condition, seconds=60.0):
    """Wait for something that must come; only a hang takes so long, and no test measures it."""
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.002)
    return found


@pytest.fixture(name="until", scope="session")
def _until():
    return until


@pytest.fixture(name="free_ports", scope="session")
def _free_ports():
    return free_ports


@pytest.fixture
def run_dir():
    """Short: the address of an ipc socket has about a hundred characters."""
    with tempfile.TemporaryDirectory(prefix="midair-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def module_run_dir():
    with tempfile.TemporaryDirectory(prefix="midair-") as name:
        yield Path(name)
