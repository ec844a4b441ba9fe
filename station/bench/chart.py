"""A page that plots a report of `bench sim`: speed over worlds, ours and the peer's. Measures nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

COLOURS = {"ours": "#0b7285", "peer": "#adb5bd", "peer, our flags": "#868e96"}


def write(report: dict[str, Any], path: Path) -> None:
    """Write the page, self-contained.

    Args:
        report: what ``--json`` writes.
        path: of the HTML file.
    """
    series = rates(report)
    figure = make_subplots(rows=1, cols=max(1, len(series)), subplot_titles=list(series) or [""], shared_yaxes=True)
    for column, points in enumerate(series.values(), start=1):
        for which, colour in COLOURS.items():
            line = [(worlds, by[which]) for worlds, by in sorted(points.items()) if which in by]
            trace = go.Scatter(
                x=[worlds for worlds, _ in line],
                y=[speed for _, speed in line],
                name=which,
                legendgroup=which,
                showlegend=column == 1,
                line={"color": colour},
                mode="lines+markers",
            )
            figure.add_trace(trace, row=1, col=column)
    figure.update_xaxes(type="log", title_text="worlds")
    figure.update_yaxes(type="log")
    figure.update_yaxes(title_text="drone steps a second", col=1)
    machine = report["machine"]
    title = f"Steps of one drone a second, {machine['cpu']}, {machine['cores']} cores, {report['commit'][:10]}"
    figure.update_layout(title=title, template="plotly_white", height=480)
    path.write_text(figure.to_html(include_plotlyjs=True, full_html=True), encoding="utf-8")


def rates(report: dict[str, Any]) -> dict[str, dict[int, dict[str, float]]]:
    """Drone steps a second: by kind, worlds and process."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for name, run in report["runs"].items():
        kind, _, size = name.partition("@")
        if not size.isdigit() or kind == "dispatch" or "failure" in run:
            continue
        steps = 10 if kind == "gradient10" else 50
        speed = {which: int(size) * steps / run[which]["median_s"] for which in COLOURS if which in run}
        found.setdefault(kind, {})[int(size)] = speed
    return found
