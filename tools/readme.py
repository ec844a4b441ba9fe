"""Puts the measured figures of `demo throw` into the README, and its picture into docs/. Flies nothing.

    ./midair demo throw --runs 20 --seed 1 --json out.json --report out.html
    .venv/bin/python tools/readme.py out.json out.html

The table stands between two marks of README.md; the picture is a screenshot of the report, by Chromium if there is one.
"""

from __future__ import annotations

import math
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from station import result  # noqa: E402

BEGIN, END = "<!-- figures: tools/readme.py -->", "<!-- end of figures -->"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking")


def wilson(good: int, of: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927)."""
    share, spread = good / of, z * math.sqrt(good / of * (1 - good / of) / of + z * z / (4 * of * of))
    scale = 1 + z * z / of
    return (share + z * z / (2 * of) - spread) / scale, (share + z * z / (2 * of) + spread) / scale


def machine() -> str:
    """Processor and cores of this machine, for people."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text().splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
        return f"{name}, {sum(line.startswith('processor') for line in lines)} cores"
    return name


def table(outcome: result.Result) -> str:
    """The figures of a mission as Markdown."""
    runs = outcome.runs
    low, high = wilson(outcome.caught, len(runs))
    kept = sum(run.budgets_ok for run in runs)
    lines = [
        f"Measured by `./midair demo throw --runs {len(runs)} --seed {outcome.seed}` on {machine()}"
        + ("" if outcome.rate == 1.0 else f", **not real time** (rate {outcome.rate:g})")
        + "; simulated, not flown:",
        "",
        f"- caught **{outcome.caught} of {len(runs)}** (95 % interval {low:.0%} to {high:.0%}); "
        f"every budget kept in {kept} of {len(runs)}",
    ]
    walls = [1e3 * run.train.wall_s for run in runs if run.train.wall_s is not None]
    if walls:
        lines.append(f"- trained from scratch in {statistics.median(walls):.0f} ms (longest {max(walls):.0f} ms)")
    errors = [run.prediction_error for run in runs]
    pos_mm, vel_cmps = _median([e.pos_m for e in errors], 1e3), _median([e.vel_mps for e in errors], 1e2)
    att_deg = _median([e.att_deg for e in errors])
    lines.append(
        f"- state at activation predicted to {pos_mm:.1f} mm, {vel_cmps:.1f} cm/s, {att_deg:.1f} deg (medians)"
    )
    lines += ["", "| stage | ms after release, median | latest | budget |", "|---|---|---|---|"]
    for name in result.EVENTS[1:8]:
        times = [1e3 * t for run in runs if (t := getattr(run.events_s, name)) is not None]
        if times:
            budget = result.BUDGETS_MS.get(name)
            lines.append(
                f"| {name} | {statistics.median(times):.0f} | {max(times):.0f} | {f'{budget:.0f}' if budget else ''} |"
            )
    return "\n".join(lines)


def _median(values: Sequence[float | None], scale: float = 1.0) -> float:
    return scale * statistics.median([value for value in values if value is not None] or [math.nan])


def replace(text: str, block: str) -> str:
    """The README with a new block between its marks.

    Raises:
        ValueError: the marks are missing.
    """
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md has no block between '{BEGIN}' and '{END}'")
    return f"{head}{BEGIN}\n{block}\n{END}{tail}"


def picture(report: Path, path: Path) -> bool:
    """A screenshot of the report's upper part; False without a browser."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        return False
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [browser, *FLAGS, f"--user-data-dir={profile}", "--window-size=1400,1400", f"--screenshot={path}",
             report.resolve().as_uri()],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip
    return True


def main(arguments: Sequence[str]) -> int:
    """Exit status: 2 for wrong use."""
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    readme = ROOT / "README.md"
    readme.write_text(replace(readme.read_text(), table(result.read(Path(arguments[0])))))
    if not picture(Path(arguments[1]), ROOT / "docs" / "throw.png"):
        print("no Chromium found: docs/throw.png stays as it is", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
