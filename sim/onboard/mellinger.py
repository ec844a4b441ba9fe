"""The firmware's Mellinger controller on components: position, attitude, body rate and rotor level. Keeps nothing.

After D. Mellinger and V. Kumar, "Minimum snap trajectory generation and control for quadrotors", ICRA 2011, as the
Crazyflie firmware has it (controller_mellinger.c, power_distribution_quadrotor.c, legacy mixing). Attitudes are
compared as quaternions: with q = q_desired^-1 q the firmware's error vee(Rd^T R - R^T Rd) is 4 q_w (q_x, q_y, q_z).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from sim import rotation
from sim.gains import Gains

Components = tuple[Any, ...]

_SIGNS = ((-1.0, -1.0, -1.0), (-1.0, 1.0, 1.0), (1.0, 1.0, -1.0), (1.0, -1.0, 1.0))
"""Of roll, pitch and yaw torque in rotors 0..3 of the X configuration, as the firmware has them."""


class Position(NamedTuple):
    """Coefficients of `position`."""

    mass: Any
    gravity: float
    kp: Components
    kd: Components
    ki: Components
    bound: Components
    rescale: Any  # N out per N in: the firmware's fixed conversion to PWM and back
    dt: float


class Attitude(NamedTuple):
    """Coefficients of `torques`; torques in N per rotor, so that they add to the thrust of one."""

    kp: Components
    kd: Components
    ki: Components
    rate_kd: Components  # 2
    bound: Components
    torque_max: Components
    least: Any  # thrust of a rotor that is not off, N
    most: Any
    pwm_least: Any  # the same before the bounds of thrust, N
    dt: float


class Power(NamedTuple):
    """Coefficients of `rotor_speeds` and of what takes forces apart."""

    least: Any
    most: Any
    arm_inv: Any  # 1/m
    torque_inv: Any  # 1/m
    offset: Any  # rpm = offset + sqrt(base + slope f)
    base: Any
    slope: Any


def _vec(v: Any, n: int = 3) -> Components:
    return tuple(v[..., i] for i in range(n))


def position_coefficients(g: Gains, dt: float) -> Position:
    """Coefficients of the position loop run every ``dt`` seconds."""
    return Position(
        mass=g.mass,
        gravity=9.81,
        kp=_vec(g.pos_kp),
        kd=_vec(g.pos_kd),
        ki=_vec(g.pos_ki),
        bound=_vec(g.pos_err_i_max),
        rescale=g.mass_thrust / g.pwm_max * (4.0 * g.thrust_max),
        dt=dt,
    )


def attitude_coefficients(g: Gains, dt: float) -> Attitude:
    """Coefficients of the attitude and body-rate loops run every ``dt`` seconds."""
    newton = g.thrust_max / g.pwm_max
    unit = (0.5 * newton, 0.5 * newton, newton)  # the legacy mixing halves roll and pitch

    def scaled(v: Any, n: int = 3) -> Components:
        return tuple(v[..., i] * unit[i] for i in range(n))

    pwm_least = g.pwm_min * newton
    return Attitude(
        kp=scaled(g.att_kp),
        kd=scaled(g.att_kd),
        ki=scaled(g.att_ki),
        rate_kd=tuple(k / dt for k in scaled(g.rate_kd, 2)),
        bound=_vec(g.att_err_i_max),
        torque_max=scaled(g.torque_pwm_max),
        least=jnp.clip(pwm_least, g.thrust_min, g.thrust_max),
        most=g.thrust_max,
        pwm_least=pwm_least,
        dt=dt,
    )


def power_coefficients(g: Gains) -> Power:
    """Coefficients of the rotor level."""
    c0, c1, c2 = _vec(g.rpm2thrust)
    return Power(
        least=g.thrust_min,
        most=g.thrust_max,
        arm_inv=1.0 / g.arm_length,
        torque_inv=1.0 / g.thrust2torque,
        offset=-0.5 * c1 / c2,
        base=(c1 * c1 - 4.0 * c0 * c2) / (4.0 * c2 * c2),
        slope=1.0 / c2,
    )


def position(
    c: Position, pos: Components, R: rotation.Matrix, vel: Components, command: Components, integral: Components
) -> tuple[rotation.Quat, Any, Components]:
    """Attitude and thrust that lead to a desired state.

    Args:
        c: coefficients.
        pos: 3, m.
        R: 9, attitude.
        vel: 3, m/s.
        command: 16: pos 3, vel 3, acc 3, quat 4 (only its yaw is used), body rates 3 (not used here).
        integral: 3, of the position error, m s.

    Returns:
        Desired attitude as quaternion, collective thrust in N, the integral.
    """
    error = tuple(a - b for a, b in zip(command[0:3], pos, strict=True))
    integral = tuple(jnp.clip(i + e * c.dt, -b, b) for i, e, b in zip(integral, error, c.bound, strict=True))
    acc = (command[6], command[7], command[8] + c.gravity)
    F = tuple(
        c.mass * acc[k] + c.kp[k] * error[k] + c.kd[k] * (command[3 + k] - vel[k]) + c.ki[k] * integral[k]
        for k in range(3)
    )
    qx, qy, qz, qw = command[9:13]
    cy, sy = rotation.direction(qw * qw + qx * qx - qy * qy - qz * qz, 2.0 * (qx * qy + qw * qz))
    # The axis of thrust seen from the desired heading; where there is no force, upright.
    x, y, z = cy * F[0] + sy * F[1], cy * F[1] - sy * F[0], F[2]
    side = rotation.sqrt(y * y + z * z)
    c_pitch, s_pitch = rotation.direction(side, x)
    c_roll, s_roll = rotation.direction(z, -y)
    (cr, sr), (cp, sp), (ch, sh) = (rotation.half(*pair) for pair in ((c_roll, s_roll), (c_pitch, s_pitch), (cy, sy)))
    # Yaw after roll after pitch: the desired x axis has no component across the heading.
    tilt = (sr * cp, cr * sp, sr * sp, cr * cp)
    attitude = (
        ch * tilt[0] - sh * tilt[1],
        ch * tilt[1] + sh * tilt[0],
        ch * tilt[2] + sh * tilt[3],
        ch * tilt[3] - sh * tilt[2],
    )
    return attitude, c.rescale * (F[0] * R[2] + F[1] * R[5] + F[2] * R[8]), integral


def attitude_error(desired: rotation.Quat, q: rotation.Quat) -> Components:
    """vee(Rd^T R - R^T Rd) of two unit quaternions."""
    x, y, z, w = rotation.multiply((-desired[0], -desired[1], -desired[2], desired[3]), q)
    w4 = 4.0 * w
    return w4 * x, w4 * y, w4 * z


def level_error(R: rotation.Matrix) -> Components:
    """The same error to the level attitude of the present yaw."""
    c, s = rotation.direction(R[0], R[3])
    return R[7] + s * R[2] - c * R[5], c * R[2] + s * R[5] - R[6], c * (R[3] - R[1]) - s * (R[0] + R[4])


def torques(
    c: Attitude, error: Components, rates: Components, memory: tuple[Components, Components], ahead: Components | None
) -> tuple[Components, Components]:
    """Torques, each as thrust that it adds to or takes from a rotor, before the thrust is looked at.

    Args:
        c: coefficients.
        error: 3, of the attitude.
        rates: 6, body rates 3 and desired body rates 3 (the latter 0.0 where there are none), rad/s.
        memory: integral of the error 3, body rates at the previous call 3.
        ahead: 2, change of the desired roll and pitch rates since the previous call; None: none.

    Returns:
        3 torques in N, the integral.
    """
    integral, before = memory
    integral = tuple(jnp.clip(i - e * c.dt, -b, b) for i, e, b in zip(integral, error, c.bound, strict=True))
    turn = [c.kd[k] * (rates[3 + k] - rates[k]) - c.kp[k] * error[k] + c.ki[k] * integral[k] for k in range(3)]
    for k in range(2):
        change = before[k] - rates[k]
        turn[k] = turn[k] + c.rate_kd[k] * (change if ahead is None else change + ahead[k])
    return tuple(jnp.clip(t, -m, m) for t, m in zip(turn, c.torque_max, strict=True)), integral


class Thrust(NamedTuple):
    """What `rotor_forces` needs of a commanded thrust, worked out once per command."""

    share: Any  # of one rotor, N
    flies: Any  # whether torques act
    otherwise: Any  # force of a rotor where they do not


def thrust(c: Attitude, force: Any) -> Thrust:
    """Of a collective thrust in N. Zero is off; below zero the firmware lets the rotors idle."""
    off = (force == 0.0) | ((force < 0.0) & (c.pwm_least <= 0.0))
    return Thrust(0.25 * force, force > 0.0, jnp.where(off, 0.0, c.least))


def rotor_forces(c: Attitude, lift: Thrust, torque: Components) -> Components:
    """Forces of the four rotors in N, as the firmware's PWM limits leave them."""
    roll, pitch, yaw = torque
    right, left = lift.share - roll, lift.share + roll
    up, down = pitch + yaw, pitch - yaw
    mixed = (right - up, right + up, left + down, left - down)
    return tuple(jnp.where(lift.flies, jnp.clip(f, c.least, c.most), lift.otherwise) for f in mixed)


