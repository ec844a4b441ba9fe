"""A process that drives one simulator for a bench: started, asked, ended. Knows no figures."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from station import process

SCRIPT = "tools/sim_worker.py"
OURS, PEER = "sim.sim", "crazyflow"


class WorkerError(Exception):
    """A simulator's process failed; the text says which, at what, and in its own words."""


class Worker:
    """Owns the process; one question at a time."""

    def __init__(self, label: str, python: Path, module: str, environment: Mapping[str, str]) -> None:
        """Start it; `about` waits for it.

        Args:
            label: for people.
            python: interpreter of the environment that has the simulator.
            module: of the simulator.
            environment: what differs from ours; XLA_FLAGS and JAX's settings of the caller do not get through.
        """
        self.label = label
        self._errors = tempfile.TemporaryFile("w+")
        self._folder = tempfile.TemporaryDirectory(prefix="midair-worker-")  # the peer's MuJoCo leaves logs where it is
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("XLA_", "JAX_", "MIDAIR_"))}
        inherited.pop("PYTHONPATH", None)
        if module == OURS:
            inherited["PYTHONPATH"] = str(process.ROOT)
        self._child = subprocess.Popen(
            [str(python), str(process.ROOT / SCRIPT), module],
            env={"JAX_PLATFORMS": "cpu", **inherited, **environment},
            cwd=self._folder.name,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.said: dict[str, Any] = {}

    def about(self) -> dict[str, Any]:
        """What it says of itself once it is up: simulator, jax, flags, devices."""
        if not self.said:
            self.said = self.answer()
        return self.said

    def ask(self, verb: str, **arguments: Any) -> None:
        """Send a question; `answer` has to be called before the next."""
        self.about()
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps({"verb": verb, **arguments}) + "\n")
            self._child.stdin.flush()
        except OSError:
            raise WorkerError(f"{self.label} has ended: {self._last_words()}") from None

    def answer(self) -> dict[str, Any]:
        """The answer, waited for.

        Raises:
            WorkerError: it failed or died.
        """
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            self._child.wait()
            raise WorkerError(f"{self.label} has ended: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(f"{self.label}: {answer['error']}")
        return answer

    def do(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """Ask and wait."""
        self.ask(verb, **arguments)
        return self.answer()

    def close(self) -> None:
        """End it and reap it."""
        assert self._child.stdin is not None and self._child.stdout is not None
        if self._child.poll() is None:
            self._child.terminate()
        for stream in (self._child.stdin, self._child.stdout):
            try:
                stream.close()
            except OSError:
                pass
        process.end([self._child], 2.0)
        self._errors.close()
        self._folder.cleanup()

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
        return lines[-1] if lines else f"status {self._child.returncode}"
