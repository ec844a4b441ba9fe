"""Rigid body with four rotors, from first principles ("First Principles Modeling" of the Crazyflow paper).

Knows no integrator and no floor. Works on components (see `sim.state`): scalars for one drone, arrays with the batch
last for many; parameters are traced and may be batched the same way.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sim import rotation
from sim.errors import ConfigError
from sim.state import ANG_VEL, QUAT, ROTOR, VEL, Components, Params

RPM2RAD_S = 2.0 * math.pi / 60.0
ZERO3 = (0.0, 0.0, 0.0)


class Coefficients(NamedTuple):
    """`Params` as components, with what depends on parameters alone worked out once.

    An entry that is the Python literal 0.0 is a structural zero: its products are left out of the code.
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


def is_diagonal(params: Params) -> bool:
    """Whether inertia and drag are diagonal as far as can be seen: False for traced values."""
    return all(not isinstance(m, jax.core.Tracer) and _diagonal(np.asarray(m)) for m in (params.inertia, params.drag))


def refuse_off_diagonal(params: Params) -> None:
    """Raise ConfigError where inertia or drag are known not to be diagonal."""
    for name in ("inertia", "drag"):
        m = getattr(params, name)
        if not isinstance(m, jax.core.Tracer) and not _diagonal(np.asarray(m)):
            raise ConfigError(f"params.{name} has off-diagonal entries, but diagonal=True; build without it")


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
    if diagonal is None:
        diagonal = is_diagonal(params)
    elif diagonal:
        refuse_off_diagonal(params)
    J, C = params.inertia, params.drag
    if diagonal:
        inertia = _diagonal_rows(J)
        inverse = tuple(tuple(1.0 / J[..., i, i] if i == j else 0.0 for j in range(3)) for i in range(3))
        drag = _diagonal_rows(C)
    else:
        inertia, drag = _rows(J, 3), _rows(C, 3)
        inverse = _inverse(inertia)
    return Coefficients(
        mass_inv=1.0 / params.mass,
        gravity=params.gravity,
        arm_length=params.arm_length,
        prop_momentum=params.prop_inertia * RPM2RAD_S,
        thrust=tuple(params.rpm2thrust[..., i] for i in range(3)),
        torque=tuple(params.rpm2torque[..., i] for i in range(3)),
        rotor=tuple(params.rotor_coef[..., i] for i in range(4)),
        mixing=_rows(params.mixing, 4),
        inertia=inertia,
        inertia_inv=inverse,
        drag=drag,
        rot_damping=params.rot_damping,
    )


def _rows(m: Any, n: int) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(m[..., i, j] for j in range(n)) for i in range(3))


def _diagonal_rows(m: Any) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(m[..., i, i] if i == j else 0.0 for j in range(3)) for i in range(3))


def _inverse(m: tuple[tuple[Any, ...], ...]) -> tuple[tuple[Any, ...], ...]:
    # Adjugate over determinant: no linear-algebra call, so it differentiates and compiles to plain arithmetic.
    columns = (rotation.cross(m[1], m[2]), rotation.cross(m[2], m[0]), rotation.cross(m[0], m[1]))
    scale = 1.0 / (m[0][0] * columns[0][0] + m[0][1] * columns[0][1] + m[0][2] * columns[0][2])
    return tuple(tuple(columns[j][i] * scale for j in range(3)) for i in range(3))


def _dot(row: tuple[Any, ...], v: tuple[Any, ...]) -> Any:
    terms = [a * b for a, b in zip(row, v, strict=True) if not (isinstance(a, float) and a == 0.0)]
    return sum(terms[1:], terms[0]) if terms else 0.0


def _apply(m: tuple[tuple[Any, ...], ...], v: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_dot(row, v) for row in m)


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
    rpm_dot = tuple(rotor_acceleration(c.rotor, n, n_cmd) for n, n_cmd in zip(rpm, rotor_rpm_cmd, strict=True))
    thrust = tuple(_polynomial(c.thrust, n) for n in rpm)
    # Yaw: aerodynamic counter torque of each rotor and the reaction to its acceleration.
    counter = tuple(_polynomial(c.torque, n) + c.prop_momentum * a for n, a in zip(rpm, rpm_dot, strict=True))
    # Gyroscopic: J_p (w x e_z) times the signed sum of rotor speeds.
    spin = c.prop_momentum * _dot(c.mixing[2], rpm)
    momentum = _apply(c.inertia, omega)
    gyro = rotation.cross(omega, momentum)
    total = (
        c.arm_length * _dot(c.mixing[0], thrust) + spin * omega[1] - gyro[0] + torque[0],
        c.arm_length * _dot(c.mixing[1], thrust) - spin * omega[0] - gyro[1] + torque[1],
        _dot(c.mixing[2], counter) - gyro[2] + torque[2],
    )
    ang_acc = tuple(a - c.rot_damping * w for a, w in zip(_apply(c.inertia_inv, total), omega, strict=True))
    drag = _apply(c.drag, rotation.rotate_back(R, vel))
    push = rotation.rotate(R, (drag[0], drag[1], drag[2] + (thrust[0] + thrust[1] + thrust[2] + thrust[3])))
    acc = (
        c.mass_inv * (push[0] + force[0]),
        c.mass_inv * (push[1] + force[1]),
        c.mass_inv * (push[2] + force[2]) - c.gravity,
    )
    return (*vel, *omega, *acc, *ang_acc, *rpm_dot)
