"""Refusal of parameters that no drone could have. Works on known values, not inside a compiled function."""

from __future__ import annotations

from dataclasses import fields
from typing import TypeVar

import numpy as np

from sim.errors import ConfigError
from sim.gains import Gains
from sim.state import Params, RpyParams

P = TypeVar("P", Params, RpyParams)

_SHAPES: dict[str, tuple[int, ...]] = {
    "inertia": (3, 3), "drag": (3, 3), "mixing": (3, 4), "rpm2thrust": (3,), "rpm2torque": (3,), "rotor_coef": (4,),
    "rpy_coef": (3,), "rpy_rates_coef": (3,), "cmd_rpy_coef": (3,), "torque_pwm_max": (3,),
    **{f"pos_{k}": (3,) for k in ("kp", "kd", "ki", "err_i_max")}, "rate_kd": (3,),
    **{f"att_{k}": (3,) for k in ("kp", "kd", "ki", "err_i_max")},
}  # fmt: skip
"""Shapes without the batch; what is not named is a scalar."""
_ROTORS = {
    "arm_length": (4,), "prop_inertia": (4,), "rpm2thrust": (4, 3), "rpm2torque": (4, 3), "rotor_coef": (4, 4),
}  # fmt: skip
_POSITIVE = ("mass", "arm_length", "thrust_max", "cmd_f_coef", "thrust_dyn_coef", "pwm_max", "thrust2torque")
_NOT_NEGATIVE = ("prop_inertia", "thrust_min", "rot_damping", "rotor_coef", "pwm_min", "mass_thrust", "cmd_rpy_coef",
                 "torque_pwm_max", *(k for k in _SHAPES if k.startswith(("pos_", "att_"))), "rate_kd")  # fmt: skip


def check(params: P) -> P:
    """``params`` itself if a drone could have them; batch axes in front are allowed.

    Raises:
        ConfigError: a parameter has a wrong shape, is not finite or is unphysical; the text names it.
    """
    values = _values(params, "params", _SHAPES)
    _check_inertia(values["inertia"])
    if (drag := values.get("drag")) is not None and np.any(np.linalg.eigvalsh(drag + drag.swapaxes(-1, -2)) > 0.0):
        raise ConfigError(f"params.drag is {drag.tolist()}, but drag must not push: its entries are negative")
    for name in ("rpy_coef", "rpy_rates_coef"):
        if name in values and np.any(values[name] >= 0.0):
            raise ConfigError(f"params.{name} is {values[name].tolist()}, but a stable attitude needs it negative")
    if isinstance(params, Params) and params.rotors is not None:
        _values(params.rotors, "params.rotors", _ROTORS)
    if params.onboard is not None:
        _values(params.onboard, "params.onboard", _SHAPES)
    return params


def _values(params: Params | RpyParams | Gains, where: str, shapes: dict) -> dict[str, np.ndarray]:
    values = {}
    for name in (f.name for f in fields(params)):
        if name in ("effects", "rotors", "onboard") or getattr(params, name) is None:
            continue
        shape = shapes.get(name, ())
        value = np.asarray(getattr(params, name), float)
        if value.shape[value.ndim - len(shape) :] != shape:
            raise ConfigError(
                f"{where}.{name} has shape {value.shape}, but (..., {', '.join(map(str, shape))}) is expected"
            )
        if not np.all(np.isfinite(value)):
            raise ConfigError(f"{where}.{name} is {value.tolist()}, but it must be finite")
        values[name] = value
    for name, value in values.items():
        if name in _POSITIVE and np.any(value <= 0.0):
            raise ConfigError(f"{where}.{name} is {value.tolist()}, but it must be positive")
        if name in _NOT_NEGATIVE and np.any(value < 0.0):
            raise ConfigError(f"{where}.{name} is {value.tolist()}, but it must not be negative")
    for least, greatest in (("thrust_min", "thrust_max"), ("pwm_min", "pwm_max")):
        if least in values and np.any(values[least] >= values[greatest]):
            raise ConfigError(
                f"{where}.{least} is {values[least]}, but it must be below {greatest}, {values[greatest]}"
            )
    if "rpm2thrust" in values and np.any(values["rpm2thrust"][..., 2] <= 0.0):
        raise ConfigError(
            f"{where}.rpm2thrust is {values['rpm2thrust'].tolist()}, but its quadratic term must be positive"
        )
    return values


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
