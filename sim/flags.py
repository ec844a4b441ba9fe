"""XLA flags for small programs on the CPU, set before a backend exists. Knows nothing of the physics.

XLA compiles a loop into one function only below 1 kB of loop state, and otherwise starts every operation by itself,
some 50 ns each; the byte threshold lifts that. It can be given as a backend extra option only. The region analysis
drops copies of a loop's state. One thread per program: steps are too small to share. Together, rollouts of the rotor-
level step ran 1.7 to 1.9 times faster at 1, 32 and 1024 drones (one loaded AVX-512 core, jaxlib 0.10.2). XLA reads
the variable once, when the first backend starts, and a flag it does not know ends the process, so nothing is set for
a jaxlib not tried.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import MutableMapping

EXTRA = "xla_cpu_small_while_loop_byte_threshold=100000000"
PLAIN = ("--xla_cpu_copy_insertion_use_region_analysis=true", "--xla_cpu_multi_thread_eigen=false")
TRIED = ("0.10.",)
"""jaxlib versions known to accept all of the flags."""


def merged(present: str) -> str:
    """``present`` XLA_FLAGS with ours added; whatever a user has set of the same name stays."""
    words = present.split()
    names = {word.split("=")[0] for word in words}
    words += [flag for flag in PLAIN if flag.split("=")[0] not in names]
    extra = "--xla_backend_extra_options"
    if EXTRA.partition("=")[0] not in present:
        if extra in names:
            words = [f"{word},{EXTRA}" if word.split("=")[0] == extra else word for word in words]
        else:
            words.append(f"{extra}={EXTRA}")
    return " ".join(words)


def backend_exists() -> bool:
    """Whether JAX has started a backend, after which flags are ignored."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bool(bridge is not None and bridge.backends_are_initialized())


def install(environ: MutableMapping[str, str] = os.environ) -> bool:
    """Set the flags; True when they will take effect. Calling it again changes nothing.

    A RuntimeWarning says so when a backend started without them. ``MIDAIR_XLA_FLAGS=off`` leaves XLA alone.
    """
    if environ.get("MIDAIR_XLA_FLAGS") == "off":
        return False
    import jaxlib.version

    if not jaxlib.version.__version__.startswith(TRIED):
        return False
    present = environ.get("XLA_FLAGS", "")
    wanted = merged(present)
    if wanted == present:
        return True
    if backend_exists():
        warnings.warn(
            "sim was imported after JAX had started a backend, so its XLA flags cannot take effect and small loops on "
            "the CPU run up to 2 times slower; import sim first",
            RuntimeWarning,
            stacklevel=3,
        )
        return False
    environ["XLA_FLAGS"] = wanted
    return True
