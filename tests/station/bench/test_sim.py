"""`bench sim --quick` from end to end, with the peer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from station import process
from station.bench import cases, peer, sim


@pytest.mark.slow
@pytest.mark.skipif(not peer.is_ready(process.ROOT), reason="the peer's environment is not there")
def test_the_quick_bench_measures_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "figures.json"
    assert sim.run(sim.Options(quick=True, json=path)) in (0, 1)
    report = json.loads(path.read_text())
    rows = {row["name"]: row for row in report["figures"]}
    assert rows[cases.QUICK[0]]["value"] > 0.0
    assert rows["memory"]["value"] is None
    assert "failure" not in json.dumps(report["runs"])
    assert report["machine"]["versions"]["peer"]["simulator"] == "crazyflow 0.4.0"
    assert "rotor_vel@1" in capsys.readouterr().out


def test_a_folder_that_is_not_there_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sim.run(sim.Options(json=tmp_path / "missing" / "x.json")) == 2
    assert "there is no folder" in capsys.readouterr().err
