"""`bench sim`: the simulator against the peer's on the same work, in turn. Decides what is run and what it means.

Three processes stand ready: ours, the peer with JAX's defaults and the peer with our XLA flags. Only one of them works
at a time; of the peer's two the better run counts. Mass, inertia, disturbance, state and command differ from world to
world and from call to call.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sim import flags
from station import process
from station.bench import agreement, cases, chart, machine, peer
from station.bench.figures import Figure, document, number, status, table
from station.bench.worker import OURS, PEER, Worker, WorkerError
from station.clock import Clock

QUICK_S = 32.0
"""`--quick` starts no new figure after this, so that it ends within a minute."""
SUBJECTS = ("ours", "peer", "peer, our flags")


@dataclass(frozen=True)
class Options:
    """What the command line asks for."""

    quick: bool = False
    agree: bool = False
    json: Path | None = None


@dataclass(frozen=True)
class Effort:
    """How long to measure a figure."""

    rounds: int
    budget_s: float
    """Of each process in a round."""
    least: int
    """Calls in a round, however long they take."""
    together: bool
    """Compile in all processes at once: ready sooner, but what a compilation takes is not known then."""


FULL, QUICK = Effort(5, 0.3, 1, together=False), Effort(3, 0.1, 1, together=True)


def run(options: Options) -> int:
    """The whole bench; the exit status: 0 every measured figure met, 1 one fell short, 2 could not run."""
    console, errors = Console(highlight=False), Console(stderr=True, highlight=False)
    try:
        return _run(options, console, errors)
    except (peer.PeerError, WorkerError) as error:
        errors.print(f"[red]midair:[/] {error}", soft_wrap=True)
        return 2
    except OSError as error:
        errors.print(f"[red]midair:[/] {error}", soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        errors.print("midair: interrupted")
        return 130


def _run(options: Options, console: Console, errors: Console) -> int:
    if options.json is not None and not options.json.resolve().parent.is_dir():
        raise peer.PeerError(f"--json: there is no folder {options.json.resolve().parent}")
    now = Clock().now
    python = peer.ready(process.ROOT, lambda text: errors.print(f"midair: {text}"))
    busy = machine.busy_share()
    if busy > machine.BUSY_SHARE:
        errors.print(f"[yellow]midair:[/] {busy:.0%} of the cores are busy with other things; ratios are preliminary")
    about = machine.described(busy)
    ends_at = now() + QUICK_S if options.quick else float("inf")
    wanted = [case for case in cases.speed() if not options.quick or case.name in cases.QUICK]
    if options.quick:
        wanted.sort(key=lambda case: cases.QUICK.index(case.name))
    with Progress(
        TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=errors, transient=True,
    ) as progress:  # fmt: skip
        effort = QUICK if options.quick else FULL
        runs, versions = _speed(python, wanted, effort, lambda: now() < ends_at, progress)
        memory = None if options.quick else _memory(python, progress)
        apart = _agreement(python, options, progress) if options.agree else []
    about["versions"] = versions
    figures = figures_of(runs, memory, apart)
    raw: dict[str, Any] = {**runs, **({"memory": memory} if memory else {})}
    if apart:
        raw["agreement"] = {a.title: {"first10": a.first10, "all400": a.all400, "text": a.text} for a in apart}
    report = document(figures, about, machine.commit(process.ROOT), raw)
    console.print(
        table(figures, f"sim against {versions['peer']['simulator']} on {about['cpu']}, {about['cores']} cores")
    )
    for text in [f"{a.title}: {a.text}" for a in apart if a.text]:
        errors.print(f"[red]{text}[/]", soft_wrap=True)
    _keep(report, options, console)
    return status(figures)


def _keep(report: dict[str, Any], options: Options, console: Console) -> None:
    # msgspec writes null for what is no number.
    text = msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"
    if options.json is not None:
        options.json.write_bytes(text)
    if not options.quick:
        folder = process.ROOT / "benchmarks"
        folder.mkdir(exist_ok=True)
        path = folder / f"sim-{report['machine']['name']}.json"
        path.write_bytes(text)
        chart.write(report, path.with_suffix(".html"))
        console.print(f"figures in {path.relative_to(process.ROOT)}, the plot beside it")


def start(python: Path, which: str, **environment: str) -> Worker:
    """A process of one of the `SUBJECTS`."""
    if which == "ours":
        return Worker(which, Path(sys.executable), OURS, environment)
    own = {"XLA_FLAGS": flags.merged("")} if which == "peer, our flags" else {}
    return Worker(which, python, PEER, {**own, **environment})


def _speed(
    python: Path, wanted: list[cases.Case], effort: Effort, in_time: Callable[[], bool], progress: Progress
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Raw measurements by figure, and what the processes say of themselves."""
    runs: dict[str, Any] = {}
    with ExitStack() as stack:
        workers = {which: start(python, which) for which in SUBJECTS}
        for worker in workers.values():
            stack.callback(worker.close)
        versions = {which: worker.about() for which, worker in workers.items()}
        bar = progress.add_task("speed", total=len(wanted))
        for case in wanted:
            progress.update(bar, description=case.name)
            if in_time():
                runs[case.name] = measure(workers, case, effort)
            progress.advance(bar)
        progress.remove_task(bar)
    return runs, versions


