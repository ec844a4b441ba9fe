"""Rigid body with four rotors, from first principles ("First Principles Modeling" of the Crazyflow paper).

Knows no integrator and no floor. Works on components (see `sim.state`): scalars for one drone, arrays with the batch
last for many; parameters are traced and may be batched the same way.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from sim import rotation
from sim.errors import ConfigError
from sim.state import ANG_VEL, QUAT, ROTOR, VEL, Components, Params, RpyParams

RPM2RAD_S = 2.0 * math.pi / 60.0
ZERO3 = (0.0, 0.0, 0.0)


class Coefficients(NamedTuple):
    """`Params` as components, with what depends on parameters alone worked out once.

    An entry that is the Python literal 0.0 is a structural zero: its products are left out of the code. Entries of
    rotors are the same for all, or four of them (a tuple) where `Params.rotors` tells them apart.
    """

    mass_inv: Any
    gravity: Any
    arm_length: Any
    prop_momentum: Any  # prop_inertia in kg m^2 rad/rev * min/s: times rpm gives N m s
    thrust: tuple[Any, ...]  # 3
    torque: tuple[Any, ...]  # 3
    rotor: tuple[Any, ...]  # 4
    mixing: tuple[tuple[Any, ...], ...]  # 3 x 4
    inertia: tuple[tuple[Any, ...], ...]  # 3 x 3
    inertia_inv: tuple[tuple[Any, ...], ...]  # 3 x 3
    drag: tuple[tuple[Any, ...], ...]  # 3 x 3
    rot_damping: Any


def is_diagonal(params: Params | RpyParams) -> bool:
    """Whether inertia and drag are diagonal as far as can be seen at once: only numpy arrays are looked into."""
    given = (m for m in (params.inertia, params.drag) if m is not None)
    return all(isinstance(m, np.ndarray) and _diagonal(m) for m in given)


def sees_diagonal(params: Params | RpyParams, diagonal: bool | None) -> bool:
    """``diagonal``, or where it is None what `is_diagonal` finds.

    Raises:
        ConfigError: it was asked for, and inertia or drag are seen not to be diagonal.
    """
    if diagonal is None:
        return is_diagonal(params)
    for name in ("inertia", "drag") if diagonal else ():
        m = getattr(params, name)
        if isinstance(m, np.ndarray) and not _diagonal(m):
            raise ConfigError(f"params.{name} has off-diagonal entries, but diagonal=True; build without it")
    return diagonal


def _diagonal(m: np.ndarray) -> bool:
    return not np.any(m[..., ~np.eye(3, dtype=bool)])


def coefficients(params: Params, *, diagonal: bool | None = None) -> Coefficients:
    """The coefficients of ``params``.

    Args:
        params: parameters; batch axes, if any, must broadcast with the batch of the components.
        diagonal: leave out the off-diagonal terms of inertia and drag. None finds out where values are known and
            keeps the terms where they are traced.

    Raises:
        ConfigError: ``diagonal`` was asked for and the known values are not.
    """
    diagonal = sees_diagonal(params, diagonal)
    inertia = rows(params.inertia, diagonal)
    inertia_inv, drag = inverse(params.inertia, diagonal), rows(params.drag, diagonal)
    each = params if params.rotors is None else params.rotors
    return Coefficients(
        mass_inv=1.0 / params.mass,
        gravity=params.gravity,
        arm_length=_entries(each.arm_length, 4, params.rotors is not None),
        prop_momentum=_entries(each.prop_inertia * RPM2RAD_S, 4, params.rotors is not None),
        thrust=_curves(each.rpm2thrust, 3, params.rotors is not None),
        torque=_curves(each.rpm2torque, 3, params.rotors is not None),
        rotor=_curves(each.rotor_coef, 4, params.rotors is not None),
        mixing=tuple(tuple(params.mixing[..., i, j] for j in range(4)) for i in range(3)),
        inertia=inertia,
        inertia_inv=inertia_inv,
        drag=drag,
        rot_damping=params.rot_damping,
    )


def _entries(v: Any, n: int, split: bool) -> Any:
    return tuple(v[..., i] for i in range(n)) if split else v


def _curves(v: Any, n: int, split: bool) -> tuple[Any, ...]:
    if split:
        return tuple(tuple(v[..., rotor, i] for i in range(n)) for rotor in range(4))
    return tuple(v[..., i] for i in range(n))


def _each(entry: Any) -> tuple[Any, ...]:
    # Curves are tuples already: those of four rotors are tuples of tuples.
    return entry if isinstance(entry, tuple) and len(entry) == 4 and isinstance(entry[0], tuple) else (entry,) * 4


def rows(m: Any, diagonal: bool) -> tuple[tuple[Any, ...], ...]:
    """Entries of matrices (..., 3, 3); structural zeros off the diagonal where it is known to be all there is."""
    return tuple(tuple(0.0 if diagonal and i != j else m[..., i, j] for j in range(3)) for i in range(3))


def inverse(m: Any, diagonal: bool) -> tuple[tuple[Any, ...], ...]:
    """Entries of the inverse of (..., 3, 3): adjugate over determinant, plain arithmetic that differentiates."""
    if diagonal:
        return tuple(tuple(1.0 / m[..., i, i] if i == j else 0.0 for j in range(3)) for i in range(3))
    a, b, c = rows(m, diagonal)
    columns = (rotation.cross(b, c), rotation.cross(c, a), rotation.cross(a, b))
    scale = 1.0 / (a[0] * columns[0][0] + a[1] * columns[0][1] + a[2] * columns[0][2])
    return tuple(tuple(columns[j][i] * scale for j in range(3)) for i in range(3))


def _dot(row: tuple[Any, ...], v: tuple[Any, ...]) -> Any:
    terms = [a * b for a, b in zip(row, v, strict=True) if not (isinstance(a, float) and a == 0.0)]
    return sum(terms[1:], terms[0]) if terms else 0.0


def apply(m: tuple[tuple[Any, ...], ...], v: tuple[Any, ...]) -> tuple[Any, ...]:
    """Product of matrix and vector; terms with structural zeros are left out."""
    return tuple(_dot(row, v) for row in m)


def _rotors(entry: Any) -> tuple[Any, ...]:
    return entry if isinstance(entry, tuple) else (entry,) * 4


def _weighed(weight: Any, row: tuple[Any, ...], v: tuple[Any, ...]) -> Any:
    # A weight common to all rotors is applied once.
    if isinstance(weight, tuple):
        return _dot(row, tuple(w * a for w, a in zip(weight, v, strict=True)))
    return weight * _dot(row, v)


def _polynomial(c: tuple[Any, ...], x: Any) -> Any:
    return c[0] + x * (c[1] + x * c[2])


def rotor_acceleration(rotor_coef: tuple[Any, ...], rotor_rpm: Any, rotor_rpm_cmd: Any) -> Any:
    """dOmega/dt in rpm/s of one rotor: c_v (cmd - rpm) + c_d (cmd^2 - rpm^2), with one pair for rise, one for fall."""
    rise = rotor_rpm_cmd >= rotor_rpm
    linear = jnp.where(rise, rotor_coef[0], rotor_coef[2])
    quadratic = jnp.where(rise, rotor_coef[1], rotor_coef[3])
    return (rotor_rpm_cmd - rotor_rpm) * (linear + quadratic * (rotor_rpm_cmd + rotor_rpm))


def derivative(
    params: Params | Coefficients,
    x: Components,
    rotor_rpm_cmd: tuple[Any, ...],
    force: tuple[Any, ...] = ZERO3,
    torque: tuple[Any, ...] = ZERO3,
) -> tuple[Any, ...]:
    """How the state changes.

    Args:
        params: parameters, or their `coefficients`.
        x: 17 components of the state.
        rotor_rpm_cmd: 4 commanded rotor speeds, rev/min.
        force: 3, further force on the drone, world frame, N.
        torque: 3, further torque on the drone, body frame, Nm.

    Returns:
        16 components: vel 3 (m/s), ang_vel 3 (body, rad/s), acc 3 (world, m/s^2), ang_acc 3 (body, rad/s^2), rotor
        acceleration 4 (rpm/s).
    """
    c = params if isinstance(params, Coefficients) else coefficients(params)
    vel, omega, rpm = x[VEL], x[ANG_VEL], x[ROTOR]
    R = rotation.matrix(x[QUAT])
    rpm_dot = tuple(
        rotor_acceleration(k, n, n_cmd) for k, n, n_cmd in zip(_each(c.rotor), rpm, rotor_rpm_cmd, strict=True)
    )
    thrust = tuple(_polynomial(k, n) for k, n in zip(_each(c.thrust), rpm, strict=True))
    # Yaw: aerodynamic counter torque of each rotor and the reaction to its acceleration. Gyroscopic: J_p (w x e_z)
    # times the signed sum of rotor speeds.
    curves, weights = _each(c.torque), _rotors(c.prop_momentum)
    counter = tuple(_polynomial(k, n) + m * a for k, n, m, a in zip(curves, rpm, weights, rpm_dot, strict=True))
    spin = _weighed(c.prop_momentum, c.mixing[2], rpm)
    gyro = rotation.cross(omega, apply(c.inertia, omega))
    total = (
        _weighed(c.arm_length, c.mixing[0], thrust) + spin * omega[1] - gyro[0] + torque[0],
        _weighed(c.arm_length, c.mixing[1], thrust) - spin * omega[0] - gyro[1] + torque[1],
        _dot(c.mixing[2], counter) - gyro[2] + torque[2],
    )
    ang_acc = tuple(a - c.rot_damping * w for a, w in zip(apply(c.inertia_inv, total), omega, strict=True))
    drag = apply(c.drag, rotation.rotate_back(R, vel))
    push = rotation.rotate(R, (drag[0], drag[1], drag[2] + (thrust[0] + thrust[1] + thrust[2] + thrust[3])))
    acc = (
        c.mass_inv * (push[0] + force[0]),
        c.mass_inv * (push[1] + force[1]),
        c.mass_inv * (push[2] + force[2]) - c.gravity,
    )
    return (*vel, *omega, *acc, *ang_acc, *rpm_dot)
