"""The `midair` command. Parses, and hands over; loads nothing heavy before it knows what is wanted."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Annotated

if __name__ == "__main__":  # until there is something to switch off, Ctrl-C just ends
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import typer

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
app = typer.Typer(
    help="Midair: a real-time ground station for Crazyflie drones.", no_args_is_help=True, add_completion=False
)
demo = typer.Typer(help="Whole uses of the station on the virtual lab.", no_args_is_help=True)
app.add_typer(demo, name="demo")
bench = typer.Typer(help="Figures of an area, each with the target it must reach.", no_args_is_help=True)
app.add_typer(bench, name="bench")


def _version(wanted: bool) -> None:
    if wanted:
        from station import __version__

        typer.echo(f"midair {__version__}")
        raise typer.Exit()


@app.callback()
def _midair(
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Midair: a real-time ground station for Crazyflie drones."""


@app.command("test", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def test() -> None:
    """Install the test tools and run every check and test; further arguments go to pytest."""
    typer.echo("the tests are run by ./midair test, which also installs what they need", err=True)
    raise typer.Exit(2)


@demo.callback()
def _demo() -> None:
    """Whole uses of the station on the virtual lab."""


@demo.command("throw")
def demo_throw(
    runs: Annotated[int, typer.Option(min=1, help="Throws, with the seeds SEED, SEED + 1, ...")] = 1,
    seed: Annotated[
        int, typer.Option(min=0, max=2**31 - 1, help="Of the hand, the plant, the noise and the initial weights.")
    ] = 7,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            max=1.0,
            help="Speed of the clock; below 1 for slow machines: not real time. Else the configuration's, 1.",
        ),
    ] = None,
    loss: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Share of radio packets lost, each way. Else the lab's, 0.02."),
    ] = None,
    mismatch: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=0.5, help="The drone's parameters are off by up to this share. Else the lab's, 0.05."
        ),
    ] = None,
    drone: Annotated[
        str | None,
        typer.Option(help="Drone type: cf21B_500, cf2x_L250, cf2x_P250 or cf2x_T350. Else the lab's, cf21B_500."),
    ] = None,
    json: Annotated[
        Path | None, typer.Option(help="Write the result here, and the true trajectories beside it.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report here.")] = None,
    record: Annotated[Path | None, typer.Option(help="Write all messages of the station here, as MCAP.")] = None,
    config: Annotated[
        Path, typer.Option(help="Configuration of the station.", show_default="configs/sim_throw.yaml")
    ] = CONFIGS / "sim_throw.yaml",
    lab: Annotated[
        Path, typer.Option(help="Configuration of the virtual lab.", show_default="configs/scenarios/throw.yaml")
    ] = CONFIGS / "scenarios" / "throw.yaml",
) -> None:
    """A thrown drone learns to fly before it lands: detect, predict, train in flight, upload, catch."""
    from station.demo import Options, fly

    raise typer.Exit(fly(Options(runs, seed, rate, loss, mismatch, drone, json, report, record, config, lab)))


@bench.callback()
def _bench() -> None:
    """Figures of an area, each with the target it must reach."""


@bench.command("sim")
def bench_sim(
    quick: Annotated[bool, typer.Option("--quick", help="A few figures in at most a minute.")] = False,
    agree: Annotated[bool, typer.Option("--agree", help="Also fly every model with both and compare.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write the figures here.")] = None,
) -> None:
    """The simulator against its peer, crazyflow: speed on the same work, memory, compilation, agreement."""
    from station.bench.sim import Options, run

    raise typer.Exit(run(Options(quick, agree, json)))


def main() -> None:
    """Entry point: ``python -m station.cli``."""
    hold_streams()
    app(prog_name="./midair")


def hold_streams() -> None:
    """Put /dev/null in the place of standard streams that are closed, or a socket would get their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free: this one


if __name__ == "__main__":
    main()