def rotor_speeds(c: Power, forces: Components) -> Components:
    """Speeds in rev/min at which rotors give ``forces`` in N by the firmware's curve."""
    return tuple(c.offset + rotation.sqrt(c.base + c.slope * f) for f in forces)


def shares(c: Power, force_torque: Components) -> Components:
    """Forces of the four rotors in N for a collective thrust in N and torques in Nm, within the bounds of thrust."""
    force, arms = force_torque[0], (c.arm_inv, c.arm_inv, c.torque_inv)
    t = tuple(a * b for a, b in zip(force_torque[1:4], arms, strict=True))
    mixed = (0.25 * (force + s[0] * t[0] + s[1] * t[1] + s[2] * t[2]) for s in _SIGNS)
    return tuple(jnp.where(force == 0.0, 0.0, jnp.clip(f, c.least, c.most)) for f in mixed)


def force_torque(c: Power, forces: Components) -> Components:
    """Collective thrust in N and torques in Nm of four rotor forces: what `shares` takes apart again."""
    arms = (1.0 / c.arm_inv, 1.0 / c.arm_inv, 1.0 / c.torque_inv)
    turns = (sum(s[k] * f for s, f in zip(_SIGNS, forces, strict=True)) * arms[k] for k in range(3))
    return (forces[0] + forces[1] + forces[2] + forces[3], *turns)
