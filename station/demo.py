"""`demo throw`: the lab, a station and an experimenter who orders throws and judges them by the truth alone."""

from __future__ import annotations

import contextlib
import math
import queue
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
from rich.console import Console
from rich.text import Text

from station import airframe, experiment, judge, process, result, run_dir, safety, timeline, wires
from station import config as cfg
from station import messages as m
from station.client import Client, Silence
from station.clock import Clock
from station.daemon import FAILED, RECORD
from station.experiment import LabError, LabProcess
from station.lab import truth as truths

START_S = 180.0
"""Host seconds for a process to come up on a slow machine."""
COMPILE_S = 900.0
"""Compiling the trainer for the first time takes most of a minute on a fast machine, minutes on a slow one."""
SILENT_S = 10.0
"""A station whose processes all say nothing for so long hangs."""
STOPS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
END_S = 15.0
"""For a daemon to end: a flying drone is landed first."""
RUN_S = 90.0
"""No throw lasts so long: its phases have shorter limits of their own."""


@dataclass(frozen=True)
class Options:
    """What the command line asks for; None leaves the configuration's value."""

    runs: int
    seed: int
    rate: float | None
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
        with _interruptible():
            station, lab = _configs(options)
            _writable(options)
            with run_dir.make() as place:
                return _session(options, station, lab, place, console)
    except experiment.Refused:
        return 2
    except OSError as error:  # of the run directory or the terminal: all other files name themselves
        where = error.filename or f"standard output or a file in {tempfile.gettempdir()}"
        errors.print(f"midair: {where}: {error.strerror or error}; make room there", markup=False, soft_wrap=True)
        return 2
    except (cfg.ConfigError, wires.PathTooLong, LabError, Silence) as error:
        errors.print(Text("midair:", style="red"), Text(str(error)), soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        errors.print("midair: interrupted; everything is switched off")
        return 130


def _configs(options: Options) -> tuple[cfg.StationConfig, cfg.LabConfig]:
    """Both configurations with the command line's values in them, checked."""
    station, lab = cfg.load(options.config, cfg.StationConfig), cfg.load(options.lab, cfg.LabConfig)
    given = {key: value for key in ("loss", "mismatch") if (value := getattr(options, key)) is not None}
    if options.drone is not None:
        _known(options.drone, "--drone")
        given["drone"] = options.drone
        station = msgspec.structs.replace(
            station, drones=(msgspec.structs.replace(station.drones[0], type=options.drone), *station.drones[1:])
        )
    for index, drone in enumerate(station.drones):
        _known(drone.type, f"{options.config}: drones[{index}].type")
    rate = station.rate if options.rate is None else options.rate
    lab = msgspec.structs.replace(lab, rate=rate, **given)
    _known(lab.drone, f"{options.lab}: drone")
    return msgspec.structs.replace(station, rate=rate), lab


def _known(drone: str, where: str) -> None:
    try:
        airframe.load(drone)
    except cfg.ConfigError as error:
        raise cfg.ConfigError(f"{where}: {error}") from None


def _writable(options: Options) -> None:
    """Refuse, before anything flies, a place where a file of results cannot be made."""
    places: dict[Path, str] = {}
    for name in ("json", "report", "record"):
        path: Path | None = getattr(options, name)
        if path is None:
            continue
        if places.setdefault(path.resolve(), name) != name:
            raise cfg.ConfigError(f"--{name} {path}: --{places[path.resolve()]} writes there; give each its own file")
        try:
            new = not path.exists()
            if not new and not path.is_file():
                raise cfg.ConfigError(f"--{name} {path}: there is something that is no file; give the path of a file")
            path.open("ab").close()
            if new:
                path.unlink()
        except OSError as error:
            raise cfg.ConfigError(
                f"--{name} {path}: {error.strerror or error}; give a file in a directory where you may write"
            ) from None


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM and a closed terminal end as Ctrl-C does: once, through the same clean-up, which they do not disturb."""

    def stop(_number: int, _frame: object) -> None:
        _undisturbed()
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _undisturbed() -> None:
    """From here on the end comes by itself, in bounded time: a drone that flies is landed, never dropped."""
    for number in STOPS:  # not SIG_IGN: children would inherit it, and Python complains of signals already on their way
        signal.signal(number, lambda _number, _frame: None)


def _session(options: Options, station: cfg.StationConfig, lab: cfg.LabConfig, place: Path, console: Console) -> int:
    clock = Clock(station.rate)
    cfg.write(station, place / "station.json")
    cfg.write(lab, place / "lab.json")
    if station.rate < 1.0:
        console.print(f"[yellow]not real time[/]: the clock runs at {station.rate:g} of the host's")
    laboratory: LabProcess | None = None
    daemon: subprocess.Popen[bytes] | None = None
    client = Client(place, clock)
    try:
        laboratory = LabProcess(place)
        with _doing("starting the virtual lab", console):
            laboratory.expect("ready", START_S)
        daemon = process.start("station.daemon", place)
        _wait_ready(client, daemon, clock, console)
        if options.record is not None:
            _ask(client, daemon, "record")
        runs, curves = [], []
        for index in range(options.runs):
            path = _truth_path(options, place, index)
            run, heard = _throw(client, daemon, laboratory, options.seed + index, path, clock, console)
            runs.append(run)
            curves.append(list(heard.image.curve) if heard.image else [])
    finally:
        _undisturbed()
        with client:
            process.end([p for p in (daemon,) if p is not None], clock.wall_s(END_S))
        if laboratory is not None:
            process.end([laboratory.child], 2.0)
    status = _conclude(options, lab, place, runs, curves, console)
    return 2 if options.record is not None and daemon.returncode else status


@contextlib.contextmanager
def _doing(what: str, console: Console) -> Iterator[Callable[[str], None]]:
    """A spinner that says what takes so long; plain lines where there is no terminal."""
    if not console.is_terminal:
        console.print(what)
        yield console.print
        return
    with console.status(what) as status:
        yield status.update


def _wait_ready(client: Client, daemon: subprocess.Popen[bytes], clock: Clock, console: Console) -> None:
    """Until every process is up; what takes long is said, with what it is."""
    with _doing("starting the station", console) as say:
        allowed, missing = START_S, "the daemon does not answer"
        end, asked = clock.now() + allowed / clock.wall_s(1.0), 0.0
        while (now := clock.now()) < end:
            _alive(daemon)
            message = client.next(0.1)
            if isinstance(message, m.Event) and message.name == "progress":
                say(message.text)
                allowed = COMPILE_S
                end = now + allowed / clock.wall_s(1.0)
            if now - asked >= 0.5:
                asked = now
                with contextlib.suppress(Silence):
                    reply = client.ask("ready", timeout_s=1.0)
                    if reply.ok:
                        return
                    missing = reply.text
    raise LabError(f"the station was not ready within {allowed:.0f} s: {missing}")


def _alive(daemon: subprocess.Popen[bytes]) -> None:
    status = daemon.poll()
    if status is not None:
        raise experiment.ended("the daemon", status, said=status if status in (FAILED, process.REFUSED) else FAILED)


def _ask(client: Client, daemon: subprocess.Popen[bytes], verb: str, **values: float) -> None:
    """A verb that must succeed; of a daemon that has ended, its own reason counts."""
    try:
        reply = client.ask(verb, **values)
    except Silence:
        with contextlib.suppress(subprocess.TimeoutExpired):
            daemon.wait(2.0)  # it may be ending its children
        _alive(daemon)
        raise
    if not reply.ok:
        raise LabError(f"{verb}: {reply.text}")


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
    _ask(client, daemon, "throw", seed=float(seed))
    heard, released = Heard(), None
    with timeline.Live(seed, console) as live:
        spoke = clock.now()
        end = spoke + RUN_S
        while heard.outcome is None and (now := clock.now()) < end:
            message = client.next(clock.wall_s(0.05))
            while True:
                with contextlib.suppress(queue.Empty):
                    news = laboratory.news.get_nowait()
                    if news is None:
                        raise experiment.ended("the virtual lab", laboratory.child.wait(), said=process.REFUSED)
                    if news["event"] == "released":
                        released = news["t_host"]
                    continue
                break
            if message is not None:
                spoke = now
            else:
                _alive(daemon)
            if now - spoke > SILENT_S:
                raise LabError(f"the station hangs: nothing heard from it for {SILENT_S:g} s; try again")
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


def _truth_path(options: Options, place: Path, index: int) -> Path:
    """Beside the JSON file when there is one, else in the run directory, which goes with the run."""
    if options.json is None:
        return place / f"truth-run-{index}.npz"
    return options.json.resolve().with_name(f"{options.json.stem}-run-{index}.npz")


def _conclude(
    options: Options,
    lab: cfg.LabConfig,
    place: Path,
    runs: list[result.Run],
    curves: list[list[float]],
    console: Console,
) -> int:
    outcome = result.summarise(options.seed, lab.rate, lab, runs)
    console.print(timeline.verdict(outcome))
    truths_at = [_truth_path(options, place, index) for index in range(len(runs))]

    def write_report(path: Path) -> None:
        from station import report

        report.write(outcome, truths_at, curves, path)

    lost = []
    for path, write in (
        (options.json, lambda path: result.write(outcome, path)),
        (options.report, write_report),
        (options.record, lambda path: shutil.move(place / RECORD, path)),
    ):
        if path is None:
            continue
        try:
            write(path)
        except OSError as error:
            lost.append(f"{path}: {error.strerror or error}")
    if lost:
        raise cfg.ConfigError(f"{'; '.join(lost)}; lost: make room or choose another place, and run again")
    return 0 if outcome.good() else 1
