"""The road of one body's frames: guards, filter, detector, and their messages. Pure; knows no socket and no clock.

Times are host seconds. A frame is judged in this order: seen at all, finite and near, not a repeat, inside the filter's
gates. What is wrong is said once an episode, as an event; the estimate goes on from what remains.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from hardware.ports import Frame
from station import ballistic, estimate, takeover
from station.airframe import Airframe
from station.config import Drone, Source, Space, Throw
from station.estimate import Filter, Kinematics
from station.messages import Estimate, Event, Message, Takeover
from station.quaternion import Quat, Vec3
from station.takeover import Detector

FROZEN_POSES = 5
"""Bit-identical poses in a row that are a stuck solver: a camera's noise always differs."""
EPISODE_S = 0.5
"""An alarm that has not recurred for this long is over; the next one is news again."""
FAR_M = 50.0
UNIT_ERROR = 0.02
UPDATE_S = 0.02
"""Between predictions after confirmation."""
COAST_S = 0.02
"""Between estimates that are published without a frame."""
RELEASED_S = 0.01
"""From confirmation to the drone's knowing it: the radio's share of the spin-up."""


class Body(NamedTuple):
    """What does not change while a body is tracked."""

    drone: Drone
    airframe: Airframe
    throw: Throw
    space: Space
    period: float


class Track(NamedTuple):
    """One body's state."""

    body: Body
    filter: Filter
    detector: Detector
    armed_until: float = -math.inf
    last: tuple[Vec3, Quat] | None = None
    repeats: int = 0
    alarms: tuple[tuple[str, float], ...] = ()
    """Open episodes: name, when last seen."""
    flags: tuple[str, ...] = ()
    t_out: float = -math.inf
    """When the newest estimate was made."""
    t_predicted: float = -math.inf
    t_began: float = math.inf
    rejects: int = 0
    """Poses that were not used, or used in part."""


Step = tuple[Track, list[Message]]


def init(drone: Drone, airframe: Airframe, source: Source, throw: Throw, space: Space) -> Track:
    """A body that has not been seen."""
    period = 1.0 / source.rate_hz
    noise = estimate.Noise(source.position_std_m, source.attitude_std_rad)
    detector = takeover.init(airframe, source.position_std_m, source.attitude_std_rad, period)
    return Track(Body(drone, airframe, throw, space, period), estimate.init(noise), detector)


def arm(track: Track, until: float, now: float) -> Step:
    """The operator's window: open until ``until``, closed when that is not after ``now``."""
    out: list[Message] = []
    if track.detector.stage and until <= now:
        out.append(_no_takeover(track, now, "window closed"))
    return track._replace(armed_until=until, detector=takeover.rearm(track.detector)), out


def observe(track: Track, frame: Frame, t_meas: float, now: float) -> Step:
    """One frame of this body.

    Args:
        track: before the frame.
        frame: of the source; checked again here, whoever made it.
        t_meas: its exposure by the host's clock, s.
        now: host s.

    Returns:
        The track after it, and an `Estimate` predicted to ``now`` with whatever `Takeover` and `Event` the frame gave.

    """
    out: list[Message] = []
    track = track._replace(flags=(), t_began=min(track.t_began, now))
    if not frame.tracked:
        return _estimate(_alarm(track, out, now, "OCCLUDED", "the source sees no such body now"), out, now)
    pos: Vec3 = tuple(frame.pos.tolist())
    quat: Quat = tuple(frame.quat.tolist())
    fault, text = _fault(pos, quat)
    if fault:
        track = track._replace(rejects=track.rejects + 1)
        return _estimate(_alarm(track, out, now, fault, text), out, now)
    if (pos, quat) == track.last:
        track = track._replace(repeats=track.repeats + 1, rejects=track.rejects + 1)
        if track.repeats + 1 >= FROZEN_POSES:
            track = _alarm(track, out, now, "FROZEN", f"{track.repeats + 1} bit-identical poses; restart the source")
        return _estimate(track, out, now)
    track = track._replace(last=(pos, quat), repeats=0)
    return _estimate(_use(track, out, t_meas, pos, quat, now), out, now)


def _use(track: Track, out: list[Message], t_meas: float, pos: Vec3, quat: Quat, now: float) -> Track:
    """The frame through filter and detector."""
    lost = track.filter.started and t_meas - track.filter.t_pos > estimate.LOST_S
    state, innovation = estimate.step(track.filter, t_meas, pos, quat)
    track = track._replace(filter=state)
    if lost:
        track = _alarm(track, out, now, "RESTARTED", "seen again after a loss; the filter starts anew")
    used = innovation.position_used and innovation.attitude_used
    if state.started and not used:
        track = track._replace(rejects=track.rejects + 1)
        if innovation.flip:
            track = _alarm(track, out, now, "FLIP", "the attitude jumped; position alone is used")
        elif not innovation.position_used and innovation.position > 0.0:
            track = track._replace(flags=(*track.flags, "OUTLIER"))
    # A confirmed flight judges all frames itself: a run of them that no filter accepts is how a catch looks.
    if not state.started or not (used or track.detector.stage == "CONFIRM"):
        return track
    detector, news = takeover.observe(
        track.detector, (t_meas, pos, quat), state.vel[2], now, armed=now < track.armed_until
    )
    return _report(track._replace(detector=detector), out, news, now)


