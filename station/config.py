"""Configuration: YAML read into strict structs, every number typed and bounded. Opens files, starts nothing.

PyYAML follows YAML 1.1, in which ``1e-3`` is a string; such a value is refused with the spelling that works.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
import yaml

from hardware.errors import LinkError
from hardware.tuning import parse_uri

Positive = Annotated[float, msgspec.Meta(gt=0.0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0.0)]
Rate = Annotated[float, msgspec.Meta(gt=0.0, le=2000.0)]
"""Frames per second."""
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{1,32}$")]
Vec3 = tuple[float, float, float]
Range = tuple[NotNegative, NotNegative]
"""Lowest and highest value of a draw."""


class ConfigError(Exception):
    """A configuration that cannot be used; the text names the file, the key, the value and the cure."""


def _check_uri(uri: str) -> None:
    try:
        parse_uri(uri)
    except LinkError as error:
        raise ValueError(f"uri: {error}") from None


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping of the file; unknown keys are refused."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], float | int):
                low, high = value
                if low > high:
                    raise ValueError(f"{name} goes from {low} down to {high}; give the lower value first")


class Source(Section):
    """Where poses come from."""

    type: Literal["natnet"] = "natnet"
    host: str = "127.0.0.1"
    command_port: Port = 15100
    rate_hz: Rate = 200.0
    latency_ms: NotNegative = 0.0
    """Constant part of the latency that stamps cannot show (exposure to stamp)."""
    position_std_m: Positive = 0.0005
    attitude_std_rad: Positive = 0.005


class Dongle(Section):
    """A Crazyradio: the real one, or the soft one whose air is the virtual lab."""

    type: Literal["crazyradio", "soft"] = "soft"
    air_host: str = "127.0.0.1"
    air_port: Port = 15300
    packet_us: Positive = 780.0


class Drone(Section):
    """One drone of the fleet."""

    name: Name = "cf1"
    type: str = "cf21B_500"
    uri: str = "radio://0/80/2M/E7E7E7E701"
    body: str = "cf1"
    """Name of its rigid body in the source."""
    rot_damping: NotNegative = 0.0
    """Rotational damping of the unpowered drone, 1/s, once it has been identified."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_uri(self.uri)


class Space(Section):
    """The flight volume, world frame, m."""

    low: Vec3 = (-3.0, -3.0, -0.1)
    high: Vec3 = (3.0, 3.0, 3.5)

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(low >= high for low, high in zip(self.low, self.high, strict=True)):
            raise ValueError(f"low {self.low} is not below high {self.high} on every axis")


class Throw(Section):
    """The throw mission."""

    window_s: Annotated[float, msgspec.Meta(gt=0.0, le=30.0)] = 20.0
    target_m: Annotated[float, msgspec.Meta(ge=0.5, le=2.5)] = 1.2
    activate_ms: Annotated[float, msgspec.Meta(ge=150.0, le=800.0)] = 260.0
    """Expected activation after release; the takeover state is predicted for it."""
    lease_ms: Annotated[int, msgspec.Meta(ge=100, le=1000)] = 250
    floor_margin_m: NotNegative = 0.3
    """The feasibility gate keeps the predicted stop this far above the floor."""
    hover_s: NotNegative = 1.0
    """Hover under the policy after recovery, before the stock controller lands."""
    give_up_s: Positive = 4.0
    """A policy that has not recovered the drone this long after activation is taken off: land."""


