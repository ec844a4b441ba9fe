"""Parameters of the known drones as literals, and checks for anybody's own. Reads no files.

The figures are those published with the peer simulator (PyPI crazyflow 0.4.0, MIT): masses and curves measured on load
cells, inertia and drag identified from flights. Rotor 0 is front right (body x forward, y left), then clockwise seen
from above: rear right, rear left, front left.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from sim.errors import ConfigError
from sim.state import Params

_CRAZYFLIE_MIXING = ((-1.0, -1.0, 1.0, 1.0), (-1.0, 1.0, 1.0, -1.0), (-1.0, 1.0, -1.0, 1.0))

FIRST_PRINCIPLES: dict[str, dict[str, Any]] = {
    "cf2x_L250": {
        "mass": 0.0328,
        "inertia": (1.68e-05, 1.68e-05, 2.98e-05),
        "arm_length": 0.03253,
        "prop_inertia": 3.452e-08,
        "rpm2thrust": (0.0, -5.382196214637237e-07, 2.4582929831265485e-10),
        "rpm2torque": (0.0, 1.410454111996297e-09, 1.4592584373980652e-12),
        "rotor_coef": (7.355623702172756, 0.0, 0.0, 0.00024443862952110715),
        "drag": (-0.014953790232821078, -0.014953790232821078, -0.013900090000325344),
        "thrust_min": 0.012817578393224994,
        "thrust_max": 0.12,
    },
    "cf2x_P250": {
        "mass": 0.0318,
        "inertia": (1.68e-05, 1.68e-05, 2.98e-05),
        "arm_length": 0.03253,
        "prop_inertia": 2.697e-08,
        "rpm2thrust": (0.0, -3.6200226530383495e-07, 1.6060924304100328e-10),
        "rpm2torque": (0.0, -2.2665265829562245e-09, 1.1149485566919186e-12),
        "rotor_coef": (5.172596691828673, 8.14774234381285e-05, 0.0, 0.0002095253491455741),
        "drag": (-0.01351483, -0.01351483, -0.01677452),
        "thrust_min": 0.012817578393224994,
        "thrust_max": 0.12,
    },
    "cf2x_T350": {
        "mass": 0.0379,
        "inertia": (1.57e-05, 1.71e-05, 3.0e-05),
        "arm_length": 0.03253,
        "prop_inertia": 3.893e-08,
        "rpm2thrust": (0.0, -7.167227176573658e-07, 2.9401303690194613e-10),
        "rpm2torque": (0.0, 5.815894847811497e-10, 1.331813874166509e-12),
        "rotor_coef": (11.374753209400291, 0.0, 0.0, 0.00037867688499079635),
        "drag": (-0.015203241038199845, -0.015203241038199845, -0.02204579179094129),
        "thrust_min": 0.01922636758983749,
        "thrust_max": 0.18,
    },
    "cf21B_500": {
        "mass": 0.0434,
        "inertia": (2.5e-05, 2.8e-05, 4.9e-05),
        "arm_length": 0.035355,
        "prop_inertia": 3.893e-08,
        "rpm2thrust": (0.0, -3.133427287299859e-07, 4.407354891648379e-10),
        "rpm2torque": (0.0, 1.65886356219615e-09, 2.4693477924534137e-12),
        "rotor_coef": (13.996001897562685, 0.00011093207920685363, 5.933168530682111, 0.00031951312393561264),
        "drag": (-0.021643637770852733, -0.021643637770852733, -0.02477138502714662),
        "thrust_min": 0.02136263065537499,
        "thrust_max": 0.2,
    },
}

WITHOUT_ROTORS = ("hb_x500",)
"""Drones of which only the abstracted attitude models (the so_rpy family) are identified."""

NAMES = (*FIRST_PRINCIPLES, *WITHOUT_ROTORS)

_SHAPES = {
    "mass": (), "inertia": (3, 3), "arm_length": (), "prop_inertia": (), "rpm2thrust": (3,), "rpm2torque": (3,),
    "rotor_coef": (4,), "mixing": (3, 4), "drag": (3, 3), "thrust_min": (), "thrust_max": (), "rot_damping": (),
    "gravity": (),
}  # fmt: skip


def load(name: str, dtype: Any = None) -> Params:
    """First-principles parameters of a known drone.

    Args:
        name: one of `NAMES`.
        dtype: of every leaf; None takes JAX's present default (float32 unless 64-bit mode is on).

    Raises:
        ConfigError: the name is unknown, or the drone has no first-principles parameters.
    """
    if name in WITHOUT_ROTORS:
        raise ConfigError(
            f"drone {name!r} has only the so_rpy family of models, no first-principles parameters; "
            f"at rotor level there are {', '.join(FIRST_PRINCIPLES)}"
        )
    if name not in FIRST_PRINCIPLES:
        raise ConfigError(f"unknown drone {name!r}; known are {', '.join(NAMES)}")
    dtype = dtype or jax.dtypes.canonicalize_dtype(float)
    literal = dict(FIRST_PRINCIPLES[name], mixing=_CRAZYFLIE_MIXING, rot_damping=0.0, gravity=9.81)
    literal["inertia"] = np.diag(literal["inertia"])
    literal["drag"] = np.diag(literal["drag"])
    return Params(**{key: np.asarray(value, dtype) for key, value in literal.items()})


def check(params: Params) -> Params:
    """``params`` itself if a drone could have them.

    Works on known values (not inside a compiled function); batch axes in front are allowed.

    Raises:
        ConfigError: a parameter has a wrong shape, is not finite or is unphysical; the text names it.
    """
    values = {}
    for name, shape in _SHAPES.items():
        value = np.asarray(getattr(params, name), float)
        if value.shape[value.ndim - len(shape) :] != shape:
            raise ConfigError(
                f"params.{name} has shape {value.shape}, but (..., {', '.join(map(str, shape))}) is expected"
            )
        if not np.all(np.isfinite(value)):
            raise ConfigError(f"params.{name} is {value.tolist()}, but it must be finite")
        values[name] = value
    for name in ("mass", "arm_length", "thrust_max"):
        if np.any(values[name] <= 0.0):
            raise ConfigError(f"params.{name} is {values[name].tolist()}, but it must be positive")
    for name in ("prop_inertia", "thrust_min", "rot_damping", "rotor_coef"):
        if np.any(values[name] < 0.0):
            raise ConfigError(f"params.{name} is {values[name].tolist()}, but it must not be negative")
    if np.any(values["thrust_min"] >= values["thrust_max"]):
        raise ConfigError(
            f"params.thrust_min is {values['thrust_min']} N, but it must be below thrust_max, {values['thrust_max']} N"
        )
    if np.any(values["rpm2thrust"][..., 2] <= 0.0):
        raise ConfigError(
            f"params.rpm2thrust is {values['rpm2thrust'].tolist()}, but its quadratic term must be positive"
        )
    _check_inertia(values["inertia"])
    drag = values["drag"]
    if np.any(np.linalg.eigvalsh(drag + np.swapaxes(drag, -1, -2)) > 0.0):
        raise ConfigError(f"params.drag is {drag.tolist()}, but drag must not push: its entries are negative")
    return params


def _check_inertia(inertia: np.ndarray) -> None:
    if not np.allclose(inertia, np.swapaxes(inertia, -1, -2), rtol=1e-5, atol=0.0):
        raise ConfigError(f"params.inertia is {inertia.tolist()}, but it must be symmetric")
    moments = np.linalg.eigvalsh(inertia)
    if np.any(moments <= 1e-6 * np.abs(moments).max(-1, keepdims=True)):
        raise ConfigError(f"params.inertia is {inertia.tolist()}, singular or negative; its moments must be positive")
    if np.any(moments[..., 0] + moments[..., 1] < (1.0 - 1e-5) * moments[..., 2]):
        raise ConfigError(
            f"params.inertia has principal moments {moments.tolist()}, which no rigid body has: "
            "none may exceed the sum of the other two"
        )