def _report(track: Track, out: list[Message], news: takeover.News | None, now: float) -> Track:
    """The detector's news, and the prediction while a throw is on."""
    if news is not None and news.stage == "ABORT":
        out.append(_no_takeover(track, now, news.reason))
        return track
    detector, body = track.detector, track.body
    if detector.flight is None:
        return track
    t_at = detector.t_release + 1e-3 * body.throw.activate_ms
    if news is None and (detector.stage != "CONFIRM" or now - track.t_predicted < UPDATE_S):
        return track
    if now >= t_at:
        return track._replace(detector=takeover.land(detector))
    if news is not None and news.stage == "CONFIRM":
        detector = takeover.idle_from(detector, now + RELEASED_S + takeover.SPIN_UP_S)
    at = ballistic.predict_to(detector.flight, body.airframe, t_at)
    if news is not None and news.stage == "CONFIRM":
        refusal = takeover.infeasible(at, body.airframe, body.throw.floor_margin_m, body.space.low, body.space.high)
        if refusal:
            track = track._replace(detector=takeover.land(detector))
            out.append(_takeover(track, now, "ABORT", at, refusal))
            return track
    track = track._replace(detector=detector, t_predicted=now)
    out.append(_takeover(track, now, detector.stage, at, ""))
    return track


def tick(track: Track, now: float) -> Step:
    """Time that passes without a frame: alarms by age, estimates that coast, a throw that nobody sees any more."""
    out: list[Message] = []
    kept = tuple(alarm for alarm in track.alarms if now - alarm[1] < EPISODE_S)
    if len(kept) != len(track.alarms):
        track = track._replace(alarms=kept)
    detector, news = takeover.expire(track.detector, now, 1e-3 * track.body.throw.activate_ms)
    if detector is not track.detector:
        track = _report(track._replace(detector=detector), out, news, now)
    if not track.filter.started:
        return track, out
    age = now - track.filter.t_pos
    if age > max(estimate.LOST_S, 3.0 * track.body.period):
        track = _alarm(track, out, now, "LOST", f"no pose for {estimate.LOST_S * 1e3:.0f} ms")
    elif age > max(estimate.STALE_S, 3.0 * track.body.period):
        track = _alarm(track, out, now, "STALE", f"no pose for {estimate.STALE_S * 1e3:.0f} ms")
    if now - track.t_out > COAST_S:
        return _estimate(track, out, now)
    return track, out


def _fault(pos: Vec3, quat: Quat) -> tuple[str, str]:
    if not math.isfinite(sum(pos) + sum(quat)):
        return "NAN", f"position {pos} m, quaternion {quat}"
    if math.hypot(*pos) > FAR_M:
        return "FAR", f"{math.hypot(*pos):.0f} m from the origin; does the source stream millimetres?"
    if abs(math.hypot(*quat) - 1.0) > UNIT_ERROR:
        return "NOT UNIT", f"quaternion of norm {math.hypot(*quat):.3f}"
    return "", ""


def _alarm(track: Track, out: list[Message], now: float, name: str, text: str) -> Track:
    """Flag it now, and say it if this is a new episode."""
    if all(name != known for known, _ in track.alarms):
        drone = track.body.drone
        out.append(Event(t=now, name=name, drone=drone.name, text=f"body '{drone.body}': {text}"))
    others = tuple(alarm for alarm in track.alarms if alarm[0] != name)
    return track._replace(alarms=(*others, (name, now)), flags=(*track.flags, name))


def state(track: Track, now: float) -> tuple[Kinematics, str]:
    """The body at ``now`` by the model that holds, and the mode; never further than a loss lets one say."""
    mode = estimate.mode(track.filter, now)
    flight = track.detector.flight
    if flight is not None and track.detector.stage == "CONFIRM" and mode in ("TRACK", "COAST"):
        return ballistic.predict_to(flight, track.body.airframe, min(now, flight.t + estimate.LOST_S)), "BALLISTIC"
    return estimate.predict_to(track.filter, min(now, track.filter.t + estimate.LOST_S)), mode


def _estimate(track: Track, out: list[Message], now: float) -> Step:
    if not track.filter.started and not track.filter.start:
        return track, out
    at, mode = state(track, now)
    var = at.cov.diagonal().tolist()
    out.append(
        Estimate(
            t=now,
            drone=track.body.drone.name,
            t_meas=track.filter.t_pos if track.filter.started else track.filter.t,
            pos=at.pos,
            quat=at.quat,
            vel=at.vel,
            ang_vel=at.ang_vel,
            std=tuple(math.sqrt(sum(var[i : i + 3]) / 3.0) for i in (0, 3, 6, 9)),
            mode=mode,
            flags=track.flags,
        )
    )
    return track._replace(t_out=now), out


def _takeover(track: Track, now: float, stage: takeover.Stage, at: Kinematics, reason: str) -> Takeover:
    return Takeover(
        t=now,
        drone=track.body.drone.name,
        stage=stage,
        t_release=track.detector.t_release,
        t_at=at.t,
        pos=at.pos,
        quat=at.quat,
        vel=at.vel,
        ang_vel=at.ang_vel,
        cov=tuple(at.cov.ravel().tolist()),
        reason=reason,
    )


def _no_takeover(track: Track, now: float, reason: str) -> Takeover:
    at = estimate.predict_to(track.filter, min(now, track.filter.t + estimate.LOST_S))
    return msgspec.structs.replace(_takeover(track, now, "ABORT", at, reason), t_at=now)
