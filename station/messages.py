"""Every message between the station's processes, as strict structs. Knows no socket and no physics.

Each message has ``t`` (host seconds of `station.clock`) and ``seq`` (counted per sender and type). Arrays travel as
tuples of floats. Units are SI; quaternions are xyzw, body to world.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Vec3 = tuple[float, float, float]
Quat = tuple[float, float, float, float]
Stage = Literal["SPECULATE", "CONFIRM", "ABORT"]


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """What all messages carry: when they were made and their number."""

    t: float
    seq: int = 0


class Estimate(Message):
    """State of one drone, predicted from the newest measurement to ``t``. From ingest."""

    drone: str
    t_meas: float
    pos: Vec3
    quat: Quat
    vel: Vec3
    ang_vel: Vec3
    """Body frame, rad/s."""
    std: tuple[float, float, float, float]
    """Standard deviations: position m, attitude rad, velocity m/s, body rate rad/s (root mean square over axes)."""
    mode: Literal["INIT", "TRACK", "BALLISTIC", "COAST", "LOST"]
    flags: tuple[str, ...] = ()


class Takeover(Message):
    """A thrown drone's predicted state at ``t_at``, or the news that there is none. From ingest."""

    drone: str
    stage: Stage
    t_release: float
    """When the free flight is believed to have begun."""
    t_at: float
    pos: Vec3
    quat: Quat
    vel: Vec3
    ang_vel: Vec3
    cov: tuple[float, ...]
    """12 x 12 row-major: position, attitude (body rotation vector), velocity, body rate."""
    reason: str = ""


class ArmThrow(Message):
    """The operator's window for a throw opens (or closes, at ``until`` <= ``t``). To ingest."""

    drone: str
    until: float


class TrainRequest(Message):
    """Train a recovery policy from scratch around a predicted takeover state. To compute."""

    drone: str
    job: int
    seed: int
    deadline: float
    takeover: Takeover


class PolicyImage(Message):
    """A trained and validated network as the bytes that will fly. From compute."""

    drone: str
    job: int
    policy: int
    arch: int
    halves: bytes
    """Flat fp16 parameters, little endian, order W0 b0 W1 b1 W2 b2."""
    crc: int
    expected: tuple[float, float, float, float]
    """Outputs on the canned observation of the wire."""
    tolerance: float
    target_m: float
    success: float
    """Share of the validation throws recovered by the half-precision network."""
    initial_success: float
    initial_sha256: str
    initial_std: tuple[float, ...]
    """Standard deviation of each layer's initial weights: three layers."""
    curve: tuple[float, ...]
    """Mean cost of each update."""
    wall_s: float
    env_steps: int
    envs: int
    parameters: int
    compiled_in_flight: bool
    sha256: str


class Command(Message):
    """One order to the guardian for one drone."""

    drone: str
    name: Literal[
        "connect",
        "arm",
        "disarm",
        "window",
        "close_window",
        "released",
        "activate",
        "abort",
        "hold",
        "takeoff",
        "land",
        "stop",
        "estop",
        "disconnect",
    ]
    values: dict[str, float] = {}


class Upload(Message):
    """Send this network to the drone's bank. To the guardian."""

    drone: str
    image: PolicyImage
    deadline: float


class UploadStatus(Message):
    """How an upload stands. From the guardian."""

    drone: str
    policy: int
    state: Literal["SENT", "READY", "FAILED"]
    reason: str = ""
    packets: int = 0
    resent: int = 0
    wall_s: float = 0.0


class Event(Message):
    """Something that happened once, by name. From any process; for people, records and missions."""

    name: str
    drone: str = ""
    text: str = ""
    data: dict[str, float | str | bool | None] = {}


class Health(Message):
    """Figures of one process."""

    process: str
    figures: dict[str, float] = {}


class Verb(Message):
    """An operator's request to the daemon."""

    name: str
    drone: str = ""
    values: dict[str, float | str] = {}


class Reply(Message):
    """The daemon's answer to a verb."""

    ok: bool
    text: str = ""


Any = (
    Estimate
    | Takeover
    | ArmThrow
    | TrainRequest
    | PolicyImage
    | Command
    | Upload
    | UploadStatus
    | Event
    | Health
    | Verb
    | Reply
)

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Any).decode
