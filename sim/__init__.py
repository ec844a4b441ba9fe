"""Physics of drones in JAX: differentiable, batched, the same for one drone and a million. No files, clocks, sockets.

Importing it sets XLA flags that small loops on the CPU need, and warns when it is too late for them (`sim.flags`).
"""

from sim import flags

flags.install()
