"""Programs compiled ahead of time, as bytes and back. Opens no file: who stores the bytes decides where.

A program loaded from bytes is neither traced nor compiled again, so a process that has loaded (or built) its programs
before arming does not compile in flight; `Compilations` proves it.
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.monitoring
import jaxlib.version
from jax.experimental import serialize_executable
from jax.experimental.compilation_cache import compilation_cache

COMPILE_EVENT = "/jax/core/compile/backend_compile_duration"
"""Recorded by JAX for each program that it compiles or takes from its persistent cache."""


class StaleProgram(Exception):
    """Bytes that do not hold a program for this machine and these arguments; build it again."""


class Compilations:
    """Counts the programs that this process compiles from now on (JAX keeps the listener for the process's life)."""

    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._observe)

    def _observe(self, event: str, duration_s: float, **_: Any) -> None:
        self.count += event == COMPILE_EVENT


def fingerprint(machine: str, settings: Iterable[object], sources: Iterable[bytes]) -> str:
    """A name for a program that changes with everything it depends on.

    Args:
        machine: processor and its instruction sets, as the caller reads them; machine code runs on no other.
        settings: what was compiled in; their ``repr`` counts.
        sources: texts of the modules the program was traced from.
    """
    digest = hashlib.sha256()
    for part in (jax.__version__, jaxlib.version.__version__, jax.default_backend(), machine, *map(repr, settings)):
        digest.update(part.encode() + b"\0")
    for source in sources:
        digest.update(hashlib.sha256(source).digest())
    return digest.hexdigest()[:32]


def build(function: Callable[..., Any], arguments: tuple, options: dict[str, Any] | None = None) -> bytes:
    """Trace and compile ``function`` for arguments of these shapes and types; takes seconds to a minute.

    Args:
        function: of arrays and pytrees, returning a pytree.
        arguments: an example.
        options: for the compiler.
    """
    structure = jax.tree.structure(arguments)

    def flat(*leaves: Any) -> tuple:
        return tuple(jax.tree.leaves(function(*jax.tree.unflatten(structure, leaves))))

    # Flat tuples in and out: trees of our own types would not go through pickle.
    lowered = jax.jit(flat, compiler_options=options).lower(*jax.tree.leaves(arguments))
    with _compiled_here():
        program = lowered.compile()
    return zlib.compress(pickle.dumps(serialize_executable.serialize(program)), 1)


@contextlib.contextmanager
def _compiled_here() -> Iterator[None]:
    """Keep JAX's persistent cache out of it: a program that came from there lacks its code when it is stored again."""
    before = jax.config.jax_enable_compilation_cache
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", before)
        compilation_cache.reset_cache()


def load(image: bytes, result: Any) -> Callable[..., Any]:
    """The program of ``image``, called like the function it was built from.

    Only bytes that this program has written itself may be given: they are unpickled.

    Args:
        image: from `build`.
        result: a pytree of the structure that the function returns.

    Raises:
        StaleProgram: the bytes are damaged, or from another version or machine.
    """
    structure = jax.tree.structure(result)
    try:
        program = serialize_executable.deserialize_and_load(*pickle.loads(zlib.decompress(image)))
    except Exception as error:
        # Whatever pickle, zlib or XLA object to, the cure is the same.
        raise StaleProgram(
            f"a compiled program of {len(image)} bytes cannot be loaded ({error}); build it again"
        ) from error

    def call(*arguments: Any) -> Any:
        return jax.tree.unflatten(structure, program(*jax.tree.leaves(arguments)))

    return call
