"""The virtual lab, its own process: plant, hand, cameras, air. The station reaches it by NatNet and radio alone.

`python -m station.virtual_lab RUN_DIR` reads RUN_DIR/lab.json and takes an experimenter's orders as JSON lines:

    stdin   {"do": "run", "seed": 7, "truth": "t.npz"}   a fresh drone, carried and perhaps thrown
            {"do": "finish"}                             end the run, write the truth
            {"do": "quit"}                               end the lab, as does the end of the input
    stdout  {"event": "ready" | "running" | "released" | "activated" | "touchdown" | "finished" | "error", ...}
"""

from __future__ import annotations

import gc
import json
import math
import queue
import signal
import sys
import threading
from collections.abc import Callable
from io import RawIOBase
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np

from firmware_patches.host import onboard
from hardware.errors import HardwareError
from hardware.virtual.crazyradio import Air
from hardware.virtual.natnet import NatNetServer
from sim.errors import ConfigError
from station import config, process
from station.clock import Clock
from station.lab import metronome
from station.lab import plant as plants
from station.lab import truth as truths
from station.lab.cameras import Cameras
from station.lab.flight import Flight, Streams
from station.lab.sensors import Mocap

HOST = "127.0.0.1"
MAX_STEPS = 5
"""Plant steps per wake-up: what a late lab makes good at once."""
GIVE_UP_S = 0.05
"""A lab further behind than this lets the time go; the run has failed, and a burst would only mislead the station."""
_SERVICE_EVERY = 4
_FIFO = 40


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the experimenter wants."""

    do: str
    seed: int = 0
    truth: str = ""


class Lab:
    """The lab between its ports: at most one run at a time."""

    def __init__(self, settings: config.LabConfig, clock: Clock, plant: plants.Plant, say: Callable[..., None]) -> None:
        self._lab, self._clock, self._plant, self._say = settings, clock, plant, say
        self._server = NatNetServer(HOST, settings.command_port, [settings.body])
        self._air: Air | None = None
        self._flight: Flight | None = None
        self._truth_path = Path()
        self._cameras = Cameras(settings, self._server)
        self._idle = Mocap(settings, np.random.default_rng(0), clock.now())
        self._away = (np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0]))
        self._ticks = 0
        self._due = clock.now()

    def open(self) -> None:
        """Take the ports; `HardwareError` names the one that cannot be had."""
        self._server.start()
        self._due = self._clock.now()
        self._cameras.restart(self._due)
        self._air = Air(HOST, self._lab.air_port)  # nobody is on the air between runs
        self._air.start()

    def close(self) -> None:
        """Give the ports back."""
        self._server.close()
        if self._air is not None:
            self._air.close()

    def obey(self, order: Order) -> bool:
        """Carry out an order; False when the lab shall end."""
        if order.do == "quit":
            return False
        if order.do == "run":
            self._run(order)
        elif order.do == "finish":
            self._finish()
        else:
            self._say("error", text=f"unknown order {order.do!r}; there are run, finish, quit")
        return True

    def _run(self, order: Order) -> None:
        if self._flight is not None:
            self._say("error", text=f"run {self._flight.seed} is still on; finish it first")
            return
        path = Path(order.truth)
        if not order.truth or not path.parent.is_dir():
            self._say(
                "error", text=f"truth {order.truth!r} is no place for a file; give a path in a directory that exists"
            )
            return
        streams = Streams(order.seed)
        # A drone just switched on has a radio that knows nothing of the last one: a new air with a new drone on it.
        if self._air is not None:
            self._air.close()
        self._air = Air(HOST, self._lab.air_port, loss=self._lab.loss, seed=streams.air_seed)
        radio = self._air.listen(self._lab.uri)
        self._flight = Flight(self._lab, order.seed, streams, self._plant, radio, self._clock.now())
        self._truth_path = path
        self._air.start()
        process.freeze()
        gc.disable()
        self._say("running", seed=order.seed)

    def _finish(self) -> None:
        if self._flight is None:
            self._say("error", text="no run is on; start one first")
            return
        flight, self._flight = self._flight, None
        gc.enable()
        assert self._air is not None
        self._air.close()
        self._air = Air(HOST, self._lab.air_port)
        self._air.start()
        truth = flight.truth()
        try:
            truths.save(truth, self._truth_path)
        except OSError as error:
            self._say("error", text=f"{self._truth_path}: {error.strerror or error}; the truth of this run is lost")
            return
        figures = {name: truth.scalars[f"{name}_s"] for name in ("activation", "touchdown")}
        self._say(
            "finished",
            truth=str(self._truth_path),
            seed=flight.seed,
            thrown=flight.thrown,
            plant_lag_max_s=flight.lag_max_s,
            **{f"{name}_s": None if math.isnan(value) else value for name, value in figures.items()},
        )

    def tick(self, due: float) -> None:
        """One millisecond of the lab that stands for host time ``due``."""
        flight = self._flight
        if flight is None:
            self._cameras.expose(due, self._idle, *self._away, tracked=False)
        else:
            for name, data in flight.tick(due, self._clock.now):
                self._say(name, **data)
            self._cameras.expose(due, flight.mocap, *flight.pose, tracked=flight.tracked)
        self._ticks += 1
        if self._ticks % _SERVICE_EVERY == 0:
            self._server.service(self._clock.now())

    def beat(self, orders: queue.SimpleQueue[Order | None]) -> float | None:
        """Do what is due by the host's clock: orders, ticks at absolute deadlines of 1 ms, frames.

        Returns:
            When the next tick or frame is due; None when the lab shall end.
        """
        clock, cameras = self._clock, self._cameras
        if not orders.empty():
            order, flight = orders.get(), self._flight
            if order is None or not self.obey(order):
                return None
            if self._flight is not flight:  # what it costs to begin and end a run is no lag
                self._due = clock.now()
        now = clock.now()
        steps = 0
        while self._due <= now and steps < MAX_STEPS:
            self.tick(self._due)
            self._due += plants.DT
            steps += 1
            now = clock.now()
        cameras.send(now)
        if now - self._due > GIVE_UP_S:
            self._due = now
        return min(self._due, cameras.due)


def listen(stream: RawIOBase, orders: queue.SimpleQueue[Order | None], say: Callable[..., None]) -> None:
    """Turn lines into orders until the input ends; None is the end."""
    decoder = msgspec.json.Decoder(Order)
    for line in stream:
        if not line.strip():
            continue
        try:
            orders.put(decoder.decode(line))
        except msgspec.DecodeError as error:
            say("error", text=f"not an order: {error}")
    orders.put(None)


def say(name: str, **data: Any) -> None:
    """Tell the experimenter; one who has gone is not waited for."""
    line = json.dumps({"event": name, **data}) + "\n"
    try:
        sys.stdout.write(line)
        sys.stdout.flush()
    except (BrokenPipeError, ValueError):
        pass


def main(arguments: list[str]) -> int:
    """The process; returns its exit status."""
    process.follow_parent()
    if len(arguments) != 1:
        process.refuse("usage: python -m station.virtual_lab RUN_DIR")
    path = Path(arguments[0]) / "lab.json"
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until there is something to close, die at once
    try:
        settings = config.read(path, config.LabConfig)
        onboard.load()
    except (config.ConfigError, OSError) as error:
        process.refuse(f"midair: virtual lab: {error}")
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    plants.cache(process.ROOT / ".cache" / "jax")
    orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
    threading.Thread(target=listen, args=(open(0, "rb", buffering=0, closefd=False), orders, say), daemon=True).start()
    try:
        plant = plants.Plant(settings.drone, settings.start_delay_s)
        clock = Clock(settings.rate)
        lab = Lab(settings, clock, plant, say)
    except ConfigError as error:
        process.refuse(f"midair: virtual lab: {path}: drone: {error}")
    stop = threading.Event()
    process.on_stop(stop.set)
    try:
        lab.open()
        sys.setswitchinterval(2e-4)
        process.claim(fifo=_FIFO)
        process.freeze()
        say("ready")
        metronome.keep(lambda: lab.beat(orders), clock, stop.is_set)
    except HardwareError as error:
        process.refuse(f"midair: virtual lab: {error}")
    finally:
        lab.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
