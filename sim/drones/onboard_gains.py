"""Literals of the onboard cascade for five drones, in the units of the firmware (PWM). Holds no code.

From the firmware's Mellinger controller and the legacy power distribution, as published with the peer simulator (PyPI
crazyflow 0.4.0, MIT). What the firmware believes of its drone (mass, rotor curve) differs from the model on purpose.
"""

from __future__ import annotations

from typing import Any

CRAZYFLIE: dict[str, Any] = {
    "pos_kp": (0.4, 0.4, 1.25),
    "pos_kd": (0.2, 0.2, 0.5),
    "pos_ki": (0.05, 0.05, 0.05),
    "pos_err_i_max": (2.0, 2.0, 0.4),
    "att_kp": (70000.0, 70000.0, 60000.0),
    "att_kd": (20000.0, 20000.0, 12000.0),
    "att_ki": (0.0, 0.0, 500.0),
    "rate_kd": (200.0, 200.0, 0.0),
    "att_err_i_max": (1.0, 1.0, 1500.0),
    "mass_thrust": 132000.0,
    "pwm_min": 7000.0,
    "pwm_max": 65535.0,
    "torque_pwm_max": (32000.0, 32000.0, 32000.0),
}
"""What all Crazyflies share."""

X500: dict[str, Any] = {
    "pos_kp": (12.0, 12.0, 35.0),
    "pos_kd": (6.0, 6.0, 8.0),
    "pos_ki": (1.0, 1.0, 1.0),
    "pos_err_i_max": (4.0, 4.0, 2.0),
    "att_kp": (1.068132, 1.068132, 0.9155413),
    "att_kd": (0.3051804, 0.3051804, 0.1831083),
    "att_ki": (0.0, 0.0, 0.007629511),
    "rate_kd": (0.003051804, 0.003051804, 0.0),
    "att_err_i_max": (1.0, 1.0, 1500.0),
    "mass_thrust": 0.02061006,
    "pwm_min": 0.0,
    "pwm_max": 1.0,
    "torque_pwm_max": (0.4882887, 0.4882887, 0.4882887),
}

GAINS: dict[str, dict[str, Any]] = {
    "cf2x_L250": {
        **CRAZYFLIE,
        "mass": 0.029,
        "thrust_min": 0.012817578393224994,
        "thrust_max": 0.12,
        "arm_length": 0.03253,
        "rpm2thrust": (0.0, -5.382196214637237e-07, 2.4582929831265485e-10),
        "thrust2torque": 0.007350862856566459,
    },
    "cf2x_P250": {
        **CRAZYFLIE,
        "mass": 0.029,
        "thrust_min": 0.012817578393224994,
        "thrust_max": 0.12,
        "arm_length": 0.03253,
        "rpm2thrust": (0.0, -3.6200226530383495e-07, 1.6060924304100328e-10),
        "thrust2torque": 0.0069928948992470565,
    },
    "cf2x_T350": {
        **CRAZYFLIE,
        "mass": 0.0325,
        "thrust_min": 0.01922636758983749,
        "thrust_max": 0.18,
        "arm_length": 0.03253,
        "rpm2thrust": (0.0, -7.167227176573658e-07, 2.9401303690194613e-10),
        "thrust2torque": 0.005355990836477486,
    },
    "cf21B_500": {
        **CRAZYFLIE,
        "mass": 0.0393,
        "thrust_min": 0.02136263065537499,
        "thrust_max": 0.2,
        "arm_length": 0.035355,
        "rpm2thrust": (0.0, -3.133427287299859e-07, 4.407354891648379e-10),
        "thrust2torque": 0.00593893393599368,
    },
    "hb_x500": {
        **X500,
        "mass": 2.28,
        "thrust_min": 1.0,
        "thrust_max": 12.13,
        "arm_length": 0.17678,
        "rpm2thrust": (0.0, 1e-06, 1e-09),
        "thrust2torque": 0.01,
    },
}
