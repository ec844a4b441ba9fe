"""The throw mission: arm, speculate, train, upload, confirm, activate, recover, land. A pure state machine.

`step` takes the mission's state and one message (or the clock's tick) and gives the new state and what to send; it
knows no socket, reads no clock and keeps nothing. Which message is obeyed in which phase is the table `ACCEPTS`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from station import messages as m
from station.config import Drone, Space, Throw, Train


class Phase(StrEnum):
    """Where a throw stands."""

    CONNECTING = "connecting"
    SETTLING = "settling"
    """Linked; waiting for a tracked pose before anything is armed."""
    OPEN = "open"
    """Window open, rotors still, waiting for a release."""
    SPECULATED = "speculated"
    CONFIRMED = "confirmed"
    FLYING = "flying"
    """The policy flies, not yet recovered."""
    RECOVERED = "recovered"
    LANDING = "landing"
    DONE = "done"


ACCEPTS: dict[Phase, frozenset[str]] = {
    Phase.CONNECTING: frozenset({"event", "tick"}),
    Phase.SETTLING: frozenset({"event", "estimate", "tick"}),
    Phase.OPEN: frozenset({"event", "takeover", "image", "upload", "tick"}),
    Phase.SPECULATED: frozenset({"event", "takeover", "image", "upload", "tick"}),
    Phase.CONFIRMED: frozenset({"event", "takeover", "image", "upload", "tick"}),
    Phase.FLYING: frozenset({"event", "estimate", "upload", "tick"}),
    Phase.RECOVERED: frozenset({"event", "estimate", "tick"}),
    Phase.LANDING: frozenset({"event", "tick"}),
    Phase.DONE: frozenset(),
}
"""Messages obeyed in each phase; all others change nothing."""

CONNECT_S = 15.0
SETTLE_S = 5.0
LAND_S = 8.0
ACTIVATE_VALID_MS = 400
"""How long the onboard gates may take to hold; after that a late start would only hit the floor harder."""
STILL_S = 0.5
"""Recovered = slow, level and inside for this long (as the ground truth is judged)."""
SPECULATE_S = 1.0
TRAINED_S = 0.33
"""Budget of the training after release: a second one is begun only if it ends within it."""
UPLOAD_S = 0.15
FREE_FALL_S = 1.2
"""A released drone that no policy has taken by then is on the floor."""


@dataclass(frozen=True)
class Mission:
    """A throw in progress."""

    drone: Drone
    throw: Throw
    train: Train
    space: Space
    seed: int
    phase: Phase = Phase.CONNECTING
    since: float = 0.0
    """When the phase began, host s."""
    job: int = 0
    takeover: m.Takeover | None = None
    """The newest prediction."""
    best: m.PolicyImage | None = None
    """The best network that is not yet good enough to stop training."""
    image: m.PolicyImage | None = None
    """The network that was sent."""
    ready: bool = False
    """It is committed on board."""
    activating: bool = False
    still_since: float | None = None
    outcome: str = ""
    """Why the mission ended; empty when it ended well."""


Step = tuple[Mission, list[m.Message]]


def start(mission: Mission, now: float) -> Step:
    """Begin: ask for the link."""
    return replace(mission, since=now), [_order(mission, now, "connect")]


def step(mission: Mission, message: m.Message | None, now: float) -> Step:
    """One message, or None for the clock's tick.

    Args:
        mission: state so far.
        message: anything from ingest, compute or guardian; messages of other drones and of no use now are ignored.
        now: host seconds.

    Returns:
        The new state and what to send, in order.
    """
    kind, act = _HANDLERS.get(type(message), ("", None))
    if (
        act is None
        or kind not in ACCEPTS[mission.phase]
        or getattr(message, "drone", mission.drone.name) != mission.drone.name
    ):
        return mission, []
    return act(mission, message, now)


def interrupt(mission: Mission, now: float, reason: str) -> Step:
    """The operator wants an end: a flying drone lands, any other stays on the ground with its motors off."""
    if mission.phase in (Phase.FLYING, Phase.RECOVERED):
        return _land(mission, now, reason)
    return (mission, []) if mission.phase is Phase.LANDING else abort(mission, now, reason)


def abort(mission: Mission, now: float, reason: str) -> Step:
    """End at once, motors off: for the operator and for faults that leave nothing to fly."""
    if mission.phase is Phase.DONE:
        return mission, []
    close = [m.ArmThrow(t=now, drone=mission.drone.name, until=now), _order(mission, now, "abort", mode=1.0)]
    done, end = _finish(mission, now, reason)
    return done, [*close, *end]


def _order(mission: Mission, now: float, name: str, **values: float) -> m.Command:
    return m.Command(t=now, drone=mission.drone.name, name=name, values=values)  # type: ignore[arg-type]


def _event(mission: Mission, now: float, name: str, text: str = "", **data: float | str | bool | None) -> m.Event:
    return m.Event(t=now, name=name, drone=mission.drone.name, text=text, data=data)


def _finish(mission: Mission, now: float, outcome: str) -> Step:
    name = "mission_done" if not outcome else "mission_failed"
    return replace(mission, phase=Phase.DONE, since=now, outcome=outcome), [
        _event(mission, now, name, outcome),
        _order(mission, now, "disconnect"),
    ]


def _on_event(mission: Mission, event: m.Event, now: float) -> Step:
    if event.name in {"link_lost", "link_failed"}:
        return _finish(mission, now, f"{event.name}: {event.text}")
    if mission.phase is Phase.CONNECTING and event.name == "connected":
        return replace(mission, phase=Phase.SETTLING, since=now), []
    if mission.phase is Phase.CONFIRMED and event.name == "activated":
        return replace(mission, phase=Phase.FLYING, since=now), []
    if mission.phase in (Phase.SPECULATED, Phase.CONFIRMED) and event.name == "training_failed":
        return abort(mission, now, f"training failed: {event.text}")
    if mission.phase in (Phase.FLYING, Phase.RECOVERED) and event.name == "policy_fault":
        # The stock controller holds already; there is nothing left but to come down.
        return _land(mission, now, f"policy fault: {event.text}")
    if mission.phase is Phase.CONFIRMED and event.name == "policy_fault":
        return abort(mission, now, f"not activated: {event.text}")
    if mission.phase is Phase.LANDING and event.name == "landed":
        done, end = _finish(mission, now, mission.outcome)
        return done, [_order(mission, now, "disarm"), *end]
    return mission, []


def _on_takeover(mission: Mission, takeover: m.Takeover, now: float) -> Step:
    if takeover.stage == "ABORT":
        if takeover.reason.startswith("infeasible"):
            return _refuse(mission, now, takeover.reason)
        if mission.phase is Phase.SPECULATED:
            cancelled = replace(mission, phase=Phase.OPEN, since=now, takeover=None, best=None, image=None, ready=False)
            return cancelled, [_event(mission, now, "cancelled", takeover.reason)]
        if mission.phase is Phase.CONFIRMED and not mission.activating:
            return abort(mission, now, f"aborted: {takeover.reason}")
        return mission, []
    if mission.phase is Phase.CONFIRMED:
        return replace(mission, takeover=takeover), []
    out: list[m.Message] = []
    if mission.phase is Phase.OPEN:
        mission = replace(mission, phase=Phase.SPECULATED, since=now, best=None, image=None, ready=False)
        mission, out = _train(mission, takeover, now)
        out.append(_event(mission, now, "speculated", t_release=takeover.t_release))
    mission = replace(mission, takeover=takeover)
    if takeover.stage == "CONFIRM":
        mission = replace(mission, phase=Phase.CONFIRMED, since=now)
        out += [
            _order(mission, now, "released"),
            _event(mission, now, "confirmed", t_release=takeover.t_release),
            _event(mission, now, "predicted", t_at=takeover.t_at),
        ]
        mission, activate = _activate(mission, now)
        out += activate
    return mission, out


def _train(mission: Mission, takeover: m.Takeover, now: float) -> Step:
    mission = replace(mission, job=mission.job + 1)
    request = m.TrainRequest(
        t=now,
        drone=mission.drone.name,
        job=mission.job,
        seed=mission.seed * 1000 + mission.job,
        deadline=takeover.t_release + TRAINED_S,
        takeover=takeover,
    )
    return mission, [request]


def _on_image(mission: Mission, image: m.PolicyImage, now: float) -> Step:
    """Send a network that is good enough; train once more for one that is not, while there is time; take the better."""
    if image.job != mission.job or mission.takeover is None:
        return mission, []
    best = max((mission.best or image, image), key=lambda candidate: candidate.success)
    mission = replace(mission, best=best)
    in_time = now + image.wall_s <= mission.takeover.t_release + TRAINED_S
    if best.success < mission.train.good_success and in_time:
        return _train(mission, mission.takeover, now)
    trained = _event(mission, now, "trained", wall_s=best.wall_s, success=best.success, policy=float(best.policy))
    if best.success < mission.train.least_success:
        failed, end = abort(
            mission,
            now,
            f"training fell short: {best.success:.0%} of its validation throws recovered, "
            f"{mission.train.least_success:.0%} needed",
        )
        return failed, [trained, *end]
    upload = m.Upload(t=now, drone=mission.drone.name, image=best, deadline=now + UPLOAD_S)
    return replace(mission, image=best), [trained, upload]


def _on_upload(mission: Mission, status: m.UploadStatus, now: float) -> Step:
    if mission.image is None or status.policy != mission.image.policy:
        return mission, []
    if status.state == "SENT":
        return mission, [_event(mission, status.t, "uploaded")]
    if status.state == "FAILED":
        return abort(mission, now, f"upload failed: {status.reason}")
    figures = {"packets": float(status.packets), "resent": float(status.resent), "wall_s": status.wall_s}
    committed = _event(mission, status.t, "committed", **figures)
    mission, activate = _activate(replace(mission, ready=True), now)
    return mission, [committed, *activate]


def _activate(mission: Mission, now: float) -> Step:
    """ACTIVATE, as soon as a network is ready and the throw is confirmed."""
    if not (mission.ready and mission.phase is Phase.CONFIRMED) or mission.activating or mission.image is None:
        return mission, []
    order = _order(
        mission,
        now,
        "activate",
        policy=float(mission.image.policy),
        crc=float(mission.image.crc),
        delay_ms=0.0,
        valid_ms=float(ACTIVATE_VALID_MS),
        lease_ms=float(mission.throw.lease_ms),
        target_m=mission.throw.target_m,
    )
    return replace(mission, activating=True), [order]


def _on_estimate(mission: Mission, estimate: m.Estimate, now: float) -> Step:
    if mission.phase is Phase.SETTLING:
        if estimate.mode != "TRACK" or now - mission.since < 0.3:
            return mission, []
        until = now + mission.throw.window_s
        return replace(mission, phase=Phase.OPEN, since=now), [
            _order(mission, now, "window", open_ms=min(30_000.0, mission.throw.window_s * 1e3 + 1500.0)),
            _order(mission, now, "arm"),
            m.ArmThrow(t=now, drone=mission.drone.name, until=until),
            _event(mission, now, "armed", until=until),
        ]
    if mission.phase is Phase.FLYING:
        since = (mission.still_since or now) if _still(estimate) else None
        mission = replace(mission, still_since=since)
        if since is not None and now - since >= STILL_S:
            return replace(mission, phase=Phase.RECOVERED, since=now), [_event(mission, now, "recovered")]
    return mission, []


def _still(estimate: m.Estimate) -> bool:
    x, y, _, _ = estimate.quat
    cos_tilt = 1.0 - 2.0 * (x * x + y * y)
    return math.hypot(*estimate.vel) < 0.5 and cos_tilt > math.cos(math.radians(15.0)) and 0.3 < estimate.pos[2] < 3.0


def _on_tick(mission: Mission, message: None, now: float) -> Step:
    del message
    age = now - mission.since
    if mission.phase is Phase.CONNECTING and age > CONNECT_S:
        return _finish(mission, now, f"no link to {mission.drone.uri} within {CONNECT_S:.0f} s; is the drone on?")
    if mission.phase is Phase.SETTLING and age > SETTLE_S:
        return _finish(
            mission,
            now,
            f"no tracked pose of body '{mission.drone.body}' within {SETTLE_S:.0f} s; check the source's body names",
        )
    if mission.phase is Phase.OPEN and age > mission.throw.window_s:
        return abort(mission, now, f"no release within {mission.throw.window_s:g} s")
    if mission.phase is Phase.SPECULATED and age > SPECULATE_S:
        return abort(mission, now, "a speculated throw was neither confirmed nor called off; is ingest alive?")
    if mission.phase is Phase.CONFIRMED and age > FREE_FALL_S:
        return abort(mission, now, "no policy took over")
    if mission.phase is Phase.FLYING and age > mission.throw.give_up_s:
        return _land(mission, now, f"not recovered within {mission.throw.give_up_s:.0f} s of activation")
    if mission.phase is Phase.RECOVERED and age > mission.throw.hover_s:
        return _land(mission, now, "")
    if mission.phase is Phase.LANDING and age > LAND_S:
        return abort(mission, now, mission.outcome or f"no touch-down within {LAND_S:.0f} s")
    return mission, []


def _land(mission: Mission, now: float, outcome: str) -> Step:
    return replace(mission, phase=Phase.LANDING, since=now, outcome=outcome), [_order(mission, now, "land")]


def _refuse(mission: Mission, now: float, reason: str) -> Step:
    failed, end = abort(mission, now, f"refused: {reason}")
    return failed, [_event(mission, now, "refused", reason), *end]


_HANDLERS = {
    m.Event: ("event", _on_event),
    m.Takeover: ("takeover", _on_takeover),
    m.PolicyImage: ("image", _on_image),
    m.UploadStatus: ("upload", _on_upload),
    m.Estimate: ("estimate", _on_estimate),
    type(None): ("tick", _on_tick),
}
