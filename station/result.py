"""What `--json` reports of a mission of throws, the budgets and the verdict. Measures nothing, judges no flight.

One struct for each mapping of the JSON file, with its names. A number that does not exist (a stage never reached, a
policy never trained) is null; the mapping around it is always there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from station import judge
from station.config import LabConfig
from station.lab.truth import Truth as Trajectory
from station.messages import PolicyImage, UploadStatus

EVENTS = (
    "release",
    "speculated",
    "confirmed",
    "predicted",
    "trained",
    "uploaded",
    "committed",
    "activated",
    "recovered",
    "landed",
)
"""Moments of a throw in the order in which they happen when all goes well."""

BUDGETS_MS: Mapping[str, float] = {
    "confirmed": 150.0,
    "trained": 330.0,
    "uploaded": 370.0,
    "committed": 370.0,
    "activated": 400.0,
}
"""Latest moment of a stage, ms after release. Each 10 ms later costs catches."""

NEEDED_SHARE_PERCENT = 85
"""Of several throws, this many have to be caught; of a single one, that one."""


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping of the JSON file."""


class Events(Part):
    """Host seconds since release; None: did not happen."""

    release: float | None = None
    speculated: float | None = None
    confirmed: float | None = None
    predicted: float | None = None
    trained: float | None = None
    uploaded: float | None = None
    committed: float | None = None
    activated: float | None = None
    recovered: float | None = None
    landed: float | None = None


class Train(Part):
    """The training in flight."""

    wall_s: float | None = None
    env_steps: int | None = None
    envs: int | None = None
    parameters: int | None = None
    compiled_in_flight: bool | None = None
    initial_sha256: str | None = None
    """Of the weights before the first update."""
    initial_success: float | None = None
    """Share of the validation throws that these recover."""
    success: float | None = None


class Upload(Part):
    """The network's way to the drone."""

    wall_s: float | None = None
    packets: int | None = None
    resent: int | None = None
    crc32: str | None = None


class PredictionError(Part):
    """The last prediction against the truth at activation."""

    pos_m: float | None = None
    vel_mps: float | None = None
    att_deg: float | None = None
    rate_rps: float | None = None


class Truth(Part):
    """What the plant did."""

    file: str | None = None
    """Trajectory (.npz), relative to the JSON file."""
    min_height_m: float | None = None
    final_speed_mps: float | None = None
    final_tilt_deg: float | None = None


class Run(Part):
    """One throw."""

    seed: int
    caught: bool
    refused: bool = False
    """The feasibility gate would not fly this throw; it counts as not caught."""
    reason: str = ""
    """Why not caught."""
    budgets_ok: bool = False
    plant_lag_max_s: float | None = None
    events_s: Events = Events()
    train: Train = Train()
    upload: Upload = Upload()
    prediction_error: PredictionError = PredictionError()
    truth: Truth = Truth()


class Result(Part):
    """A whole mission."""

    mission: str
    seed: int
    """Run i has seed ``seed + i``."""
    rate: float
    drone: str
    loss: float
    mismatch: float
    thrown: int
    caught: int
    refused: int
    runs: tuple[Run, ...]

    def good(self) -> bool:
        """Whether the command ends with status 0."""
        return verdict(self).status == 0


@dataclass(frozen=True)
class Verdict:
    """What the command ends with."""

    status: int
    """Exit status: 0 good, 1 fell short."""
    text: str
    """One line for people."""


def budgets_ok(events: Events) -> bool:
    """Whether every budgeted stage was reached in its time."""
    times = ((getattr(events, stage), budget) for stage, budget in BUDGETS_MS.items())
    return all(time is not None and 1e3 * time <= budget for time, budget in times)


class Heard(Protocol):
    """What the station said during one throw."""

    events: dict[str, float]
    """Host seconds of each event."""
    image: PolicyImage | None
    upload: UploadStatus | None
    outcome: str | None
    """How the mission ended in its own words; empty when it ended well."""
    refused: bool


