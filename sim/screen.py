"""Looks at parameters as they are given to a `Sim`: refuses what no drone could have, sees what is diagonal.

One small compiled function reads them where they are, so that a million drones cost a millisecond. It looks once at
each set of arrays, not at every step.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sim.data import AttitudeParams, RotorParams
from sim.errors import ConfigError, ShapeError

_SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "mass": ((1,),), "L": ((1,), (4,)), "prop_inertia": ((1,), (4,)), "gravity_vec": ((3,),), "J": ((3, 3),),
    "rpm2thrust": ((1, 3), (4, 3)), "rpm2torque": ((1, 3), (4, 3)), "mixing_matrix": ((3, 4),),
    "drag_matrix": ((3, 3),), "rotor_dyn_coef": ((1, 4), (4, 4)), "rot_damping": ((1,),), "acc_coef": ((1,),),
    "cmd_f_coef": ((1,),), "rpy_coef": ((3,),), "rpy_rates_coef": ((3,),), "cmd_rpy_coef": ((3,),),
    "thrust_dyn_coef": ((1,),),
}  # fmt: skip
_POSITIVE = ("mass", "L", "cmd_f_coef", "thrust_dyn_coef")
_NOT_NEGATIVE = ("prop_inertia", "rotor_dyn_coef", "rot_damping")
_OFF = ~np.eye(3, dtype=bool)


def _fields(params: RotorParams | AttitudeParams) -> dict[str, Any]:
    return {name: v for name in _SHAPES if (v := getattr(params, name, None)) is not None}


@jax.jit
def _faults(given: dict[str, jax.Array]) -> tuple[dict[str, jax.Array], jax.Array]:
    """Whether each parameter is at fault, and whether inertia and drag are diagonal."""
    faults = {f"{name} must be finite": ~jnp.isfinite(v).all() for name, v in given.items()}
    for name in (n for n in _POSITIVE if n in given):
        faults[f"{name} must be positive"] = (given[name] <= 0.0).any()
    for name in (n for n in _NOT_NEGATIVE if n in given):
        faults[f"{name} must not be negative"] = (given[name] < 0.0).any()
    if "rpm2thrust" in given:
        faults["rpm2thrust must have a positive quadratic term"] = (given["rpm2thrust"][..., 2] <= 0.0).any()
    J = given["J"]
    size = jnp.abs(J).max(axis=(-2, -1))
    symmetric = (jnp.abs(J - jnp.swapaxes(J, -1, -2)).max(axis=(-2, -1)) <= 1e-5 * size).all()
    faults["J must be symmetric"] = ~symmetric
    minor = J[..., 0, 0] * J[..., 1, 1] - J[..., 0, 1] * J[..., 1, 0]
    cofactors = (
        J[..., 1, 1] * J[..., 2, 2] - J[..., 1, 2] * J[..., 2, 1],
        J[..., 1, 2] * J[..., 2, 0] - J[..., 1, 0] * J[..., 2, 2],
        J[..., 1, 0] * J[..., 2, 1] - J[..., 1, 1] * J[..., 2, 0],
    )
    whole = sum(J[..., 0, i] * c for i, c in enumerate(cofactors)) / size
    area = 1e-6 * size * size
    faults["J must have positive moments, it is singular or negative"] = ~(
        (J[..., 0, 0] > 1e-6 * size) & (minor > area) & (whole > area)
    ).all()
    straight = [(jnp.where(_OFF, given[n], 0.0) == 0.0).all() for n in ("J", "drag_matrix") if n in given]
    return faults, jnp.stack(straight).all()


def _known(arrays: Any) -> bool:
    return all(not isinstance(v, jax.core.Tracer) and getattr(v, "is_fully_addressable", True) for v in arrays)


def check(params: RotorParams | AttitudeParams) -> bool:
    """Whether inertia and drag are diagonal; False where values are not known.

    Raises:
        ShapeError: a parameter has a wrong shape.
        ConfigError: a parameter is not finite or unphysical; the text names it.
    """
    given = _fields(params)
    for name, value in given.items():
        shapes = _SHAPES[name]
        if jnp.ndim(value) < len(shapes[0]) or jnp.shape(value)[jnp.ndim(value) - len(shapes[0]) :] not in shapes:
            wanted = " or ".join(f"(..., {', '.join(map(str, shape))})" for shape in shapes)
            raise ShapeError(f"params.{name} has shape {jnp.shape(value)}, but {wanted} is expected")
    if not _known(given.values()):
        return False
    faults, straight = jax.device_get(_faults(given))
    for text, fault in faults.items():
        if fault:
            name, _, need = text.partition(" ")
            shown = np.array2string(np.asarray(given[name]), threshold=12, edgeitems=1).replace("\n", "")
            raise ConfigError(f"params.{name} is {shown}, but it {need}")
    return bool(straight)


def diagonal(params: RotorParams | AttitudeParams) -> bool:
    """Whether inertia and drag are diagonal; False where values are not known."""
    given = _fields(params)
    return _known(given.values()) and bool(_faults(given)[1])


class Screen:
    """`check` with a memory of the arrays that it saw last."""

    def __init__(self) -> None:
        self._seen: list[Any] = []
        self._diagonal = False

    def __call__(self, params: RotorParams | AttitudeParams) -> bool:
        """Whether inertia and drag are diagonal; raises as `check`."""
        given = list(_fields(params).values())
        if len(given) != len(self._seen) or any(a is not b for a, b in zip(given, self._seen, strict=True)):
            self._diagonal = check(params)
            self._seen = given
        return self._diagonal
