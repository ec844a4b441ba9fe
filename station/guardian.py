"""The guardian: owns the dongles and the drones' links. Loads no JAX, waits for nobody.

Sending happens in each link's own thread, receiving in cflib's; this loop only moves messages between them and the
station's sockets, so that no message of the daemon and no computation can delay a pose or an emergency stop.
"""

from __future__ import annotations

import collections
import contextlib
import socket
import sys
import threading
from pathlib import Path

import zmq

from hardware import crtp
from hardware.errors import HardwareError
from hardware.radio import CrazyflieLink
from station import config as cfg
from station import messages as m
from station import process, wires
from station.clock import Clock
from station.vehicle import Vehicle

CALM_S, BUSY_S = 0.01, 0.002
"""How long the loop sleeps without news: with nothing due, and with an upload or an order under way."""
HEALTH_S = 0.5
ATTEMPTS, ATTEMPT_S = 3, 4.0
"""To open a link."""


class Guardian:
    """All drones of one host, and the sockets to the rest of the station."""

    def __init__(self, run_dir: Path, config: cfg.StationConfig, clock: Clock) -> None:
        self.config, self.clock = config, clock
        self.context = zmq.Context()
        self.inbox = wires.inbox(self.context, run_dir, "guardian")
        self.events = wires.publisher(self.context, run_dir, "guardian.events")
        self.estimates = wires.subscriber(self.context, run_dir, "estimate", latest=True)
        self.vehicles = {drone.name: Vehicle(drone, config, self._tell) for drone in config.drones}
        self.closing: dict[str, threading.Thread] = {}
        """The newest thread that closes a link of each drone."""
        self.heard: collections.deque[tuple[float, str, str, object]] = collections.deque(maxlen=4096)
        """News of the links' threads: time, drone, what, value."""
        self.woken, self.wake = socket.socketpair()
        self.woken.setblocking(False)
        self.wake.setblocking(False)
        self.daemon_seen = clock.now()
        self.running = True

    def serve(self) -> None:
        """Work until told to stop."""
        poller = zmq.Poller()
        for waited in (self.inbox, self.estimates, self.woken):
            poller.register(waited, zmq.POLLIN)
        spoke = 0.0
        while self.running:
            busy = any(vehicle.busy() for vehicle in self.vehicles.values())
            ready = dict(poller.poll(1e3 * self.clock.wall_s(BUSY_S if busy else CALM_S)))
            if self.woken.fileno() in ready:
                self.woken.recv(4096)
            now = self.clock.now()
            self._listen(now)
            if now - spoke >= HEALTH_S:
                spoke = now
                self._tell(self._health(now))
        closing = [self._close(vehicle) for vehicle in list(self.vehicles.values())]
        for thread in closing:
            thread.join()
        self.context.destroy(linger=0)

    def stop(self) -> None:
        """End `serve` soon; callable from a signal handler."""
        self.running = False
        self._rouse()

    def _listen(self, now: float) -> None:
        while (message := wires.receive(self.inbox)) is not None:
            self._obey(message, now)
        estimate = wires.receive(self.estimates)
        if isinstance(estimate, m.Estimate) and estimate.drone in self.vehicles:
            self.vehicles[estimate.drone].forward(estimate, now)
        while self.heard:
            self._hear(*self.heard.popleft())
        now = self.clock.now()
        for vehicle in list(self.vehicles.values()):
            if vehicle.tick(now, now - self.daemon_seen):
                self._close(vehicle)

    def _obey(self, message: m.Message, now: float) -> None:
        if isinstance(message, m.Health):
            self.daemon_seen = now
        elif isinstance(message, m.Upload) and message.drone in self.vehicles:
            self.vehicles[message.drone].begin_upload(message, now)
        elif isinstance(message, m.Command) and message.drone in self.vehicles:
            vehicle = self.vehicles[message.drone]
            try:
                self._connect(vehicle) if message.name == "connect" else vehicle.command(message, now)
            except (KeyError, ValueError, OverflowError, HardwareError) as error:  # whoever gives a wrong order is told
                text = f"{message.name} {message.values}: {type(error).__name__}: {error}"
                self._tell(m.Event(t=now, name="order_refused", drone=message.drone, text=text))

    def _connect(self, vehicle: Vehicle) -> None:
        """Open the link in a thread of its own: it takes a second, and poses of other drones do not wait."""
        name = vehicle.drone.name
        before = self._close(vehicle)

        def work() -> None:
            before.join()  # two links to one drone would take each other's answers
            self._later(name, *self._open(vehicle.drone))

        threading.Thread(target=work, name=f"open {name}", daemon=True).start()

    def _open(self, drone: cfg.Drone) -> tuple[str, object]:
        """A link, or why there is none. Two packets of cflib's greeting are never repeated, so it is tried again."""
        failure = ""
        for _ in range(ATTEMPTS):
            try:
                return "opened", CrazyflieLink.open(
                    drone.uri,
                    dongles=self.config.dongles,
                    cache_dir=process.ROOT / ".cache" / "toc",
                    clock=self.clock,
                    on_packet=lambda packet: self._later(drone.name, "packet", packet),
                    on_sent=lambda packet: self._later(drone.name, "sent", packet),
                    on_lost=lambda reason: self._later(drone.name, "lost", reason),
                    timeout_s=ATTEMPT_S,
                )
            except HardwareError as error:
                failure = str(error)
        return "failed", failure

    def _later(self, name: str, what: str, value: object) -> None:
        """From any thread: hand over to the loop."""
        self.heard.append((self.clock.now(), name, what, value))
        self._rouse()

    def _rouse(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full: the loop has been woken a thousand times already
            self.wake.send(b"\0")

    def _hear(self, t: float, name: str, what: str, value: object) -> None:
        vehicle = self.vehicles[name]
        if isinstance(value, CrazyflieLink):
            vehicle.opened(value, t)
        elif isinstance(value, crtp.Packet):
            vehicle.sent(value, t) if what == "sent" else vehicle.packet(value, t)
        elif what == "failed":
            self._tell(m.Event(t=t, name="link_failed", drone=name, text=str(value)))
        elif what == "lost" and vehicle.link is not None:
            self._close(vehicle)
            self._tell(m.Event(t=t, name="link_lost", drone=name, text=str(value)))

    def _close(self, vehicle: Vehicle) -> threading.Thread:
        """Joining cflib's threads may take a second; nobody here waits for it. The thread ends after all before it."""
        name, link = vehicle.drone.name, vehicle.link
        before = self.closing.get(name)

        def work() -> None:
            if before is not None:
                before.join()
            if link is not None:
                link.close()

        self.vehicles[name] = Vehicle(vehicle.drone, self.config, self._tell)
        self.closing[name] = threading.Thread(target=work, name=f"close {name}")
        self.closing[name].start()
        return self.closing[name]

    def _health(self, now: float) -> m.Health:
        linked = [vehicle for vehicle in self.vehicles.values() if vehicle.link is not None]
        stats = [vehicle.link.stats() for vehicle in linked if vehicle.link is not None]
        return m.Health(
            t=now,
            process="guardian",
            figures={
                "links": float(len(linked)),
                "sent": float(sum(s.sent for s in stats)),
                "received": float(sum(s.received for s in stats)),
                "overwritten": float(sum(s.overwritten for s in stats)),
                "poses_refused": float(sum(vehicle.poses_refused for vehicle in linked)),
            },
        )

    def _tell(self, message: m.Message) -> None:
        wires.send(self.events, message)


def main() -> None:
    """Entry point of the process: ``python -m station.guardian RUN_DIR``."""
    process.follow_parent()
    if len(sys.argv) != 2:
        process.refuse("usage: python -m station.guardian RUN_DIR")
    run_dir = Path(sys.argv[1])
    sys.setswitchinterval(5e-4)
    try:
        config = cfg.read(run_dir / "station.json", cfg.StationConfig)
        process.claim(fifo=20)
        guardian = Guardian(run_dir, config, Clock(config.rate))
    except (cfg.ConfigError, wires.PathTooLong, OSError, zmq.ZMQError) as error:
        process.refuse(f"midair: guardian: {error}")
    process.on_stop(guardian.stop)
    process.freeze()
    guardian.serve()


if __name__ == "__main__":
    main()
