"""The drone's computers: radio, Crazyflie services and our onboard software, run on what sensors tell. Has no body."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from firmware_patches.host.onboard import Airframe, Onboard
from hardware.crtp import Packet, encode
from hardware.virtual.crazyflie import VirtualCrazyflie
from hardware.virtual.nrf import Nrf
from sim.state import Params

BATTERY_V = 4.0
IDLE_RPM = 7000.0
"""Idle of the Crazyflie 2.1 Brushless when armed."""
ACTIVE = 2
"""`control` of the onboard software while a policy flies."""
_SERVICE_MS = 10
"""Log blocks have periods of whole 10 ms."""


def airframe(nominal: Params) -> Airframe:
    """The firmware's constants of a drone: the nominal ones, never the plant's."""

    def floats(value: object) -> tuple[float, ...]:
        return tuple(float(x) for x in np.ravel(value))

    return Airframe(
        mass_kg=float(nominal.mass),
        inertia=floats(np.diagonal(nominal.inertia)),
        arm_length_m=float(nominal.arm_length),
        rpm2thrust=floats(nominal.rpm2thrust),
        rpm2torque=floats(nominal.rpm2torque),
        thrust_min_N=float(nominal.thrust_min),
        thrust_max_N=float(nominal.thrust_max),
        mixing=tuple(floats(row) for row in np.asarray(nominal.mixing)),
        idle_rpm=IDLE_RPM,
    )


class Drone:
    """A drone just switched on.

    Args:
        nominal: What its firmware believes of its airframe.
        radio: Its radio, fresh.
    """

    def __init__(self, nominal: Params, radio: Nrf) -> None:
        self._onboard = Onboard(airframe(nominal))
        self._services = VirtualCrazyflie(self._onboard, self._log_variables())
        self._radio = radio
        self._ms = 0
        self._gyro: Sequence[float] = (0.0, 0.0, 0.0)
        self._accel: Sequence[float] = (0.0, 0.0, 0.0)
        self.lights = self._onboard.lights()
        """What the drone shows after the last tick: control state, and whether the throw window is open."""

    def tick(self, gyro: Sequence[float], accel: Sequence[float]) -> Sequence[float]:
        """One millisecond of firmware.

        Args:
            gyro: Body rate, rad/s (3).
            accel: Specific force, body frame, m/s² (3).

        Returns:
            Four rotor speeds to the motor drivers, rev/min; 0 is off.
        """
        radio, services = self._radio, self._services
        while (raw := radio.take()) is not None:
            services.receive(raw[0] >> 4, raw[0] & 3, raw[1:])
        self._gyro, self._accel = gyro, accel
        command = self._onboard.tick(gyro, accel, BATTERY_V)
        self.lights = self._onboard.lights()
        self._ms += 1
        if self._ms % _SERVICE_MS == 0:
            services.tick(self._ms)
        while radio.room and (reply := services.transmit()) is not None:
            radio.send(encode(Packet(*reply)))
        return command

    def _log_variables(self) -> dict[str, Callable[[], float]]:
        """Upstream's log variables that the ground may ask for, in upstream's units."""

        def estimate(name: str, index: int) -> Callable[[], float]:
            return lambda: getattr(self._onboard.snapshot(), name)[index]

        variables = {f"stateEstimate.{axis}": estimate("pos", i) for i, axis in enumerate("xyz")}
        variables |= {f"stateEstimate.v{axis}": estimate("vel", i) for i, axis in enumerate("xyz")}
        variables |= {f"stateEstimate.q{axis}": estimate("quat", i) for i, axis in enumerate("xyzw")}
        variables |= {f"gyro.{axis}": lambda i=i: math.degrees(self._gyro[i]) for i, axis in enumerate("xyz")}
        variables |= {f"acc.{axis}": lambda i=i: self._accel[i] / 9.81 for i, axis in enumerate("xyz")}
        return variables | {"pm.vbat": lambda: BATTERY_V, "pm.vbatMV": lambda: 1000 * BATTERY_V}
