"""`demo throw`: the lab, a station and an experimenter who orders throws and judges them by the truth alone."""

from __future__ import annotations

import contextlib
import math
import queue
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
from rich.console import Console

from station import airframe, judge, process, result, safety, timeline
from station import config as cfg
from station import messages as m
from station.client import Client, Silence
from station.clock import Clock
from station.daemon import RECORD
from station.experiment import LabError, LabProcess
from station.lab import truth as truths

START_S = 900.0
"""Compiling the trainer for the first time takes most of a minute on a fast machine, minutes on a slow one."""
RUN_S = 90.0
"""No throw lasts so long: its phases have shorter limits of their own."""


@dataclass(frozen=True)
class Options:
    """What the command line asks for; None leaves the configuration's value."""

    runs: int
    seed: int
    rate: float
    loss: float | None
    mismatch: float | None
    drone: str | None
    json: Path | None
    report: Path | None
    record: Path | None
    config: Path
    lab: Path


@dataclass
class Heard:
    """What the station said during one throw."""

    events: dict[str, float] = field(default_factory=dict)
    """Host seconds of the first of each event since the last feint."""
    takeover: m.Takeover | None = None
    """The newest prediction before the activation."""
    image: m.PolicyImage | None = None
    upload: m.UploadStatus | None = None
    outcome: str | None = None
    """Empty when the mission ended well, None while it runs."""
    refused: bool = False

    def add(self, message: m.Message) -> bool:
        """Take a message; True when a new event is to be shown."""
        if isinstance(message, m.Takeover) and message.stage != "ABORT" and "activated" not in self.events:
            self.takeover = message
        elif isinstance(message, m.Upload):  # of several trained networks, the one that was sent
            self.image = message.image
        elif isinstance(message, m.PolicyImage) and self.upload is None:
            self.image = message
        elif isinstance(message, m.UploadStatus) and message.state == "READY":
            self.upload = message
        elif isinstance(message, m.Event):
            if message.name == "cancelled":
                self.events.clear()
            elif message.name in {"mission_done", "mission_failed"}:
                self.outcome = message.text
            elif message.name == "refused":
                self.refused = True
            elif message.name in result.EVENTS and message.name not in self.events:
                self.events[message.name] = message.t
                return True
        return False


