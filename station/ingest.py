"""The ingest process: frames of one source in, estimates and takeovers out. Owns sockets and clock, decides nothing.

Each frame is synced, filtered and published before the next one is read. Loads no JAX; its garbage is collected before
the first frame, and what was built by then is never looked at again.
"""

from __future__ import annotations

import asyncio
import math
import signal
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec
import zmq

from hardware.errors import HardwareError
from hardware.natnet import NatNetSource
from hardware.ports import Frame
from station import airframe, process, sync, tracker, wires
from station.clock import Clock
from station.config import ConfigError, StationConfig, read
from station.messages import ArmThrow, Estimate, Event, Health, Message

TICK_S = 0.005
HEALTH_S = 1.0
JOIN_S = 0.25
"""Host seconds from binding to "ready": a subscriber that came before the socket tries again every 0.1 s."""
SOURCE_EVENTS = {"unknown-body": "UNKNOWN BODY"}
"""Names of the source that are alarms of ours."""


class Ingest:
    """One source, its clock and its bodies."""

    def __init__(self, config: StationConfig, clock: Clock, run_dir: Path, context: zmq.Context) -> None:
        self.clock = clock
        self.config = config
        self.inbox = wires.inbox(context, run_dir, "ingest")
        self.estimates = wires.publisher(context, run_dir, "estimate")
        self.events = wires.publisher(context, run_dir, "ingest.events")
        self.tracks: dict[str, tracker.Track] = {
            drone.body: tracker.init(
                drone, airframe.load(drone.type, drone.rot_damping), config.source, config.throw, config.space
            )
            for drone in config.drones
        }
        self.sync = sync.Sync()
        self.sent: Counter[type] = Counter()
        self.seen: set[str] = set()
        self.started = clock.now()
        self.missing_told = False
        self.figures = _Figures()
        source = config.source
        self.source = NatNetSource(source.host, source.command_port, self.on_frame, clock.now, self.on_source_event)

    def on_frame(self, frame: Frame) -> None:
        """One body of one frame, from the socket to the published estimate."""
        self.seen.add(frame.body)
        track = self.tracks.get(frame.body)
        if track is None:
            return
        constant = 1e-3 * self.config.source.latency_ms + (frame.latency_s or 0.0)
        steps = self.sync.steps
        self.sync = sync.observe(self.sync, frame.t_source, frame.t_arrival - constant)
        if self.sync.steps != steps:
            self.publish([Event(t=frame.t_arrival, name="CLOCK STEP", text="the source's clock jumped; synced anew")])
        # A line that has not yet noticed a step must not date a frame later than it came.
        t_meas = min(sync.to_host(self.sync, frame.t_source), frame.t_arrival)
        now = self.clock.now()
        self.tracks[frame.body], out = tracker.observe(track, frame, t_meas, now)
        self.publish(out)
        self.figures.frame(frame.t_arrival, t_meas, self.clock.now())

    def on_source_event(self, name: str, text: str) -> None:
        """News of the source about itself."""
        now = self.clock.now()
        if name == "rejected" and "not-finite" in text:
            name = "NAN"
        self.publish([Event(t=now, name=SOURCE_EVENTS.get(name, name), text=text)])

    def tick(self) -> None:
        """What time brings: orders, alarms by age, health."""
        now = self.clock.now()
        while (message := wires.receive(self.inbox)) is not None:
            if isinstance(message, ArmThrow):
                self.arm(message, now)
        for body, track in self.tracks.items():
            self.tracks[body], out = tracker.tick(track, now)
            self.publish(out)
        if not self.missing_told and now - self.started > 1.0:
            self.missing_told = True
            self.tell_missing(now)
        if now - self.figures.since >= HEALTH_S:
            figures = self.figures.close(now)
            figures |= {
                "clock_drift_ppm": 1e6 * self.sync.drift,
                "clock_line": float(sync.quality(self.sync) == "line"),
                "clock_steps": float(self.sync.steps),
                "rejects": float(sum(track.rejects for track in self.tracks.values())),
                **{f"source_{key}": float(value) for key, value in self.source.counts.items()},
                **{f"refused_{key}": float(value) for key, value in self.source.rejects.items()},
            }
            self.publish([Health(t=now, process="ingest", figures=figures)])

    def arm(self, order: ArmThrow, now: float) -> None:
        """Open or close the operator's window of one drone."""
        for body, track in self.tracks.items():
            if track.body.drone.name == order.drone:
                self.tracks[body], out = tracker.arm(track, order.until, now)
                self.publish(out)

    def tell_missing(self, now: float) -> None:
        """Bodies of the config that the source has not shown, with the names that it does show."""
        names = sorted(self.seen | set(self.source.names))
        for body, track in self.tracks.items():
            if body not in names:
                text = f"no body '{body}' in the source; it streams {', '.join(names) or 'none'}; correct drones.body"
                self.publish([Event(t=now, name="UNKNOWN BODY", drone=track.body.drone.name, text=text)])

    def publish(self, out: Iterable[Message]) -> None:
        """Send what was made, numbered per type; a full queue drops."""
        for message in out:
            kind = type(message)
            self.sent[kind] += 1
            socket = self.estimates if kind is Estimate else self.events
            wires.send(socket, msgspec.structs.replace(message, seq=self.sent[kind]))

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop.

        Raises:
            HardwareError: the source does not come up.

        """
        loop = asyncio.get_running_loop()
        bound = loop.time()
        opening = asyncio.ensure_future(self.source.open())
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait((opening, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                return
            opening.result()
            process.freeze()
            told = False
            while not stop.is_set():
                self.tick()
                if not told and loop.time() - bound > JOIN_S:
                    told = True
                    self.publish([Event(t=self.clock.now(), name="ready", text="ingest")])
                await asyncio.sleep(self.clock.wall_s(TICK_S))
        finally:
            opening.cancel()
            stopping.cancel()
            self.source.close()


class _Figures:
    """Counts of one second."""

    def __init__(self) -> None:
        self.since = -math.inf
        self.last = math.nan
        self._clear(self.since)

    def _clear(self, now: float) -> None:
        self.since = now
        self.gaps: list[float] = []
        self.latency: list[float] = []
        self.cost: list[float] = []

    def frame(self, t_arrival: float, t_meas: float, done: float) -> None:
        """One frame: when it came, when it was exposed, when its estimate was out."""
        if self.last < t_arrival:
            self.gaps.append(t_arrival - self.last)
        self.last = t_arrival
        self.latency.append(t_arrival - t_meas)
        self.cost.append(done - t_arrival)

    def close(self, now: float) -> dict[str, float]:
        """The figures since the last call."""
        gaps, latency, cost, since = self.gaps, self.latency, sorted(self.cost), self.since
        self._clear(now)
        if not cost or not math.isfinite(since):
            return {"rate_hz": 0.0}
        mean = sum(gaps) / len(gaps) if gaps else 0.0
        return {
            "rate_hz": len(gaps) / (now - since),
            "jitter_ms": 1e3 * math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / max(1, len(gaps))),
            "latency_ms": 1e3 * sum(latency) / len(latency),
            "latency_max_ms": 1e3 * max(latency),
            "cost_us": 1e6 * sum(cost) / len(cost),
            "cost_p99_us": 1e6 * cost[int(0.99 * (len(cost) - 1))],
            "cost_max_us": 1e6 * cost[-1],
        }


async def _main(ingest: Ingest) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await ingest.run(stop)


def main() -> None:
    """Entry point of the process: ``python -m station.ingest RUN_DIR``."""
    process.follow_parent()
    if len(sys.argv) != 2:
        process.refuse("usage: python -m station.ingest RUN_DIR")
    run_dir = Path(sys.argv[1])
    context = zmq.Context()
    try:
        config: StationConfig = read(run_dir / "station.json", StationConfig)
        ingest = Ingest(config, Clock(config.rate), run_dir, context)
        process.claim(fifo=15)
        try:
            import uvloop
        except ImportError:
            asyncio.run(_main(ingest))
        else:
            uvloop.run(_main(ingest))
    except (OSError, msgspec.MsgspecError, zmq.ZMQError, wires.PathTooLong, ConfigError, HardwareError) as error:
        process.refuse(f"midair: ingest: {error}")
    finally:
        context.destroy(linger=0)


if __name__ == "__main__":
    main()
