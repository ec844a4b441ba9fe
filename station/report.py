"""One self-contained HTML page about a mission of throws. Reads a result and the truths beside it, and judges nothing.

`report.html` is the page: its layout, its style and the script that draws. This file fills it.
"""

from __future__ import annotations

import contextlib
import html
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from plotly.offline import get_plotlyjs

from station.judge import tilt_deg
from station.lab import truth as truths
from station.lab.truth import Truth
from station.result import BUDGETS_MS, EVENTS, Result, Run, verdict

PAGE = Path(__file__).with_suffix(".html")
STAGES = EVENTS[1:8]
"""Of the bars: what happens before the drone is steady."""
DRAW_HZ = 100.0
BEFORE_S, AFTER_S = 0.5, 10.0
"""Span of the drawn trajectories around the release."""


def write(result: Result, truth_paths: Sequence[Path], curves: Sequence[Sequence[float]], path: Path) -> None:
    """Write the report.

    Args:
        result: The mission.
        truth_paths: One .npz a run, in their order; a run whose file is not there is drawn without a trajectory.
        curves: Mean cost of each update, a run; empty where nothing was trained.
        path: Of the HTML file.

    Raises:
        OSError: it cannot be written.
    """
    trajectories: list[Truth | None] = []
    for source in truth_paths:
        trajectories.append(None)
        with contextlib.suppress(OSError, KeyError, ValueError):
            trajectories[-1] = truths.load(source)
    path.write_text(render(result, trajectories, curves), encoding="utf-8")


def render(result: Result, trajectories: Sequence[Truth | None], curves: Sequence[Sequence[float]]) -> str:
    """The page as text. The sequences have one entry a run."""
    first = next((i for i, run in enumerate(result.runs) if run.caught), 0)
    data = {
        "runs": [_drawn(*run) for run in zip(result.runs, trajectories, curves, strict=True)],
        "first": first,
        "stages": STAGES,
        "budgets_ms": dict(BUDGETS_MS),
    }
    said = verdict(result)
    fields = {
        "TITLE": f"Midair: {result.caught} of {result.thrown} throws caught",
        "HEADING": f"{result.caught} of {result.thrown} throws caught: "
        f'<span class="{"good" if said.status == 0 else "bad"}">{"good" if said.status == 0 else "fell short"}</span>',
        "CONDITIONS": html.escape(
            f"{result.drone}, {_seeds(result)}, "
            f"{100 * result.loss:g} % packet loss, plant parameters within {100 * result.mismatch:g} % of the model's"
        ),
        "NOTES": _notes(result),
        "TILES": "".join(
            f'<div class="tile"><b>{value}</b><span>{name}</span></div>' for value, name in _tiles(result)
        ),
        "TABLE": _table(result),
        # A "</script>" in a text must not end the element that holds the data.
        "DATA": msgspec.json.encode(data).decode().replace("<", "\\u003c"),
        "PLOTLY": get_plotlyjs(),
    }
    page = PAGE.read_text(encoding="utf-8")
    parts = re.split("@([A-Z]+)@", page)  # names of fields at the odd places; a field's own text is not searched
    return "".join(fields[part] if i % 2 else part for i, part in enumerate(parts))


def _seeds(result: Result) -> str:
    last = result.seed + len(result.runs) - 1
    return f"seeds {result.seed} to {last}" if last > result.seed else f"seed {result.seed}"


def _notes(result: Result) -> str:
    slowed = f'<span class="warning">not real time (rate {result.rate:g})</span>; ' if result.rate < 1.0 else ""
    return slowed + "simulated, not flown; radio modelled at 780 us a packet"


def _tiles(result: Result) -> list[tuple[str, str]]:
    runs = result.runs
    return [
        (f"{result.caught} / {result.thrown}", "caught"),
        (f"{sum(run.budgets_ok for run in runs)} / {len(runs)}", "kept every budget"),
        (_median([run.events_s.confirmed for run in runs], 1e3, " ms"), "confirmed, median"),
        (_median([run.train.wall_s for run in runs], 1e3, " ms"), "training, median"),
        (_median([run.events_s.activated for run in runs], 1e3, " ms"), "release to activation, median"),
        (_median([run.events_s.recovered for run in runs], 1.0, " s", 2), "release to recovery, median"),
    ]


