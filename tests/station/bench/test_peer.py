"""The peer's environment and the process that drives a simulator."""

from __future__ import annotations

import fcntl
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from station import process
from station.bench import agreement, cases, peer, sim
from station.bench.worker import Worker, WorkerError

needs_peer = pytest.mark.skipif(
    not peer.is_ready(process.ROOT), reason="the peer's environment is not there: ./midair bench sim --quick makes it"
)
SPEC = {"worlds": 3, "drones": 2, "drone": "cf21B_500", "dynamics": "first_principles", "integrator": "euler"}


def test_the_peer_is_pinned_whole() -> None:
    packages = peer.packages(process.ROOT)
    assert "crazyflow==0.4.0" in packages
    assert all(package.count("==") == 1 for package in packages)
    names = [package.partition("==")[0].lower() for package in packages]
    assert len(names) == len(set(names))


def test_an_environment_of_other_versions_is_not_ready(tmp_path: Path) -> None:
    (tmp_path / "requirements").mkdir()
    requirements = tmp_path / peer.REQUIREMENTS
    requirements.write_text("# peer\nthis==1.0\n")
    assert not peer.is_ready(tmp_path)
    python = peer.python(tmp_path)
    python.parent.mkdir(parents=True)
    python.touch()
    peer._stamp(tmp_path).write_text(peer._key(tmp_path))
    assert peer.is_ready(tmp_path)
    assert peer.ready(tmp_path, pytest.fail) == python  # nothing to say, nothing made
    requirements.write_text("# peer\nthis==1.1\n")
    assert not peer.is_ready(tmp_path)


def test_a_failure_of_pip_is_told_in_one_line_with_its_cure(tmp_path: Path) -> None:
    (tmp_path / "requirements").mkdir()
    (tmp_path / peer.REQUIREMENTS).write_text("./not-a-wheel-that-exists\n")
    said: list[str] = []
    with pytest.raises(peer.PeerError, match=r"not-a-wheel-that-exists.*then run this again"):
        peer.ready(tmp_path, said.append)
    assert "1 packages" in said[0]
    assert not peer.is_ready(tmp_path)
    with (tmp_path / peer.FOLDER).with_suffix(".lock").open("w") as lock:  # given back
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_simulator_that_does_not_start_is_named_with_its_last_words() -> None:
    worker = Worker("the other one", Path(sys.executable), "no_such_simulator", {})
    try:
        with pytest.raises(WorkerError, match="the other one has ended: .*no_such_simulator"):
            worker.about()
    finally:
        worker.close()


@needs_peer
@pytest.mark.slow
def test_the_peers_process_answers_errs_and_goes_on() -> None:
    worker = sim.start(peer.python(process.ROOT), "peer")
    try:
        assert worker.about()["simulator"] == "crazyflow 0.4.0"
        assert worker.about()["flags"] == ""
        with pytest.raises(WorkerError, match="peer: .*no-such-drone"):
            worker.do("prepare", key="a", spec={**SPEC, "control": "rotor_vel", "drone": "no-such-drone"}, steps=1)
        prepared = worker.do("prepare", key="a", spec={**SPEC, "control": "rotor_vel"}, steps=2)
        assert prepared["first_s"] > 0.0
        seconds = worker.do("time", key="a", steps=2, budget_s=0.0, least=3)["seconds"]
        assert len(seconds) == 3 and min(seconds) > 0.0
        assert worker.do("forget", key="a") == {}
        with pytest.raises(WorkerError, match="KeyError"):
            worker.do("time", key="a", steps=2, budget_s=0.0, least=1)
    finally:
        worker.close()


@needs_peer
@pytest.mark.slow
def test_a_recorded_flight_is_that_of_its_seed_and_can_be_flown_again(tmp_path: Path) -> None:
    worker = sim.start(peer.python(process.ROOT), "peer", JAX_ENABLE_X64="1")
    spec = next(s for s in cases.agreement() if cases.title(s) == "cf2x_T350-first_principles-attitude-euler")
    try:
        paths = [str(tmp_path / f"{i}.npz") for i in range(3)]
        worker.do("flight", spec=spec, source=None, target=paths[0], seed=3)
        worker.do("flight", spec=spec, source=paths[0], target=paths[1], seed=0)
        worker.do("flight", spec=spec, source=None, target=paths[2], seed=4)
    finally:
        worker.close()
    first, again, other = (dict(np.load(path)) for path in paths)
    assert first["cmd"].shape == (80, 4, 1, 4) and first["pos"].shape == (80, 4, 1, 3)
    assert first["pos"].dtype == np.float64
    assert agreement.apart("t", "attitude", again, first).all400 == 0.0
    assert 1e-3 < agreement.apart("t", "attitude", other, first).all400 < math.inf
    assert first["pos"][..., 2].min() > 1.0  # no drone reached the floor, where both would agree on anything
