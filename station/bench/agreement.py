"""How far two recorded flights are apart, and the live comparison of both simulators. Simulates nothing itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from station.bench import cases
from station.bench.worker import Worker, WorkerError

Flight = Mapping[str, NDArray[np.float64]]
RECORDED = ("pos", "quat", "vel", "ang_vel", "rotor_vel")
FIRST = 2
"""Records of a flight within its first 10 steps: one every 5."""


@dataclass(frozen=True)
class Apart:
    """Errors of one flight against the peer's.

    Attributes:
        title: drone, dynamics, level, integrator.
        first10: over the first 10 steps; infinite when a value is not finite or a simulator failed.
        all400: over 400 steps, in parts of the tolerance of its level times 1e-6.
        text: what failed, or empty.
    """

    title: str
    first10: float
    all400: float
    text: str = ""


def error(ours: NDArray[np.float64], peers: NDArray[np.float64]) -> float:
    """max|a - b| / max(1, max|b|); infinite where something is not finite."""
    if ours.shape != peers.shape or not (np.all(np.isfinite(ours)) and np.all(np.isfinite(peers))):
        return math.inf
    return float(np.max(np.abs(ours - peers)) / max(1.0, float(np.max(np.abs(peers)))))


def quat_error(ours: NDArray[np.float64], peers: NDArray[np.float64]) -> float:
    """The same of quaternions (..., 4), whose sign says nothing."""
    if ours.shape != peers.shape:
        return math.inf
    sign = np.where(np.sum(ours * peers, axis=-1, keepdims=True) < 0.0, -1.0, 1.0)
    return error(sign * ours, peers)


def apart(title: str, level: str, ours: Flight, peers: Flight) -> Apart:
    """Errors of the flight ``ours`` against ``peers``: arrays (records, worlds, drones, k)."""

    def worst(count: int | None) -> float:
        return max((quat_error if key == "quat" else error)(ours[key][:count], peers[key][:count]) for key in RECORDED)

    scale = 1e-6 / cases.TOLERANCE_400.get(level, 1e-6)
    return Apart(title, worst(FIRST), worst(None) * scale)


def compare(
    ours: Worker, peer: Worker, specs: Sequence[cases.Spec], folder: Path, said: Callable[[Apart], None]
) -> list[Apart]:
    """Fly every simulation with both, the peer one ahead: it draws states and commands, we follow.

    Args:
        ours: in float64.
        peer: in float64.
        specs: what to fly.
        folder: for the recorded flights.
        said: told each result as it comes.
    """

    def path(i: int, who: str) -> str:
        return str(folder / f"{i}-{who}.npz")

    def ask(i: int) -> None:
        peer.ask("flight", spec=specs[i], source=None, target=path(i, "peer"), seed=i)

    found = []
    if specs:
        ask(0)
    for i, spec in enumerate(specs):
        peer.answer()
        if i + 1 < len(specs):
            ask(i + 1)
        title = cases.title(spec)
        try:
            ours.do("flight", spec=spec, source=path(i, "peer"), target=path(i, "ours"), seed=i)
            with np.load(path(i, "ours")) as a, np.load(path(i, "peer")) as b:
                result = apart(title, spec["control"], a, b)
        except WorkerError as failure:
            result = Apart(title, math.inf, math.inf, str(failure))
        found.append(result)
        said(result)
    return found
