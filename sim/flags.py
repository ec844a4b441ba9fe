"""XLA flags for small programs on the CPU, set before a backend exists. Knows nothing of the physics.

XLA compiles a loop into one function only below 1 kB of loop state, and otherwise starts every operation by itself,
some 50 ns each; a byte threshold lifts that. It can be given as a backend extra option only, for the whole process. The
region analysis drops copies of a loop's state. One thread per program: steps are too small to share.

There are two profiles. ``TRAINING`` makes every loop one function: what 32 drones and a network backwards in time need.
``FLIGHT`` does so for few drones only and lets one kernel give several results, so that what those share (a rotation
matrix, the onboard cascade) is worked out once instead of once for each: the cascade flies 2 to 3 times faster from
1000 drones on and compiles in a quarter of the time, gradients through it 2 to 7 times faster, while the training
program runs 25 times slower (2.28 s for 0.093 s; one core of an AMD Zen 4, CPU time, jaxlib 0.10.2).

XLA reads the variable once, when the first backend starts, and a flag it does not know ends the process, so nothing is
set for a jaxlib not tried.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import MutableMapping

EXTRA = "xla_cpu_small_while_loop_byte_threshold=100000000"
TRAINING = (EXTRA,)
FLIGHT = ("xla_cpu_small_while_loop_byte_threshold=150000", "xla_cpu_use_multi_output_fusion=true")
"""Profiles: backend extra options."""
PLAIN = ("--xla_cpu_copy_insertion_use_region_analysis=true", "--xla_cpu_multi_thread_eigen=false")
TRIED = ("0.10.",)
"""jaxlib versions known to accept all of the flags."""


def merged(present: str, profile: tuple[str, ...] = TRAINING) -> str:
    """``present`` XLA_FLAGS with those of ``profile`` added; whatever a user has set of the same name stays."""
    words = present.split()
    names = {word.split("=")[0] for word in words}
    words += [flag for flag in PLAIN if flag.split("=")[0] not in names]
    extra = "--xla_backend_extra_options"
    missing = ",".join(option for option in profile if option.partition("=")[0] not in present)
    if missing and extra in names:
        words = [f"{word},{missing}" if word.split("=")[0] == extra else word for word in words]
    elif missing:
        words.append(f"{extra}={missing}")
    return " ".join(words)


def without(present: str, profile: tuple[str, ...]) -> str:
    """``present`` XLA_FLAGS without the extra options of ``profile``, where they stand as `merged` puts them."""
    joined = ",".join(profile)
    return present.replace(f",{joined}", "").replace(f"--xla_backend_extra_options={joined}", "").strip()


def backend_exists() -> bool:
    """Whether JAX has started a backend, after which flags are ignored."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bool(bridge is not None and bridge.backends_are_initialized())


def install(environ: MutableMapping[str, str] = os.environ, profile: tuple[str, ...] = TRAINING) -> bool:
    """Set the flags; True when they will take effect. Calling it again with the same profile changes nothing.

    Another profile takes the place of one installed before, as long as no backend has started. A RuntimeWarning says so
    when a backend started without flags. ``MIDAIR_XLA_FLAGS=off`` leaves XLA alone.
    """
    if environ.get("MIDAIR_XLA_FLAGS") == "off":
        return False
    import jaxlib.version

    if not jaxlib.version.__version__.startswith(TRIED):
        return False
    present = environ.get("XLA_FLAGS", "")
    others = [p for p in (TRAINING, FLIGHT) if p != profile and merged(present, p) == present]
    wanted = merged(without(present, others[0]) if others else present, profile)
    if wanted == present:
        return True
    if backend_exists():
        if not others:
            warnings.warn(
                "sim was imported after JAX had started a backend, so its XLA flags cannot take effect and small loops "
                "on the CPU run up to 2 times slower; import sim first",
                RuntimeWarning,
                stacklevel=3,
            )
        return False
    environ["XLA_FLAGS"] = wanted
    return True
