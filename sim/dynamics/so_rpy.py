"""Attitude as three fitted second-order lags: the so_rpy family ("Abstracted Physics Modeling" of the Crazyflow paper).

Three models by what `RpyParams` holds: so_rpy, so_rpy_rotor (thrust lags its command), so_rpy_rotor_drag (and the air
drags). The command is roll, pitch, yaw in rad and collective thrust in N. The four components that hold rotor speeds
elsewhere hold the collective thrust in N, all of them follow the command, and the first acts on the body. Euler angles
are undefined at a pitch of a quarter turn; gradients stay finite there, the model means little.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from sim import rotation
from sim.dynamics.first_principles import ZERO3, apply, inverse, rows, sees_diagonal
from sim.state import ANG_VEL, QUAT, ROTOR, VEL, Components, RpyParams

_MIN_COS = 1e-6


class Coefficients(NamedTuple):
    """`RpyParams` as components, with what depends on parameters alone worked out once."""

    gravity: Any
    acc_offset: Any  # m/s^2
    acc_gain: Any  # m/s^2 per N
    mass_inv: Any
    thrust_rate: Any  # 1/s, None without lag
    rpy: tuple[Any, ...]
    rates: tuple[Any, ...]
    cmd: tuple[Any, ...]
    inertia_inv: tuple[tuple[Any, ...], ...]  # 3 x 3
    drag: tuple[tuple[Any, ...], ...] | None  # 3 x 3, already per mass


def coefficients(params: RpyParams, *, diagonal: bool | None = None) -> Coefficients:
    """The coefficients of ``params``; see `sim.dynamics.first_principles.coefficients`."""
    diagonal = sees_diagonal(params, diagonal)
    mass_inv = 1.0 / params.mass
    drag = None
    if params.drag is not None:
        drag = tuple(tuple(v if _absent(v) else v * mass_inv for v in row) for row in rows(params.drag, diagonal))
    return Coefficients(
        gravity=params.gravity,
        acc_offset=params.acc_coef * mass_inv,
        acc_gain=params.cmd_f_coef * mass_inv,
        mass_inv=mass_inv,
        thrust_rate=params.thrust_dyn_coef,
        rpy=tuple(params.rpy_coef[..., i] for i in range(3)),
        rates=tuple(params.rpy_rates_coef[..., i] for i in range(3)),
        cmd=tuple(params.cmd_rpy_coef[..., i] for i in range(3)),
        inertia_inv=inverse(params.inertia, diagonal),
        drag=drag,
    )


def _absent(v: Any) -> bool:
    return isinstance(v, float) and v == 0.0


def derivative(
    params: RpyParams | Coefficients,
    x: Components,
    rpyt_cmd: tuple[Any, ...],
    force: tuple[Any, ...] = ZERO3,
    torque: tuple[Any, ...] = ZERO3,
) -> tuple[Any, ...]:
    """How the state changes.

    Args:
        params: parameters, or their `coefficients`.
        x: 17 components of the state; the last four are thrusts in N.
        rpyt_cmd: 4, roll, pitch, yaw in rad and collective thrust in N.
        force: 3, further force on the drone, world frame, N.
        torque: 3, further torque on the drone, body frame, Nm.

    Returns:
        16 components as `sim.dynamics.first_principles.derivative`; the last four in N/s.
    """
    c = params if isinstance(params, Coefficients) else coefficients(params)
    vel, omega, thrust = x[VEL], x[ANG_VEL], x[ROTOR]
    if c.thrust_rate is None:
        thrust_dot, acting = tuple(jnp.zeros_like(f) for f in thrust), rpyt_cmd[3]
    else:
        thrust_dot, acting = tuple(c.thrust_rate * (rpyt_cmd[3] - f) for f in thrust), thrust[0]
    R = rotation.matrix(x[QUAT])
    ang_acc = _turning(c, R, omega, rpyt_cmd)
    if torque is not ZERO3:
        ang_acc = tuple(a + b for a, b in zip(ang_acc, apply(c.inertia_inv, torque), strict=True))
    lift = c.acc_offset + c.acc_gain * acting
    if c.drag is None:
        acc = (R[2] * lift, R[5] * lift, R[8] * lift)
    else:
        drag = apply(c.drag, rotation.rotate_back(R, vel))
        acc = rotation.rotate(R, (drag[0], drag[1], drag[2] + lift))
    if force is not ZERO3:
        acc = tuple(a + c.mass_inv * f for a, f in zip(acc, force, strict=True))
    return (*vel, *omega, acc[0], acc[1], acc[2] - c.gravity, *ang_acc, *thrust_dot)


def _turning(c: Coefficients, R: rotation.Matrix, omega: Components, rpyt_cmd: Components) -> Components:
    # Sines and cosines of roll and pitch stand in R; only the angles themselves need an arc tangent.
    p, q, r = omega
    s_p, c_p = -R[6], jnp.maximum(rotation.sqrt(R[7] * R[7] + R[8] * R[8]), _MIN_COS)
    sec = 1.0 / c_p
    s_r, c_r = R[7] * sec, R[8] * sec
    angles = (rotation.angle(R[7], R[8]), rotation.angle(s_p, c_p), rotation.angle(R[3], R[0]))
    turn = s_r * q + c_r * r
    rates = (p + turn * (s_p * sec), c_r * q - s_r * r, turn * sec)
    dd = tuple(
        a * angle + b * rate + k * cmd
        for a, angle, b, rate, k, cmd in zip(c.rpy, angles, c.rates, rates, c.cmd, rpyt_cmd[:3], strict=True)
    )
    # Body rates are W(roll, pitch) times the rates of the angles; their derivative is dW/dt rates + W dd.
    across = rates[0] * c_p * rates[2]
    down = s_p * rates[1] * rates[2]
    side = c_p * dd[2] - down
    return (
        dd[0] - s_p * dd[2] - c_p * rates[1] * rates[2],
        c_r * (dd[1] + across) + s_r * (side - rates[0] * rates[1]),
        c_r * (side - rates[0] * rates[1]) - s_r * (dd[1] + across),
    )
