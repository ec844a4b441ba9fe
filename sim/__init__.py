"""Physics of drones in JAX: differentiable, batched, the same for one drone and a million. No files, clocks, sockets.

Importing it sets XLA flags that small loops on the CPU need, and warns when it is too late for them (`sim.flags`).
"""

import importlib
from typing import Any

from sim import flags

flags.install()

_FACE = {"Sim": "sim.sim"} | dict.fromkeys(("Control", "Drone", "Dynamics", "Integrator"), "sim.modes")


def __getattr__(name: str) -> Any:
    # The face is loaded when it is asked for: whoever wants only the physics does not wait for it.
    if name in _FACE:
        return getattr(importlib.import_module(_FACE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
