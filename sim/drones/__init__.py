"""Parameters of the known drones, of anybody's own, and checks for both. Reads no files.

The figures are those published with the peer simulator (PyPI crazyflow 0.4.0, MIT): masses and curves measured on load
cells, inertia and drag identified from flights. Rotor 0 is front right (body x forward, y left), then clockwise seen
from above: rear right, rear left, front left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

import jax
import numpy as np

from sim.drones.attitude_level import FITTED, SHARED
from sim.drones.check import check
from sim.drones.onboard_gains import GAINS
from sim.drones.rotor_level import CRAZYFLIE_MIXING, FIRST_PRINCIPLES
from sim.errors import ConfigError
from sim.gains import Gains
from sim.state import Params, RpyParams

WITHOUT_ROTORS = ("hb_x500",)
"""Drones of which only the abstracted attitude models (the so_rpy family) are identified."""

NAMES = (*FIRST_PRINCIPLES, *WITHOUT_ROTORS)
DYNAMICS = ("first_principles", *FITTED)

__all__ = ["DYNAMICS", "FIRST_PRINCIPLES", "NAMES", "WITHOUT_ROTORS", "check", "gains", "load"]


def load(
    drone: str | Mapping[str, Any],
    dtype: Any = None,
    *,
    dynamics: str = "first_principles",
    onboard: bool = False,
) -> Params | RpyParams:
    """Parameters of a drone.

    Args:
        drone: one of `NAMES`, or a mapping with the fields of `Params` (`RpyParams` in the so_rpy family); ``inertia``
            and ``drag`` may be given as diagonals, ``mixing`` left out for a Crazyflie's; a mapping ``onboard`` has the
            fields of `sim.gains.Gains`.
        dtype: of every leaf; None takes JAX's present default (float32 unless 64-bit mode is on).
        dynamics: one of `DYNAMICS`.
        onboard: with the gains of the onboard cascade, which control above the model's own level needs.

    Raises:
        ConfigError: the name is unknown, the drone has no parameters for these dynamics, or a mapping is unphysical.
    """
    if dynamics not in DYNAMICS:
        raise ConfigError(f"unknown dynamics {dynamics!r}; known are {', '.join(DYNAMICS)}")
    if isinstance(drone, Mapping):
        literal = dict(drone)
    else:
        literal = _literal(drone, dynamics)
        literal["onboard"] = GAINS[drone]
    own = literal.pop("onboard", None)
    if onboard and own is None:
        raise ConfigError(f"drone has no entry 'onboard', but onboard=True needs {', '.join(_names(Gains))}")
    if dynamics == "first_principles":
        literal.setdefault("mixing", CRAZYFLIE_MIXING)
        literal.setdefault("rot_damping", 0.0)
    literal.setdefault("gravity", 9.81)
    dtype = dtype or jax.dtypes.canonicalize_dtype(float)
    cls = Params if dynamics == "first_principles" else RpyParams
    required = FITTED[dynamics]["cf21B_500"] if cls is RpyParams else {}
    values = _arrays(literal, cls, "drone", dtype, {*required})
    params = cls(**values, onboard=_arrays_gains(own, dtype) if onboard else None)
    return check(params) if isinstance(drone, Mapping) else params


def gains(name: str, dtype: Any = None) -> Gains:
    """Gains of the onboard cascade of a known drone; see `load` for errors."""
    if name not in GAINS:
        raise ConfigError(f"unknown drone {name!r}; known are {', '.join(NAMES)}")
    return _arrays_gains(GAINS[name], dtype or jax.dtypes.canonicalize_dtype(float))


def _literal(name: str, dynamics: str) -> dict[str, Any]:
    if name not in NAMES:
        raise ConfigError(f"unknown drone {name!r}; known are {', '.join(NAMES)}")
    if dynamics != "first_principles":
        return {**SHARED[name], **FITTED[dynamics][name]}
    if name in WITHOUT_ROTORS:
        raise ConfigError(
            f"drone {name!r} has only the so_rpy family of models, no first-principles parameters; "
            f"at rotor level there are {', '.join(FIRST_PRINCIPLES)}"
        )
    return dict(FIRST_PRINCIPLES[name])


def _names(cls: type) -> list[str]:
    return [f.name for f in fields(cls) if f.name not in ("effects", "rotors", "onboard")]


def _arrays(literal: Mapping[str, Any], cls: type, what: str, dtype: Any, required: set[str]) -> dict[str, Any]:
    known = _names(cls)
    optional = {f.name for f in fields(cls) if f.default is not MISSING or f.default_factory is not MISSING}
    unknown, missing = set(literal) - set(known), (set(known) - optional | required) - set(literal)
    if unknown or missing:
        raise ConfigError(
            f"{what} lacks {sorted(missing)} and has unknown {sorted(unknown)}; {cls.__name__} has {', '.join(known)}"
        )
    values = {}
    for key, value in literal.items():
        try:
            array = np.asarray(value, dtype)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{what}.{key} is {value!r}, but numbers are needed") from error
        diagonal = key in ("inertia", "drag") and array.shape == (3,)
        values[key] = np.diag(array) if diagonal else array
    return values


def _arrays_gains(literal: Mapping[str, Any], dtype: Any) -> Gains:
    return Gains(**_arrays(literal, Gains, "onboard", dtype, set()))