def measure(workers: dict[str, Worker], case: cases.Case, effort: Effort) -> dict[str, Any]:
    """Seconds of calls of each process, in turn, and what they say of the first call."""
    result: dict[str, Any] = {"together": effort.together}
    rounds: dict[str, list[list[float]]] = {which: [] for which in workers}
    prepare = {"verb": "prepare", "key": case.name, "spec": case.spec, "steps": case.steps}
    for worker in workers.values() if effort.together else ():
        worker.ask(**prepare)
    for which, worker in workers.items():
        try:
            result[which] = worker.answer() if effort.together else worker.do(**prepare)
        except WorkerError as failure:
            if which != "ours":
                raise
            result["failure"] = str(failure)
    if "failure" not in result:
        order = list(workers)
        for _ in range(effort.rounds):
            for which in order:
                answer = workers[which].do(
                    "time", key=case.name, steps=case.steps, budget_s=effort.budget_s, least=effort.least
                )
                rounds[which].append(answer["seconds"])
            order = order[1:] + order[:1]
        for which, taken in rounds.items():
            calls = [seconds for one in taken for seconds in one]
            medians = [statistics.median(one) for one in taken]
            result[which] |= {"median_s": statistics.median(calls), "min_s": min(calls), "rounds_s": medians}
    for worker in workers.values():
        worker.do("forget", key=case.name)
    return result


def ratio(run: dict[str, Any]) -> float:
    """How many times ours is faster than the peer's better process: median over the rounds."""
    best = min((which for which in run if which.startswith("peer")), key=lambda which: run[which]["median_s"])
    pairs = zip(run[best]["rounds_s"], run["ours"]["rounds_s"], strict=True)
    return statistics.median(theirs / ours for theirs, ours in pairs)


def compile_ratio(runs: dict[str, Any]) -> float | None:
    """First calls of all programs together, ours as share of the peer's better."""
    whole = [run for run in runs.values() if "failure" not in run]
    if not whole or any(run["together"] for run in whole):
        return None
    sums = {which: sum(run[which]["first_s"] for run in whole) for which in SUBJECTS}
    return sums["ours"] / min(sums[which] for which in SUBJECTS if which != "ours")


def _memory(python: Path, progress: Progress) -> dict[str, float]:
    """Bytes a world costs at its peak, by process: each size in a process of its own."""
    # A threshold that does not adapt: freed memory goes back, and the resident size is what is in use.
    fixed = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
    found = {}
    bar = progress.add_task("memory", total=2 * len(SUBJECTS))
    small, large = cases.MEMORY
    for which in SUBJECTS:
        peaks = []
        for spec in (small, large):
            worker = start(python, which, **fixed)
            try:
                peaks.append(worker.do("memory", spec=spec, steps=cases.STEPS)["bytes"])
            except WorkerError:
                if which != "ours":
                    raise
                peaks.append(float("nan"))
            finally:
                worker.close()
            progress.advance(bar)
        found[which] = (peaks[1] - peaks[0]) / (large["worlds"] - small["worlds"])
    progress.remove_task(bar)
    return found


def _agreement(python: Path, options: Options, progress: Progress) -> list[agreement.Apart]:
    specs = cases.quick_agreement() if options.quick else cases.agreement()
    bar = progress.add_task("agreement", total=len(specs))

    def said(result: agreement.Apart) -> None:
        progress.update(bar, advance=1, description=f"{number(result.all400)} {result.title}")

    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="midair-agree-") as name:
        ours, theirs = (start(python, which, JAX_ENABLE_X64="1") for which in SUBJECTS[:2])
        stack.callback(ours.close)
        stack.callback(theirs.close)
        found = agreement.compare(ours, theirs, specs, Path(name), said)
    progress.remove_task(bar)
    return found


def figures_of(runs: dict[str, Any], memory: dict[str, float] | None, apart: list[agreement.Apart]) -> list[Figure]:
    """All figures of this area; those not measured have no value.

    Args:
        runs: raw measurements by name of the figure.
        memory: bytes a world, by process.
        apart: results of the agreement.
    """
    found = []
    for case in cases.speed():
        run, value = runs.get(case.name), None
        if run is not None:
            value = float("inf") if "failure" in run else ratio(run)
            if case.op == "<=" and "failure" not in run:
                value = 1.0 / value
        found.append(Figure(name=case.name, value=value, unit="x", op=case.op, target=case.target))
    share = None
    if memory is not None:
        share = memory["ours"] / min(memory[which] for which in SUBJECTS if which != "ours")
        share = float("inf") if math.isnan(share) else share
    found.append(Figure(name="memory", value=share, unit="x", op="<=", target=1.0))
    found.append(Figure(name="compile", value=compile_ratio(runs), unit="x", op="<=", target=1.0))
    for name, limit, errors in (
        ("agree_first10", 1e-9, [a.first10 for a in apart]),
        ("agree_400", 1e-6, [a.all400 for a in apart]),
    ):
        found.append(Figure(name=name, value=max(errors, default=None), unit="", op="<=", target=limit))
    return found
