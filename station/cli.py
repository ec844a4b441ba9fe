"""The `midair` command. Parses, and hands over; loads nothing heavy before it knows what is wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Midair: a real-time ground station for Crazyflie drones.", no_args_is_help=True, add_completion=False
)
demo = typer.Typer(help="Whole uses of the station on the virtual lab.", no_args_is_help=True)
app.add_typer(demo, name="demo")


@demo.callback()
def _demo() -> None:
    """Whole uses of the station on the virtual lab."""


@demo.command("throw")
def demo_throw(
    runs: Annotated[int, typer.Option(min=1, help="Throws; throw i has seed SEED + i.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Of the hand, the plant, the noise and the initial weights.")] = 7,
    rate: Annotated[
        float, typer.Option(min=0.01, max=1.0, help="Of the clock; below 1 for slow machines, and not real time.")
    ] = 1.0,
    loss: Annotated[float | None, typer.Option(min=0.0, max=1.0, help="Share of radio packets lost, each way.")] = None,
    mismatch: Annotated[
        float | None, typer.Option(min=0.0, max=0.5, help="Plant parameters are drawn within this share.")
    ] = None,
    drone: Annotated[str | None, typer.Option(help="Drone type.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report here.")] = None,
    record: Annotated[Path | None, typer.Option(help="Write all messages here, as MCAP.")] = None,
    config: Annotated[Path, typer.Option(help="Configuration of the station.")] = Path("configs/sim_throw.yaml"),
    lab: Annotated[Path, typer.Option(help="Configuration of the virtual lab.")] = Path("configs/scenarios/throw.yaml"),
) -> None:
    """A thrown drone learns to fly before it lands: detect, predict, train in flight, upload, catch."""
    from station.demo import Options, fly

    raise typer.Exit(fly(Options(runs, seed, rate, loss, mismatch, drone, json, report, record, config, lab)))


def main() -> None:
    """Entry point: ``python -m station.cli``."""
    app(prog_name="./midair")


if __name__ == "__main__":
    main()
