"""The check of a GPU: what it would measure, and that it says why it does not."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

PATH = Path(__file__).parents[2] / "tools" / "gpu_check.py"


@pytest.fixture(scope="module")
def gpu_check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_check", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_measures_every_kind_of_the_bench_on_the_gpu(gpu_check: ModuleType) -> None:
    cases = gpu_check.wanted()
    assert {case.name.partition("@")[0] for case in cases} == {
        "rotor_vel", "attitude", "state", "so_rpy_rotor_drag", "gradient10", "swarm", "dispatch"
    }  # fmt: skip
    assert all(case.spec["device"] == "gpu" for case in cases)
    largest = next(case for case in cases if case.name == "rotor_vel@1048576")
    assert largest.spec["worlds"] == 1048576


def test_without_a_gpu_it_skips_and_says_why(
    gpu_check: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setattr("sys.argv", ["gpu_check.py"])
    assert gpu_check.main() == 0
    assert "skipped: JAX sees no GPU: " in capsys.readouterr().out


@pytest.mark.gpu
def test_on_a_gpu_one_case_is_measured(gpu_check: ModuleType) -> None:
    if reason := gpu_check.missing():
        pytest.skip(reason)
    worker = gpu_check.Worker("ours", Path(gpu_check.sys.executable), "sim.sim", gpu_check.GPU)
    try:
        found = gpu_check.measure(worker, gpu_check.wanted()[0])
    finally:
        worker.close()
    assert found["steps_per_s"] > 0.0
