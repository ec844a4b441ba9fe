"""The daemon: composes the processes, runs missions, answers verbs, records. Loads no JAX, computes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import uvloop
import zmq
import zmq.asyncio

from station import config as cfg
from station import messages as m
from station import process, wires
from station.clock import Clock, next_tick
from station.missions import throw
from station.recorder import Recorder

CHILDREN = ("station.ingest", "station.guardian", "station.compute")
TICK_S = 0.01
HEARTBEAT_S = 0.05
WATCH_S = 0.1
SILENT_S = 5.0
"""A child that says nothing for so long hangs; each tells its health at least once a second."""
FAILED = 1
"""Exit status after a failure, which has been told in one line."""
RECORD = "record.mcap"
"""Written in the run directory when `record` is asked for."""


class Daemon:
    """One station: its children, its mission, its sockets. Lives from `serve` to the end of the process."""

    def __init__(self, run_dir: Path, config: cfg.StationConfig, clock: Clock) -> None:
        self.run_dir = run_dir
        self.config = config
        self.clock = clock
        self.context = zmq.asyncio.Context()
        self.telemetry = wires.publisher(self.context, run_dir, "telemetry")
        self.api = self.context.socket(zmq.ROUTER)
        self.api.linger = 0
        self.api.bind(wires.endpoint(run_dir, "api"))
        self.outboxes = {name: wires.outbox(self.context, run_dir, name) for name in ("ingest", "guardian", "compute")}
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.silent_s: dict[str, float] = {}
        """Since the last health of each child that has told one; counted, so that our own sleep is not theirs."""
        self.mission: throw.Mission | None = None
        self.recorder: Recorder | None = None
        self.failure = ""
        self.told = False
        """Whether a child has told the failure itself."""
        self.ending = asyncio.Event()
        self.seq = 0

    async def serve(self) -> int:
        """Run until told to end; the exit status."""
        loop = asyncio.get_running_loop()
        process.on_stop(lambda: loop.call_soon_threadsafe(self.ending.set))
        for module in CHILDREN:
            self.children[module] = process.start(module, self.run_dir)
        tasks = [asyncio.create_task(work) for work in self._work()]
        for task in tasks:
            task.add_done_callback(self._died)
        try:
            await self.ending.wait()
            if self.mission is not None:
                await self._wind_down()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.to_thread(process.end, list(self.children.values()), 2.0)
            self._end_record()
            self.context.destroy(linger=0)
        if self.failure and not self.told:
            print(f"midair: {self.failure}", file=sys.stderr, flush=True)
        return FAILED if self.failure else 0

    def _work(self) -> list[object]:
        listen = [
            self._listen(wires.subscriber(self.context, self.run_dir, "estimate")),
            self._listen(wires.subscriber(self.context, self.run_dir, "ingest.events")),
            self._listen(wires.subscriber(self.context, self.run_dir, "guardian.events")),
            self._listen(wires.subscriber(self.context, self.run_dir, "compute.events")),
        ]
        return [*listen, self._answer(), self._tick(), self._watch()]

    def _died(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.failure = f"daemon: {task.exception()!r}"
            self.ending.set()

    async def _wind_down(self) -> None:
        """A flying drone is landed before anything is switched off; everything else stops at once."""
        why = self.failure or "interrupted"
        self._apply(lambda mission, now: throw.interrupt(mission, now, why))
        until = self.clock.now() + throw.LAND_S
        while self.mission is not None and self.clock.now() < until:
            await asyncio.sleep(self.clock.wall_s(TICK_S))
        if self.mission is not None:
            self._apply(lambda mission, now: throw.abort(mission, now, why))
        await asyncio.sleep(self.clock.wall_s(0.1))  # the last orders leave the radio

    async def _listen(self, socket: zmq.asyncio.Socket) -> None:
        while True:
            message = m.decode(await socket.recv())
            self._publish(message)
            if isinstance(message, m.Health):
                self.silent_s[message.process] = 0.0
            self._apply(lambda mission, now, message=message: throw.step(mission, message, now))

    async def _tick(self) -> None:
        due, beat = self.clock.now(), 0.0
        while True:
            due, _ = next_tick(due, self.clock.now(), TICK_S)
            await asyncio.sleep(self.clock.wall_s(max(0.0, due - self.clock.now())))
            now = self.clock.now()
            if now - beat >= HEARTBEAT_S:
                beat = now
                self._send("guardian", m.Health(t=now, process="daemon"))
            self._apply(lambda mission, now: throw.step(mission, None, now))

    async def _watch(self) -> None:
        """A child that ends or hangs takes the station down; what flies is landed first, if it can still be told so."""
        while not self.ending.is_set():
            await asyncio.sleep(self.clock.wall_s(WATCH_S))
            for name in self.silent_s:
                self.silent_s[name] += WATCH_S
            for module, child in self.children.items():
                failure = self._fault(module, child.poll())
                if not failure:
                    continue
                self.told = not self.failure and child.returncode == process.REFUSED
                self.failure = self.failure or failure
                if module == "station.guardian":
                    self._apply(lambda mission, now: throw.abort(mission, now, self.failure))
                self.ending.set()

    def _fault(self, module: str, status: int | None) -> str:
        if status is not None:
            return f"{module} {process.ending(status)}; the station stops"
        if self.silent_s.get(module.removeprefix("station."), 0.0) >= SILENT_S:
            return f"{module} hangs: nothing heard for {SILENT_S:g} s; the station stops"
        return ""

    async def _answer(self) -> None:
        while True:
            frames = await self.api.recv_multipart()
            if len(frames) != 3:  # not from a REQ socket: nobody there waits for a reply
                continue
            client, _, body = frames
            try:
                verb = m.decode(body)
                reply = self._obey(verb) if isinstance(verb, m.Verb) else self._reply(False, "a Verb is needed")
            except Exception as error:  # whatever a client sends, it gets an answer and nobody else notices
                reply = self._reply(False, f"not understood: {error}")
            await self.api.send_multipart([client, b"", m.encode(reply)])

    def _obey(self, verb: m.Verb) -> m.Reply:
        verbs: dict[str, Callable[[m.Verb], m.Reply]] = {
            "ready": self._verb_ready,
            "record": self._verb_record,
            "throw": self._verb_throw,
            "estop": self._verb_estop,
            "shutdown": self._verb_shutdown,
        }
        if verb.name not in verbs:
            return self._reply(False, f"unknown verb '{verb.name}'; known: {', '.join(sorted(verbs))}")
        return verbs[verb.name](verb)

    def _verb_ready(self, _verb: m.Verb) -> m.Reply:
        missing = sorted({module.removeprefix("station.") for module in CHILDREN} - set(self.silent_s))
        return self._reply(not missing, f"waiting for {', '.join(missing)}" if missing else "")

    def _verb_record(self, _verb: m.Verb) -> m.Reply:
        if self.recorder is None:
            self.recorder = Recorder(self.run_dir / RECORD, self.config)
        return self._reply(True)

    def _verb_throw(self, verb: m.Verb) -> m.Reply:
        if self.mission is not None:
            return self._reply(False, "a mission is running; stop it first")
        drone = next((d for d in self.config.drones if d.name == (verb.drone or self.config.drones[0].name)), None)
        if drone is None:
            names = ", ".join(d.name for d in self.config.drones)
            return self._reply(False, f"no drone '{verb.drone}' in the config; there are: {names}")
        c = self.config
        mission = throw.Mission(drone, c.throw, c.train, c.space, seed=int(verb.values.get("seed", 0)))
        self.mission, out = throw.start(mission, self.clock.now())
        self._emit(out)
        return self._reply(True)

    def _verb_estop(self, _verb: m.Verb) -> m.Reply:
        now = self.clock.now()
        for drone in self.config.drones:
            self._send("guardian", m.Command(t=now, drone=drone.name, name="estop"))
        self._apply(lambda mission, now: throw.abort(mission, now, "emergency stop"))
        return self._reply(True)

    def _verb_shutdown(self, _verb: m.Verb) -> m.Reply:
        self.ending.set()
        return self._reply(True)

    def _reply(self, ok: bool, text: str = "") -> m.Reply:
        return m.Reply(t=self.clock.now(), ok=ok, text=text)

    def _apply(self, act: Callable[[throw.Mission, float], throw.Step]) -> None:
        if self.mission is None:
            return
        self.mission, out = act(self.mission, self.clock.now())
        self._emit(out)
        if self.mission.phase is throw.Phase.DONE:
            self.mission = None

    def _emit(self, out: list[m.Message]) -> None:
        """Each kind of message has one receiver."""
        for message in out:
            if isinstance(message, m.Command | m.Upload):
                self._send("guardian", message)
            elif isinstance(message, m.TrainRequest):
                self._send("compute", message)
            elif isinstance(message, m.ArmThrow):
                self._send("ingest", message)
            self._publish(message)

    def _send(self, name: str, message: m.Message) -> None:
        with contextlib.suppress(zmq.Again):  # a full queue belongs to a dead process, and `_watch` sees that
            self.outboxes[name].send(m.encode(message), zmq.NOBLOCK)

    def _publish(self, message: m.Message) -> None:
        self.telemetry.send(m.encode(message), zmq.NOBLOCK)
        if self.recorder is not None:
            try:
                self.recorder.write(message)
            except OSError as error:  # a full disk ends the record, not the flight
                self._lose_record(error)

    def _end_record(self) -> None:
        recorder, self.recorder = self.recorder, None
        if recorder is not None:
            try:
                recorder.close()
            except OSError as error:
                self._lose_record(error)

    def _lose_record(self, error: OSError) -> None:
        self.failure = self.failure or (
            f"{self.run_dir / RECORD}: {error.strerror or error}; the record is incomplete: "
            "free space there or set TMPDIR to another disk"
        )
        self._end_record()


def main() -> None:
    """Entry point of the process: ``python -m station.daemon RUN_DIR``."""
    process.follow_parent()
    if len(sys.argv) != 2:
        process.refuse("usage: python -m station.daemon RUN_DIR")
    run_dir = Path(sys.argv[1])

    async def serve() -> int:
        config = cfg.read(run_dir / "station.json", cfg.StationConfig)
        process.claim(fifo=5)
        return await Daemon(run_dir, config, Clock(config.rate)).serve()

    try:
        status = uvloop.run(serve())
    except (cfg.ConfigError, wires.PathTooLong, OSError, zmq.ZMQError) as error:
        process.refuse(f"midair: daemon: {error}")
    sys.exit(status)


if __name__ == "__main__":
    main()
