"""What `bench sim` measures: figures, targets and the work behind each. Runs nothing."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Literal

Spec = dict[str, Any]

WORLDS = (1, 32, 1024, 16384, 65536)
GRADIENT_WORLDS = (1, 32, 1024, 16384)
STEPS = 50
"""Of a call: a tenth of a second of flight."""
DRONE = "cf21B_500"
SO_RPY = ("so_rpy", "so_rpy_rotor", "so_rpy_rotor_drag")
ROTOR_DRONES = ("cf2x_L250", "cf2x_P250", "cf2x_T350", "cf21B_500")
DRONES = (*ROTOR_DRONES, "hb_x500")
INTEGRATORS = ("euler", "symplectic_euler", "rk4")
LEVELS = ("state", "attitude", "body_rate", "force_torque", "rotor_vel")


@dataclass(frozen=True)
class Case:
    """One figure that is a ratio of times.

    Attributes:
        name: of the figure.
        spec: of the simulation, as the worker takes it.
        steps: of a call.
        op: ``>=``: how much faster than the peer; ``<=``: share of the peer's time.
        target: of the ratio.
    """

    name: str
    spec: Spec
    steps: int
    op: Literal["<=", ">="]
    target: float


def _spec(control: str, worlds: int, drones: int = 1, dynamics: str = "first_principles", **more: Any) -> Spec:
    shape = {"worlds": worlds, "drones": drones, "drone": DRONE}
    return {**shape, "dynamics": dynamics, "control": control, "integrator": "euler", **more}


def speed() -> list[Case]:
    """All cases, in the order of the report."""
    found = [Case(f"rotor_vel@{n}", _spec("rotor_vel", n), STEPS, ">=", 8.0 if n <= 32 else 12.0) for n in WORLDS]
    for control in ("attitude", "state"):
        found += [Case(f"{control}@{n}", _spec(control, n), STEPS, ">=", 8.0) for n in WORLDS]
    abstracted = "so_rpy_rotor_drag"
    found += [Case(f"{abstracted}@{n}", _spec("attitude", n, dynamics=abstracted), STEPS, ">=", 8.0) for n in WORLDS]
    found += [Case(f"gradient10@{n}", _spec("rotor_vel", n, gradient=True), 1, ">=", 8.0) for n in GRADIENT_WORLDS]
    # A swarm is told where to be, so its cascade runs whole.
    found += [Case(f"swarm@{n}x{m}", _spec("state", n, m), STEPS, ">=", 8.0) for n, m in ((1, 1000), (64, 64))]
    found.append(Case("dispatch@1", _spec("attitude", 1), 1, "<=", 1.0))
    return found


QUICK = ("rotor_vel@1", "rotor_vel@1024", "attitude@1024", "gradient10@1024", "dispatch@1", "state@1024")
"""What fits a minute, the most telling first."""

MEMORY = _spec("attitude", 1024), _spec("attitude", 65536)
"""The default level at two sizes; what a world costs is the difference."""

TOLERANCE_400 = {"state": 1e-5}
"""Over 400 steps; 1e-6 where nothing is said. The cascade from a position feeds rounding back through its integrals."""


def pairs(dynamics: str) -> tuple[str, ...]:
    """Control levels that a model of the dynamics takes."""
    return LEVELS if dynamics == "first_principles" else ("state", "attitude")


def agreement() -> list[Spec]:
    """Every drone, dynamics, level and integrator that goes together: 4 worlds of one drone."""
    found = []
    for drone, dynamics in itertools.product(DRONES, ("first_principles", *SO_RPY)):
        if dynamics == "first_principles" and drone not in ROTOR_DRONES:
            continue
        for control, integrator in itertools.product(pairs(dynamics), INTEGRATORS):
            found.append(_spec(control, 4, dynamics=dynamics) | {"drone": drone, "integrator": integrator})
    return found


def quick_agreement() -> list[Spec]:
    """One of each integrator and of each level, on different drones."""
    wanted = {
        ("cf21B_500", "first_principles", "rotor_vel", "euler"),
        ("cf2x_L250", "first_principles", "attitude", "rk4"),
        ("cf2x_T350", "first_principles", "state", "symplectic_euler"),
        ("hb_x500", "so_rpy_rotor_drag", "attitude", "euler"),
    }
    return [s for s in agreement() if (s["drone"], s["dynamics"], s["control"], s["integrator"]) in wanted]


def title(spec: Spec) -> str:
    """Of a simulation of `agreement`, for people and files."""
    return "-".join(str(spec[key]) for key in ("drone", "dynamics", "control", "integrator"))