def _median(values: Sequence[float | None], factor: float, unit: str, digits: int = 0) -> str:
    known = [value for value in values if value is not None]
    return f"{factor * statistics.median(known):.{digits}f}{unit}" if known else "–"


def _outcome(run: Run) -> str:
    if run.caught:
        return "caught"
    return ("refused" if run.refused else "not caught") + (f": {run.reason}" if run.reason else "")


def _learned(run: Run) -> str:
    t = run.train
    if t.success is None or t.wall_s is None:
        return "nothing was trained"
    before = f"{100 * t.initial_success:.0f} %" if t.initial_success is not None else "unknown"
    return (
        f"{t.env_steps:,} steps in {t.envs} environments, {1e3 * t.wall_s:.0f} ms; "
        f"validation throws recovered: {before} before, {100 * t.success:.0f} % after"
    )


def _drawn(run: Run, truth: Truth | None, curve: Sequence[float]) -> dict[str, Any]:
    """What the page's script needs of a run; every number finite."""
    lines: dict[str, list[float | None]] = {"t": [], "height": [], "speed": [], "tilt": []}
    if truth is not None:
        keep = _thinned(truth.t_host)
        lines = {
            "t": _rounded(truth.t_host[keep], 4),
            "height": _rounded(truth.pos[keep, 2], 3),
            "speed": _rounded(np.linalg.norm(truth.vel[keep], axis=1), 3),
            "tilt": _rounded(tilt_deg(truth.quat[keep]), 2),
        }
    return {
        "seed": run.seed,
        "caught": run.caught,
        "outcome": f"seed {run.seed}: {_outcome(run)}" + ("" if run.budgets_ok else "; budgets missed"),
        "learned": _learned(run),
        "events": msgspec.structs.asdict(run.events_s),
        "curve": [value for value in map(float, curve) if np.isfinite(value)],
        **lines,
    }


def _thinned(t: NDArray[np.float64]) -> NDArray[np.intp]:
    """Indices of the samples to draw: about `DRAW_HZ`, and ten times as many in the first second."""
    inside = np.flatnonzero((t >= -BEFORE_S) & (t <= AFTER_S))
    rate_hz = np.where((t[inside] > -0.05) & (t[inside] < 0.7), 10 * DRAW_HZ, DRAW_HZ)
    slot = np.floor(t[inside] * rate_hz + 1e-6)
    return inside[np.flatnonzero(np.diff(slot, prepend=-np.inf))]


def _rounded(values: NDArray[np.float64], digits: int) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in np.round(values, digits)]


def _table(result: Result) -> str:
    words = "".join(f'<th class="word">{name}</th>' for name in ("seed", "outcome", "budgets"))
    heads = "".join(f"<th>{name}</th>" for name in (*EVENTS, "lowest, m", "resent", "lag, ms"))
    return f"<table><thead><tr>{words}{heads}</tr></thead><tbody>{''.join(map(_row, result.runs))}</tbody></table>"


def _row(run: Run) -> str:
    kind = "good" if run.caught else "bad"
    cells = [
        f'<td class="word">{run.seed}</td>',
        f'<td class="word {kind}">{html.escape(_outcome(run))}</td>',
        f'<td class="word {"good" if run.budgets_ok else "bad"}">{"kept" if run.budgets_ok else "missed"}</td>',
    ]
    for name in EVENTS:
        time_s = getattr(run.events_s, name)
        late = time_s is not None and 1e3 * time_s > BUDGETS_MS.get(name, np.inf)
        opened = '<td class="late">' if late else "<td>"
        cells.append(f"{opened}{_number(time_s, 1e3, 0)}</td>")
    cells.append(f"<td>{_number(run.truth.min_height_m, 1.0, 2)}</td>")
    cells.append(f"<td>{_number(run.upload.resent, 1.0, 0)}</td>")
    cells.append(f"<td>{_number(run.plant_lag_max_s, 1e3, 1)}</td>")
    return f"<tr>{''.join(cells)}</tr>"


def _number(value: float | None, factor: float, digits: int) -> str:
    return "–" if value is None or not np.isfinite(value) else f"{factor * value:.{digits}f}"