class Train(Section):
    """The in-flight training job."""

    env_steps: Annotated[int, msgspec.Meta(ge=2400, le=10_000_000)] = 180_000
    envs: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 32
    window: Annotated[int, msgspec.Meta(ge=2, le=1000)] = 45
    """Steps of one rollout: 90 ms of flight between two updates."""
    episode: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 10
    """Windows from a start to the next."""
    learning_rate: Positive = 0.04
    predicted_share: Share = 0.26
    """Share of the initial states drawn around the prediction; the rest are broad throws."""
    good_success: Share = 0.9
    """A network that recovers fewer of its validation throws is trained again, from other weights, if there is time."""
    least_success: Share = 0.5
    """A network that recovers fewer is not flown."""
    cores: tuple[Annotated[int, msgspec.Meta(ge=0)], ...] = ()
    """CPU cores of the training process; empty: the highest one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        block = self.envs * self.window
        if self.env_steps % block:
            nearest = max(1, round(self.env_steps / block)) * block
            raise ValueError(
                f"env_steps {self.env_steps} is not a multiple of envs x window = {block}; set it to {nearest}"
            )


class StationConfig(Section):
    """Everything the station is told before it starts."""

    rate: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 1.0
    """Of the clock; below 1 only with soft dongles."""
    source: Source = Source()
    dongles: tuple[Dongle, ...] = (Dongle(),)
    drones: tuple[Drone, ...] = (Drone(),)
    space: Space = Space()
    throw: Throw = Throw()
    train: Train = Train()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.drones or not self.dongles:
            raise ValueError("drones and dongles each need at least one entry; leave the key out for the default one")
        for key in ("name", "body", "uri"):
            values = [getattr(drone, key) for drone in self.drones]
            if len(set(values)) < len(values):
                raise ValueError(f"two drones have the same {key} among {values}; give each its own")
        if self.rate < 1.0 and any(dongle.type != "soft" for dongle in self.dongles):
            raise ValueError(f"rate {self.rate} slows the clock, which a real dongle cannot follow; set rate to 1.0")


class Hand(Section):
    """Ranges of the scripted hand; one value of each is drawn per throw."""

    carry_s: Range = (0.8, 2.0)
    wait_s: Range = (0.3, 2.0)
    feint_share: Share = 0.3
    release_height_m: Range = (1.3, 1.8)
    up_mps: Range = (2.5, 3.5)
    sideways_mps: NotNegative = 1.0
    tilt_deg: NotNegative = 40.0
    spin_rad_s: NotNegative = 4.0


class LabConfig(Section):
    """The virtual lab: plant, hand, sensors, mocap and air. The station never reads it."""

    rate: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 1.0
    drone: str = "cf21B_500"
    body: str = "cf1"
    uri: str = "radio://0/80/2M/E7E7E7E701"
    mismatch: Annotated[float, msgspec.Meta(ge=0.0, le=0.5)] = 0.05
    """Mass, inertia, thrust curve, drag and rotor lag are each drawn within this share of nominal."""
    rot_damping: Range = (0.2, 1.0)
    start_delay_s: NotNegative = 0.06
    gyro_noise_rad_s: NotNegative = 0.02
    gyro_bias_rad_s: NotNegative = 0.02
    accel_noise_mps2: NotNegative = 0.3
    accel_bias_mps2: NotNegative = 0.2
    command_port: Port = 15100
    mocap_rate_hz: Rate = 200.0
    mocap_position_std_m: NotNegative = 0.0003
    mocap_attitude_std_deg: NotNegative = 0.2
    mocap_latency_ms: Range = (3.0, 8.0)
    mocap_drift_ppm: NotNegative = 50.0
    air_port: Port = 15300
    loss: Share = 0.02
    hand: Hand = Hand()

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_uri(self.uri)
        if self.command_port == self.air_port:
            raise ValueError(f"command_port and air_port are both {self.air_port}; give each a UDP port of its own")


_EXPONENT = re.compile(r"^[+-]?\d+(\.\d*)?[eE][+-]?\d+$|^[+-]?\.?\d+[eE][+-]?\d+$")


def _spelled(number: str) -> str:
    """The same number as YAML 1.1 reads it: 1e-3 as 1.0e-3."""
    mantissa, _, exponent = number.lower().partition("e")
    sign = "" if exponent[0] in "+-" else "+"
    return f"{mantissa}{'' if '.' in mantissa else '.0'}e{sign}{exponent}"


def _check(value: Any, path: str, where: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{where}: {path} is {value}; a finite number is needed")
    if isinstance(value, str) and _EXPONENT.match(value):
        raise ConfigError(
            f"{where}: {path} is read as the text '{value}'; write {_spelled(value)} (YAML wants a dot and a sign)"
        )
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ConfigError(
                    f"{where}: {path or 'the file'} has the key {key!r}, which YAML does not read as text"
                )
            _check(item, f"{path}.{key}" if path else str(key), where)
    if isinstance(value, list):
        for index, item in enumerate(value):
            _check(item, f"{path}[{index}]", where)


def parse(text: str, struct: type[Section], where: str) -> Any:
    """The struct that a YAML text describes.

    Args:
        text: YAML; an empty text gives the defaults.
        struct: `StationConfig` or `LabConfig`.
        where: name of the text in error messages, usually its file.

    Raises:
        ConfigError: not YAML, an unknown key, a wrong type, a number out of bounds.

    """
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}: not YAML: {' '.join(str(error).split())}") from None
    except ValueError as error:  # PyYAML lets out what its dates and integers raise
        raise ConfigError(f"{where}: a date or number cannot be read: {error}") from None
    data = {} if data is None else data
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: a mapping of keys is needed, got {type(data).__name__}")
    try:
        _check(data, "", where)
        return msgspec.convert(data, struct)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {_readable(str(error), data, struct)}") from None
    except RecursionError:
        raise ConfigError(f"{where}: an anchor contains itself; write the values out") from None


def load(path: Path, struct: type[Section]) -> Any:
    """The struct in a YAML file; `ConfigError` also when it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}; give the path of a YAML file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text; give the path of a YAML file") from None
    return parse(text, struct, str(path))


def _readable(text: str, data: Any, struct: Any) -> str:
    """Msgspec's ``... - at `$.drones[2].uri` `` with the place first, no JSON path, and the value or the known keys."""
    message, _, place = text.partition(" - at `$")
    place = place.rstrip("`").lstrip(".")
    value = data
    for part in re.findall(r"[^.\[\]]+", place):
        if isinstance(value, list):
            value, struct = value[int(part)], get_args(struct)[0]
        else:
            value, struct = value[part], get_type_hints(struct)[part]
    if "unknown field" in message:
        message = f"unknown key {message.split()[-1]}; it has {', '.join(struct.__struct_fields__)}"
    elif place and not isinstance(value, dict | list) and "got" not in message:
        message += f", got {value!r}"
    return f"{place}: {message}" if place else message


def write(config: Section, path: Path) -> None:
    """Save a checked config as JSON for a child process; `read` is the way back."""
    path.write_bytes(msgspec.json.encode(config))


def read(path: Path, struct: type[Section]) -> Any:
    """A config saved by `write`; `ConfigError` when it is not there or not one."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=struct)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}; the process that starts this one writes it") from None
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path}: not a saved {struct.__name__}: {error}") from None
