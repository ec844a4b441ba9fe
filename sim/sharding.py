"""Worlds of a simulation over the devices of a mesh, of one host or of many. Starts no process and no runtime.

Worlds know nothing of each other, so each device steps its own and nothing is sent. Over several hosts every process
runs the same program after ``jax.distributed.initialize`` and makes the mesh of all devices (`world_mesh()`); an array
then holds the worlds of all, of which a process sees its own (``array.addressable_shards``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from sim.data import SimData, per_world
from sim.errors import ConfigError

WORLD_AXIS = "worlds"
"""Name of the mesh axis over which worlds are spread."""


def world_mesh(devices: Sequence[jax.Device] | None = None) -> Mesh:
    """A mesh of one axis over ``devices``; None: all devices of all processes."""
    devices = jax.devices() if devices is None else devices
    return jax.make_mesh((len(devices),), (WORLD_AXIS,), axis_types=(AxisType.Auto,), devices=devices)


def share(n_worlds: int, mesh: Mesh) -> int:
    """Worlds of each device.

    Raises:
        ConfigError: the mesh has no axis of worlds, or does not divide them.
    """
    if WORLD_AXIS not in mesh.shape:
        raise ConfigError(f"mesh has the axes {', '.join(mesh.shape)}, but {WORLD_AXIS!r} is needed; see world_mesh")
    count = mesh.shape[WORLD_AXIS]
    if n_worlds % count:
        below = n_worlds // count * count
        near = " or ".join(str(n) for n in (below, below + count) if n)
        raise ConfigError(
            f"mesh has {count} devices, which do not divide n_worlds: {n_worlds} = {n_worlds // count} x {count} + "
            f"{n_worlds % count}; use {near} worlds"
        )
    return n_worlds // count


def specs(data: SimData) -> SimData:
    """For each array of ``data`` whether worlds are its first axis or it is the same everywhere."""
    return jax.tree.map(lambda own: PartitionSpec(WORLD_AXIS) if own else PartitionSpec(), per_world(data))


def placement(data: SimData, mesh: Mesh) -> SimData:
    """The same as shardings, for ``jax.device_put`` and ``jax.jit``."""
    share(data.core.n_worlds, mesh)
    return jax.tree.map(
        lambda spec: NamedSharding(mesh, spec), specs(data), is_leaf=lambda v: isinstance(v, PartitionSpec)
    )


def shard(data: SimData, mesh: Mesh) -> SimData:
    """``data`` with its worlds spread over ``mesh``."""
    return jax.device_put(data, placement(data, mesh))


def build(create: Callable[[Any], SimData], key: jax.Array, mesh: Mesh) -> SimData:
    """``create(key)``, made where it belongs: no device ever holds all worlds."""
    return jax.jit(create, out_shardings=placement(jax.eval_shape(create, key), mesh))(key)


def put(array: Any, like: jax.Array) -> jax.Array:
    """``array``, the same in every process, placed as ``like`` is."""
    array = np.asarray(array, like.dtype)
    return jax.make_array_from_callback(array.shape, like.sharding, lambda index: array[index])


def locally(move: Callable[[SimData], SimData], data: SimData, mesh: Mesh) -> SimData:
    """``move(data)`` for a function that treats worlds one by one: each device its own, without a word to others."""
    count, tree = data.core.n_worlds, specs(data)
    own = share(count, mesh)

    def here(data: SimData) -> SimData:
        moved = move(data.replace(core=data.core.replace(n_worlds=own)))
        return moved.replace(core=moved.core.replace(n_worlds=count))

    return jax.shard_map(here, mesh=mesh, in_specs=(tree,), out_specs=tree, check_vma=False)(data)
