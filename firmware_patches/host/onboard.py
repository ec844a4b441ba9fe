"""The onboard C as a Python object: one virtual Crazyflie's processor. Compiles nothing, keeps no clock, no radio."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

LIBRARY = Path(__file__).resolve().parent.parent / "build" / "libonboard.so"

_MAX_DATA = 30


@dataclass(frozen=True)
class Airframe:
    """What the firmware believes about its drone (nominal figures).

    Rotor curves are polynomials in rpm, constant first; mixing holds the signs of roll, pitch, yaw for each rotor.
    """

    mass_kg: float
    inertia: tuple[float, float, float]
    """Diagonal, kg m²."""
    arm_length_m: float
    """Lever of a rotor about the roll and pitch axes."""
    rpm2thrust: tuple[float, float, float]
    """N."""
    rpm2torque: tuple[float, float, float]
    """N m."""
    thrust_min_N: float  # noqa: N815
    thrust_max_N: float  # noqa: N815
    mixing: tuple[tuple[float, float, float, float], ...]
    """Three rows of four."""
    idle_rpm: float

    def figures(self) -> list[float]:
        """The 26 numbers of `onboard_init`, in its order.

        Raises:
            ValueError: a vector has the wrong length.
        """
        flat = [self.mass_kg, *self.inertia, self.arm_length_m, *self.rpm2thrust, *self.rpm2torque]
        flat += [self.thrust_min_N, self.thrust_max_N, *(sign for row in self.mixing for sign in row), self.idle_rpm]
        if len(flat) != 26:
            raise ValueError(f"airframe has {len(flat)} numbers, the onboard C takes 26; check the vectors' lengths")
        return [float(number) for number in flat]


class OnboardState(NamedTuple):
    """What the drone believes; not sent by radio, for logs, displays and tests. World z up, quaternion xyzw, SI."""

    pos: tuple[float, float, float]
    quat: tuple[float, float, float, float]
    vel: tuple[float, float, float]
    ang_vel: tuple[float, float, float]
    gyro_bias: tuple[float, float, float]
    accel_bias: tuple[float, float, float]
    estimator_age_s: float
    """Since the last accepted pose; 1e6 before the first."""
    battery_V: float  # noqa: N815
    target_m: float
    tick_ms: int
    control: int
    """0 STOCK, 1 ARMED, 2 ACTIVE, 3 OFF."""
    bank0: int
    """0 EMPTY, 1 RECV, 2 READY."""
    bank1: int
    policy: int
    supervisor: int
    """Bits as in the answer on port 9."""
    stock_mode: int
    """0 grounded, 1 flying, 2 landing."""
    window_open: int
    free_fall: int
    released: int
    active_bank: int
    """255: none."""
    poses_accepted: int
    poses_rejected: int
    poses_refused: int
    estimator_resets: int
    received: int
    malformed: int
    dropped: int
    ignored: int
    overflowed: int


class Lights(NamedTuple):
    """The two things that a drone's LEDs tell."""

    control: int
    """0 STOCK, 1 ARMED, 2 ACTIVE, 3 OFF."""
    window_open: bool


class _Snapshot(ctypes.Structure):
    _fields_ = [  # noqa: RUF012
        ("pos", ctypes.c_float * 3),
        ("quat", ctypes.c_float * 4),
        ("vel", ctypes.c_float * 3),
        ("ang_vel", ctypes.c_float * 3),
        ("gyro_bias", ctypes.c_float * 3),
        ("accel_bias", ctypes.c_float * 3),
        *((name, ctypes.c_float) for name in ("estimator_age_s", "battery_V", "target_m")),
        *((name, ctypes.c_uint32) for name in OnboardState._fields[OnboardState._fields.index("tick_ms") :]),
    ]


