"""What all tests share: XLA flags before any backend, and a compile cache kept in the checkout. Imports no JAX."""

import os
from pathlib import Path

import sim  # noqa: F401  sets the XLA flags before a test starts a backend

CHECKOUT = Path(__file__).parent.parent
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CHECKOUT / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
