"""The names, types and defaults that a virtual drone tells: a part of upstream's tables. Holds no values.

Names and types are those of crazyflie-firmware (`stabilizer.c`, `pm_stm32f4.c`, `supervisor.c`,
`crtp_localization_service.c`, `power_distribution_quadrotor.c`). None is marked persistent, so that cflib has no
extended types to ask for.
"""

from __future__ import annotations

LOG: dict[str, str] = {
    **{f"stateEstimate.{name}": "float" for name in ("x", "y", "z", "vx", "vy", "vz", "roll", "pitch", "yaw")},
    **{f"stateEstimate.{name}": "float" for name in ("qx", "qy", "qz", "qw")},
    **{f"gyro.{axis}": "float" for axis in "xyz"},
    **{f"acc.{axis}": "float" for axis in "xyz"},
    "pm.vbat": "float",
    "pm.vbatMV": "uint16_t",
    "pm.state": "int8_t",
    "pm.batteryLevel": "uint8_t",
    "supervisor.info": "uint16_t",
    "radio.rssi": "uint8_t",
}
"""Log variables and their types. Units are upstream's: angles in degrees, rates in deg/s, acceleration in g."""

PARAMETERS: dict[str, tuple[str, float, bool]] = {
    "stabilizer.estimator": ("uint8_t", 2, False),
    "stabilizer.controller": ("uint8_t", 6, False),
    "stabilizer.stop": ("uint8_t", 0, False),
    "kalman.resetEstimation": ("uint8_t", 0, False),
    "kalman.maxPos": ("float", 100.0, False),
    "kalman.maxVel": ("float", 10.0, False),
    "locSrv.extPosStdDev": ("float", 0.01, False),
    "locSrv.extQuatStdDev": ("float", 4.5e-3, False),
    "supervisor.infdmp": ("uint8_t", 0, False),
    "supervisor.prefltTimeout": ("uint16_t", 30_000, False),
    "supervisor.landedTimeout": ("uint16_t", 3_000, False),
    "supervisor.tmblChckEn": ("uint8_t", 1, False),
    "commander.enHighLevel": ("uint8_t", 1, False),
    "hlCommander.vtoff": ("float", 0.5, False),
    "hlCommander.vland": ("float", 0.5, False),
    "hlCommander.groupmask": ("uint8_t", 0, False),
    "powerDist.idleThrust": ("uint32_t", 7_000, False),
    "pm.lowVoltage": ("float", 3.2, False),
    "pm.criticalLowVoltage": ("float", 3.0, False),
    "firmware.revision0": ("uint32_t", 0, True),
    "firmware.revision1": ("uint16_t", 0, True),
    "firmware.modified": ("uint8_t", 0, True),
}
"""Parameters: type, default, read only."""