def load(library: Path = LIBRARY) -> ctypes.CDLL:
    """The compiled onboard C, typed.

    Raises:
        FileNotFoundError: it has not been built.
        OSError: it is no library of this machine.
    """
    if not library.exists():
        raise FileNotFoundError(f"{library} is missing; build it with firmware_patches/build.sh (needs a C compiler)")
    try:
        lib = ctypes.CDLL(str(library))
    except OSError as error:
        raise OSError(f"{error}; remove it and build it anew with firmware_patches/build.sh") from None
    handle, number = ctypes.c_void_p, ctypes.c_float
    lib.onboard_size.restype = lib.onboard_snapshot_size.restype = ctypes.c_uint32
    lib.onboard_init.argtypes = [handle, ctypes.c_void_p]
    lib.onboard_tick.argtypes = [handle, *[number] * 7, ctypes.c_void_p]
    lib.onboard_receive.argtypes = [handle, ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_int]
    lib.onboard_transmit.argtypes = [handle, ctypes.c_void_p]
    lib.onboard_transmit.restype = ctypes.c_int
    lib.onboard_lights.argtypes = [handle]
    lib.onboard_lights.restype = ctypes.c_uint32
    lib.onboard_look.argtypes = [handle, ctypes.c_void_p]
    for name in ("onboard_init", "onboard_tick", "onboard_receive", "onboard_look"):
        getattr(lib, name).restype = None
    if lib.onboard_snapshot_size() != ctypes.sizeof(_Snapshot):
        raise FileNotFoundError(f"{library} is of another version; build it with firmware_patches/build.sh")
    return lib


class Onboard:
    """One virtual Crazyflie's processor. Owns its C state; not for several threads at once."""

    def __init__(self, airframe: Airframe) -> None:
        """Power on: disarmed, motors off, no pose.

        Raises:
            FileNotFoundError: the C has not been built.
            ValueError: the airframe's vectors have the wrong lengths.
        """
        figures = airframe.figures()
        self._lib = load()
        self._state = ctypes.create_string_buffer(self._lib.onboard_size())
        self._handle = ctypes.c_void_p(ctypes.addressof(self._state))
        self._rpm = (ctypes.c_float * 4)()
        self._rpm_at = ctypes.c_void_p(ctypes.addressof(self._rpm))
        self._data = ctypes.create_string_buffer(_MAX_DATA)
        self._data_at = ctypes.c_void_p(ctypes.addressof(self._data))
        self._tick = self._lib.onboard_tick
        self._lib.onboard_init(self._handle, (ctypes.c_float * 26)(*figures))

    def tick(
        self,
        gyro_rad_s: Sequence[float],
        accel_mps2: Sequence[float],
        battery_V: float,  # noqa: N803
    ) -> tuple[float, float, float, float]:
        """One millisecond.

        Args:
            gyro_rad_s: (3,) body frame.
            accel_mps2: (3,) specific force, body frame; (0, 0, 9.81) at rest.
            battery_V: volts.

        Returns:
            Rotor speed commands, rpm; 0 is off.
        """
        gx, gy, gz = gyro_rad_s
        ax, ay, az = accel_mps2
        self._tick(self._handle, gx, gy, gz, ax, ay, az, battery_V, self._rpm_at)
        return tuple(self._rpm)  # type: ignore[return-value]

    def receive(self, port: int, channel: int, data: bytes) -> None:
        """One CRTP packet from the ground. Whatever cannot be used is dropped and counted."""
        self._lib.onboard_receive(self._handle, port, channel, data, len(data))

    def transmit(self) -> tuple[int, int, bytes] | None:
        """Next packet down as (port, channel, data); None when there is none. The oldest 63 are kept."""
        header = self._lib.onboard_transmit(self._handle, self._data_at)
        if header < 0:
            return None
        return header >> 16, header >> 8 & 0xFF, self._data.raw[: header & 0xFF]

    def lights(self) -> Lights:
        """What anyone sees of the drone from outside; cheap enough for every tick."""
        shown = self._lib.onboard_lights(self._handle)
        return Lights(shown & 0xFF, bool(shown >> 8))

    def snapshot(self) -> OnboardState:
        """What the drone believes now."""
        seen = _Snapshot()
        self._lib.onboard_look(self._handle, ctypes.byref(seen))
        values = (getattr(seen, name) for name in OnboardState._fields)
        return OnboardState(*(tuple(value) if isinstance(value, ctypes.Array) else value for value in values))
