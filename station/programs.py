"""Compiled programs on disk, one file each, named by all that they depend on. Trains and plans nothing."""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from controllers import compiled
from station import process

SOURCES = ("controllers", "sim", "sim/dynamics")
"""Folders of the checkout whose text a program is traced from."""


def machine() -> str:
    """Processor and instruction sets: machine code made for one does not run on another."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join([platform.machine(), *(line for line in lines if line.startswith(wanted))])


def ready(
    folder: Path,
    name: str,
    function: Callable[..., Any],
    example: tuple,
    result: object,
    settings: object,
    options: dict[str, Any],
    say: Callable[[str], None],
) -> Callable[..., Any]:
    """The compiled program: from its file, or compiled now and stored there.

    Args:
        folder: where programs are kept; private to this checkout, because loading one runs it.
        name: of the program, for people and for its file.
        function: what it computes.
        example: arguments of the shapes and types it is compiled for.
        result: a pytree of the structure that it returns.
        settings: what is compiled in.
        options: for the compiler.
        say: told what is going on when it takes long.
    """
    texts = [path.read_bytes() for part in SOURCES for path in sorted((process.ROOT / part).glob("*.py"))]
    mark = compiled.fingerprint(machine(), (settings, options, os.environ.get("XLA_FLAGS", "")), texts)
    path = folder / f"{name}-{mark}.bin"
    try:
        return compiled.load(path.read_bytes(), result)
    except (OSError, compiled.StaleProgram):
        say(f"compiling the program '{name}' for this machine; once, about a minute")
    image = compiled.build(function, example, options)
    _store(image, path)
    return compiled.load(image, result)


def _store(image: bytes, path: Path) -> None:
    """Whole or not at all, in place of older ones; a full disk costs the next start a compilation, not this flight."""
    name, _, _ = path.stem.rpartition("-")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for old in path.parent.glob(f"{name}-*.bin"):
            with contextlib.suppress(OSError):
                old.unlink()
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            try:
                file.write(image)
                file.flush()
                os.replace(file.name, path)
            except OSError:
                os.unlink(file.name)
    except OSError:
        return