def fly(options: Options) -> int:
    """Run the demonstration; the exit status: 0 all good, 1 fell short, 2 could not run."""
    console = Console(highlight=False)
    errors = Console(stderr=True, highlight=False)
    try:
        station, lab = _configs(options)
        _writable(options)
        with _interruptible(), tempfile.TemporaryDirectory(prefix="midair-") as name:
            return _session(options, station, lab, Path(name), console)
    except (cfg.ConfigError, LabError, Silence) as error:
        errors.print(f"[red]midair:[/] {error}", soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        errors.print("midair: interrupted; everything is switched off")
        return 130


def _configs(options: Options) -> tuple[cfg.StationConfig, cfg.LabConfig]:
    """Both configurations with the command line's values in them, checked."""
    station, lab = cfg.load(options.config, cfg.StationConfig), cfg.load(options.lab, cfg.LabConfig)
    given = {key: value for key in ("loss", "mismatch") if (value := getattr(options, key)) is not None}
    drone = options.drone or lab.drone
    try:
        airframe.load(drone)
    except KeyError as error:
        raise cfg.ConfigError(str(error.args[0])) from None
    lab = msgspec.structs.replace(lab, rate=options.rate, drone=drone, **given)
    fleet = (msgspec.structs.replace(station.drones[0], type=drone), *station.drones[1:])
    return msgspec.structs.replace(station, rate=options.rate, drones=fleet), lab


def _writable(options: Options) -> None:
    for path in (options.json, options.report, options.record):
        if path is not None and not path.resolve().parent.is_dir():
            raise cfg.ConfigError(f"{path}: no directory {path.resolve().parent}; make it first")


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM ends as Ctrl-C does: through the same clean-up."""

    def stop(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _session(options: Options, station: cfg.StationConfig, lab: cfg.LabConfig, run_dir: Path, console: Console) -> int:
    clock = Clock(options.rate)
    cfg.write(station, run_dir / "station.json")
    cfg.write(lab, run_dir / "lab.json")
    if options.rate < 1.0:
        console.print(f"[yellow]not real time[/]: the clock runs at {options.rate:g} of the host's")
    laboratory: LabProcess | None = None
    daemon: subprocess.Popen[bytes] | None = None
    client = Client(run_dir, clock)
    try:
        laboratory = LabProcess(run_dir)
        with console.status("starting the virtual lab"):
            laboratory.expect("ready", START_S)
        daemon = process.start("station.daemon", run_dir)
        _wait_ready(client, daemon, clock, console)
        if options.record is not None:
            client.ask("record")
        runs, curves = [], []
        for index in range(options.runs):
            path = _truth_path(options, run_dir, index)
            run, heard = _throw(client, daemon, laboratory, options.seed + index, path, clock, console)
            runs.append(run)
            curves.append(list(heard.image.curve) if heard.image else [])
    finally:
        with client:
            process.end([p for p in (daemon,) if p is not None], throw_end_s(daemon))
        if laboratory is not None:
            process.end([laboratory.child], 2.0)
    return _conclude(options, lab, run_dir, runs, curves, console)


def throw_end_s(daemon: subprocess.Popen[bytes] | None) -> float:
    """Host seconds that a daemon gets to end: a flying drone is landed first."""
    return 15.0 if daemon is not None else 0.0


def _wait_ready(client: Client, daemon: subprocess.Popen[bytes], clock: Clock, console: Console) -> None:
    """Until every process is up; what takes long is said, with what it is."""
    with console.status("starting the station") as status:
        end, asked = clock.now() + START_S, 0.0
        while (now := clock.now()) < end:
            if daemon.poll() is not None:
                raise LabError(f"the daemon ended with status {daemon.returncode}")
            message = client.next(0.1)
            if isinstance(message, m.Event) and message.name == "progress":
                status.update(message.text)
            if now - asked >= 0.5:
                asked = now
                with contextlib.suppress(Silence):
                    if client.ask("ready", timeout_s=1.0).ok:
                        return
    raise LabError(f"the station was not ready within {START_S:.0f} s")


def _throw(
    client: Client,
    daemon: subprocess.Popen[bytes],
    laboratory: LabProcess,
    seed: int,
    path: Path,
    clock: Clock,
    console: Console,
) -> tuple[result.Run, Heard]:
    """One throw, from a drone being switched on to the verdict on it."""
    laboratory.tell("run", seed=seed, truth=str(path))
    laboratory.expect("running", 10.0)
    reply = client.ask("throw", seed=float(seed))
    if not reply.ok:
        raise LabError(f"throw: {reply.text}")
    heard, released = Heard(), None
    with timeline.Live(seed, console) as live:
        end = clock.now() + RUN_S
        while heard.outcome is None and clock.now() < end:
            message = client.next(clock.wall_s(0.05))
            while True:
                with contextlib.suppress(queue.Empty):
                    news = laboratory.news.get_nowait()
                    if news is None:
                        raise LabError("the virtual lab ended during a throw")
                    if news["event"] == "released":
                        released = news["t_host"]
                    continue
                break
            if message is None and daemon.poll() is not None:
                raise LabError(f"the daemon ended with status {daemon.returncode}")
            if message is not None and heard.add(message) or message is None:
                live.show(since(heard.events, released))
        laboratory.tell("finish")
        laboratory.expect("finished", 20.0)
        run = assess(seed, path, heard)
        live.show(run.events_s, run)
    return run, heard


def since(events: dict[str, float], released: float | None) -> dict[str, float | None]:
    """Events in seconds since release; before the release there are none."""
    if released is None:
        return {}
    return {"release": 0.0, **{name: t - released for name, t in events.items()}}


def assess(seed: int, path: Path, heard: Heard) -> result.Run:
    """What the truth and the station's own record say about a throw."""
    truth = truths.load(path)
    verdict = judge.judge(truth)
    released, activated = truth.scalars["release_s"], truth.scalars["activation_s"]
    error = None
    if heard.takeover is not None and math.isfinite(activated):
        error = judge.prediction_error(truth, activated, *at(heard.takeover, released + activated))
    return result.assemble(seed, path.name, truth, verdict, released, heard, error)


def at(takeover: m.Takeover, t: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A predicted state carried by free fall from the moment it was made for to the moment of activation, host s."""
    dt = t - takeover.t_at
    gravity = np.array([0.0, 0.0, -9.81])
    pos, quat = safety.ahead(takeover.pos, takeover.quat, takeover.vel, takeover.ang_vel, dt)
    return (
        np.array(pos) + 0.5 * gravity * dt * dt,
        np.array(quat),
        np.array(takeover.vel) + gravity * dt,
        np.array(takeover.ang_vel),
    )


def _truth_path(options: Options, run_dir: Path, index: int) -> Path:
    """Beside the JSON file when there is one, else in the run directory, which goes with the run."""
    if options.json is None:
        return run_dir / f"truth-run-{index}.npz"
    return options.json.resolve().with_name(f"{options.json.stem}-run-{index}.npz")


def _conclude(
    options: Options,
    lab: cfg.LabConfig,
    run_dir: Path,
    runs: list[result.Run],
    curves: list[list[float]],
    console: Console,
) -> int:
    outcome = result.summarise(options.seed, options.rate, lab, runs)
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(outcome), indent=1))
    if options.report is not None:
        from station import report

        report.write(outcome, [_truth_path(options, run_dir, i) for i in range(len(runs))], curves, options.report)
    if options.record is not None:
        shutil.move(run_dir / RECORD, options.record)
    console.print(timeline.verdict(outcome))
    return 0 if outcome.good() else 1
