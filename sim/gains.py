"""Gains of the onboard cascade and what the firmware believes of its drone. Literals are in `sim.drones`."""

from __future__ import annotations

from dataclasses import dataclass

import jax


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Gains:
    """Of the firmware's Mellinger controller; every leaf may carry batch axes in front and is traced.

    Torques are in the firmware's units (PWM). The mixing of four rotors in X is the firmware's and fixed.
    """

    mass: jax.Array  # (...)
    """As the firmware believes, kg."""
    pos_kp: jax.Array  # (..., 3)
    """By position error, N/m."""
    pos_kd: jax.Array  # (..., 3)
    """By velocity error, N s/m."""
    pos_ki: jax.Array  # (..., 3)
    """By integral of the position error, N/(m s)."""
    pos_err_i_max: jax.Array  # (..., 3)
    """Bound of that integral, m s."""
    att_kp: jax.Array  # (..., 3)
    """Torque by attitude error (twice the sine of the angle), PWM."""
    att_kd: jax.Array  # (..., 3)
    """Torque by body rate error, PWM s/rad."""
    att_ki: jax.Array  # (..., 3)
    """Torque by integral of the attitude error, PWM/s."""
    rate_kd: jax.Array  # (..., 3)
    """Torque by angular acceleration error, PWM s^2/rad; yaw is not used, as in the firmware."""
    att_err_i_max: jax.Array  # (..., 3)
    """Bound of the attitude integral, s."""
    mass_thrust: jax.Array  # (...)
    """PWM per N that the position loop counts with, all four rotors taken as one."""
    pwm_min: jax.Array  # (...)
    """Least PWM of a rotor that is not off."""
    pwm_max: jax.Array  # (...)
    """PWM of a rotor at ``thrust_max``."""
    torque_pwm_max: jax.Array  # (..., 3)
    """Bound of the torques, PWM."""
    thrust_min: jax.Array  # (...)
    """Least thrust of a rotor that is not off, N."""
    thrust_max: jax.Array  # (...)
    """Greatest thrust of a rotor, N."""
    arm_length: jax.Array  # (...)
    """Distance of the motors to the body axes, m."""
    rpm2thrust: jax.Array  # (..., 3)
    """Thrust of a rotor in N as polynomial in rev/min, constant first."""
    thrust2torque: jax.Array  # (...)
    """Yaw torque of a rotor per its thrust, m."""