def assemble(
    seed: int,
    file: str,
    truth: Trajectory,
    judged: judge.Verdict,
    released: float | None,
    heard: Heard,
    error: judge.PredictionError | None,
) -> Run:
    """One throw from the truth about it and from what the station said.

    Args:
        seed: Of this run.
        file: Where the truth lies, relative to the JSON file.
        truth: What the plant did.
        judged: The verdict on that.
        released: Host seconds of the release, of the clock that stamps ``heard.events``; None or NaN: never released.
        heard: What the station said.
        error: The last prediction against the truth at activation.
    """
    gone = released is not None and math.isfinite(released)
    moments = {name: t - released for name, t in heard.events.items() if name in EVENTS} if gone else {}
    image, upload = heard.image, heard.upload
    train = Train()
    if image is not None:
        names = [field for field in Train.__struct_fields__ if hasattr(image, field)]
        train = Train(**{name: getattr(image, name) for name in names})
    sent = Upload(crc32=f"{image.crc:08x}" if image is not None else None)
    if upload is not None:
        sent = msgspec.structs.replace(sent, wall_s=upload.wall_s, packets=upload.packets, resent=upload.resent)
    events = Events(**{**moments, "release": 0.0}) if gone else Events()
    return Run(
        seed=seed,
        caught=judged.caught and not heard.refused,
        refused=heard.refused,
        reason=_reason(judged.reason, heard),
        budgets_ok=budgets_ok(events),
        plant_lag_max_s=truth.scalars.get("plant_lag_max_s"),
        events_s=events,
        train=train,
        upload=sent,
        prediction_error=PredictionError(**vars(error)) if error is not None else PredictionError(),
        truth=Truth(
            file=file,
            min_height_m=judged.min_height_m,
            final_speed_mps=judged.final_speed_mps,
            final_tilt_deg=judged.final_tilt_deg,
        ),
    )


def _reason(judged: str, heard: Heard) -> str:
    """Why not caught: the gate's words when it refused; else the judge's, with the station's own when it failed."""
    if heard.refused:
        return heard.outcome or judged
    return f"{judged} ({heard.outcome})" if judged and heard.outcome else judged


def summarise(seed: int, rate: float, lab: LabConfig, runs: Sequence[Run]) -> Result:
    """The mission of these runs, counted. A run whose drone was never released was not thrown."""
    return Result(
        mission="throw",
        seed=seed,
        rate=rate,
        drone=lab.drone,
        loss=lab.loss,
        mismatch=lab.mismatch,
        thrown=sum(run.events_s.release is not None for run in runs),
        caught=sum(run.caught for run in runs),
        refused=sum(run.refused for run in runs),
        runs=tuple(runs),
    )


def verdict(result: Result) -> Verdict:
    """Good when the only throw is caught, or 85 % of several; a run that never threw its drone is not good."""
    asked = len(result.runs)
    enough = 100 * result.caught >= NEEDED_SHARE_PERCENT * asked if asked > 1 else result.caught == asked
    good = asked > 0 and result.thrown == asked and enough
    in_time = sum(run.budgets_ok for run in result.runs)
    text = f"caught {result.caught} of {result.thrown} thrown"
    if result.refused:
        text += f" ({result.refused} refused)"
    if result.thrown != asked:
        text += f", {asked - result.thrown} of {asked} never thrown"
    if asked > 1 and not enough:
        text += f", {NEEDED_SHARE_PERCENT} % are needed"
    if asked == 1 and result.runs[0].reason:
        text += f": {result.runs[0].reason}"
    text += f"; every budget kept in {in_time} of {asked}"
    if result.rate < 1.0:
        text += f"; not real time (rate {result.rate:g})"
    return Verdict(0 if good else 1, text)


def write(result: Result, path: Path) -> None:
    """Save as the JSON file. Numbers that are not finite become null."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")


def read(path: Path) -> Result:
    """A result saved by `write`.

    Raises:
        OSError: it cannot be read.
        msgspec.DecodeError: it is not such a file.
    """
    return msgspec.json.decode(path.read_bytes(), type=Result)
