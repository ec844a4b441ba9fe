"""The training process: one program compiled before anyone throws, run when a release is suspected.

Nothing compiles in flight: the program is loaded or built at start and run once, and every compilation after that is
counted and reported with the result.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import zmq

import sim
from station import config as cfg
from station import messages as m
from station import process, wires
from station.clock import Clock

HEALTH_S = 0.5
NICE = 5
"""The trainer takes what the real-time processes leave."""


class Compute:
    """The sockets of a trainer."""

    def __init__(self, run_dir: Path, config: cfg.StationConfig, clock: Clock) -> None:
        self.config, self.clock = config, clock
        self.context = zmq.Context()
        self.inbox = wires.inbox(self.context, run_dir, "compute")
        self.events = wires.publisher(self.context, run_dir, "compute.events")
        self.running = True

    def serve(self) -> None:
        """Load or compile, warm up, then train whatever is asked for."""
        from station.trainer import Trainer  # JAX, after its flags are set

        trainer = Trainer(self.config, process.ROOT / ".cache" / "programs", self._progress)
        process.freeze()
        spoke, trained_jobs = 0.0, 0
        while self.running:
            now = self.clock.now()
            if now - spoke >= HEALTH_S:
                spoke = now
                wires.send(self.events, m.Health(t=now, process="compute", figures={"trained": float(trained_jobs)}))
            if not self.inbox.poll(100):
                continue
            request = wires.receive(self.inbox)
            if not isinstance(request, m.TrainRequest):
                continue
            began = self.clock.now()
            try:
                trained = trainer.train(request)
            except (KeyError, ValueError) as error:
                self._event("training_failed", f"{type(error).__name__}: {error}", request.drone)
                continue
            now = self.clock.now()
            image = m.PolicyImage(t=now, drone=request.drone, job=request.job, wall_s=now - began, **trained)
            wires.send(self.events, image)
            trained_jobs += 1
        self.context.destroy(linger=0)

    def stop(self) -> None:
        """End `serve` soon; callable from a signal handler."""
        self.running = False

    def _progress(self, text: str) -> None:
        self._event("progress", text)

    def _event(self, name: str, text: str, drone: str = "") -> None:
        wires.send(self.events, m.Event(t=self.clock.now(), name=name, drone=drone, text=text))


def main() -> None:
    """Entry point of the process: ``python -m station.compute RUN_DIR``."""
    process.follow_parent()
    if len(sys.argv) != 2:
        process.refuse("usage: python -m station.compute RUN_DIR")
    run_dir = Path(sys.argv[1])
    try:
        config = cfg.read(run_dir / "station.json", cfg.StationConfig)
        sim.flags.install()
        process.claim(nice=NICE, cores=config.train.cores or (os.cpu_count() - 1,))
        compute = Compute(run_dir, config, Clock(config.rate))
        process.on_stop(compute.stop)
        compute.serve()
    except (cfg.ConfigError, wires.PathTooLong, OSError, zmq.ZMQError) as error:
        process.refuse(f"midair: compute: {error}")


if __name__ == "__main__":
    main()
