"""The experimenter's side of the virtual lab: starts it, orders runs, hears what happened. Part of no station."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from pathlib import Path
from typing import Any

from station import process


class LabError(Exception):
    """The lab did not do as it was told; the text says what it said."""


class Refused(LabError):
    """A process ended, and has told the person at the terminal why in a line of its own."""


class LabProcess:
    """The lab as a child process: JSON lines out and in."""

    def __init__(self, run_dir: Path) -> None:
        self.child = process.start("station.virtual_lab", run_dir, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.news: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def tell(self, do: str, **values: Any) -> None:
        """Send one order; a lab that has gone is noticed by `expect`."""
        assert self.child.stdin is not None
        try:
            self.child.stdin.write(json.dumps({"do": do, **values}).encode() + b"\n")
            self.child.stdin.flush()
        except BrokenPipeError:
            pass

    def expect(self, event: str, timeout_s: float) -> dict[str, Any]:
        """The next news of this name; other news before it is dropped.

        Raises:
            LabError: the lab ended, reported an error, or said nothing for ``timeout_s`` host seconds.
        """
        while True:
            try:
                news = self.news.get(timeout=timeout_s)
            except queue.Empty:
                raise LabError(f"the virtual lab did not get to '{event}' within {timeout_s:g} s") from None
            if news is None:
                raise ended("the virtual lab", self.child.wait(), said=process.REFUSED)
            if news["event"] == "error":
                raise LabError(f"virtual lab: {news['text']}")
            if news["event"] == event:
                return news

    def _listen(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            self.news.put(json.loads(line))
        self.news.put(None)


def ended(name: str, status: int, said: int) -> LabError:
    """The error for a process that is gone; `Refused` when its status, ``said``, tells that it has explained itself."""
    return (Refused if status == said else LabError)(f"{name} {process.ending(status)}")
