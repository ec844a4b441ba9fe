"""What the simulator does on a GPU: the work of `./midair bench sim` without the peer, and far more worlds.

    python tools/gpu_check.py [--json FILE]

Skips, with the reason and status 0, where JAX sees no GPU: `.venv` has JAX for the CPU, so a machine with a GPU needs
`pip install "jax[cuda12]"` of the pinned version in an environment of its own. Figures have no target yet: the peer is
not asked there.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import msgspec  # noqa: E402

from station.bench import cases, machine  # noqa: E402
from station.bench.worker import OURS, Worker, WorkerError  # noqa: E402

WORLDS = (1, 1024, 16384, 65536, 262144, 1048576)
GPU = {"JAX_PLATFORMS": "cuda,cpu"}


def missing() -> str:
    """Why there is nothing to measure; empty when there is a GPU that JAX can use."""
    probe = "import jax; print(jax.devices('gpu')[0].device_kind)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    lines = done.stderr.strip().splitlines()
    return "" if done.returncode == 0 else f"JAX sees no GPU: {lines[-1] if lines else 'no reason given'}"


def wanted() -> list[cases.Case]:
    """The cases of the bench on the GPU, at the sizes that fill one."""
    kinds: dict[str, cases.Case] = {}
    found = []
    for case in cases.speed():
        kind, _, size = case.name.partition("@")
        if "x" in size or kind == "dispatch":
            found.append(replace(case, spec={**case.spec, "device": "gpu"}))
        else:
            kinds.setdefault(kind, case)
    for kind, case in kinds.items():
        for worlds in WORLDS:
            spec = {**case.spec, "worlds": worlds, "device": "gpu", "variants": 2}
            found.append(replace(case, name=f"{kind}@{worlds}", spec=spec))
    return found


def measure(worker: Worker, case: cases.Case) -> dict[str, Any]:
    """Median and least seconds of a call, the first call, and drone steps a second; or why it failed."""
    try:
        prepared = worker.do("prepare", key=case.name, spec=case.spec, steps=case.steps)
        seconds = worker.do("time", key=case.name, steps=case.steps, budget_s=0.5, least=3)["seconds"]
        worker.do("forget", key=case.name)
    except WorkerError as failure:
        return {"name": case.name, "failure": str(failure)}
    middle = statistics.median(seconds)
    steps = case.spec["worlds"] * case.spec["drones"] * (10 if case.spec.get("gradient") else case.steps)
    return {
        "name": case.name,
        "median_s": middle,
        "min_s": min(seconds),
        "first_s": prepared["first_s"],
        "steps_per_s": steps / middle,
    }


def main() -> int:
    """Exit status: 0 measured or skipped, 1 when something failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    reason = missing()
    if reason:
        print(f"skipped: {reason}")
        return 0
    worker = Worker("ours", Path(sys.executable), OURS, GPU)
    try:
        about = worker.about()
        print(f"{about['simulator']}, jax {about['jax']}, {', '.join(about['devices'])}")
        results = []
        for case in wanted():
            results.append(measure(worker, case))
            text = results[-1].get("failure") or f"{results[-1]['steps_per_s']:.3g} steps/s"
            print(f"{case.name:<28}{text}", flush=True)
    finally:
        worker.close()
    if options.json is not None:
        report = {"machine": {**machine.described(0.0), "gpu": about["devices"]}, "commit": machine.commit(ROOT)}
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode({**report, "runs": results}), indent=1))
    return 1 if any("failure" in result for result in results) else 0


if __name__ == "__main__":
    raise SystemExit(main())
