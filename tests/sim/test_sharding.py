"""Worlds over devices and over processes are the worlds of one device. Devices are virtual, processes are local."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from sim import sharding
from sim.errors import ConfigError
from sim.sim import Sim

CHECKOUT = Path(__file__).parent.parent.parent

FLIGHT = """
import json, sys
import numpy as np

def fly(sim, command):
    sim.attitude_control(command)
    sim.step(4)
    mask = np.zeros(sim.n_worlds, bool)
    mask[1] = True
    sim.reset(mask)
    sim.attitude_control(command)
    sim.step(3)
    return sim.data

def commands(worlds):
    return np.array([0.1, -0.1, 0.2, 0.45]) * np.linspace(0.5, 1.5, 2 * worlds).reshape(worlds, 2, 1)
"""

EIGHT = (
    FLIGHT
    + """
import sim
import jax, jax.numpy as jnp
from sim import Sim, effects, sharding
assert len(jax.devices()) == 8
out = {}
mesh = sharding.world_mesh()
states = []
for given in (None, mesh):
    one = Sim(n_worlds=16, n_drones=2, mesh=given)
    mass = one.data.params.mass * jnp.linspace(0.9, 1.1, 16).reshape(16, 1, 1)
    one.data = one.data.replace(params=one.data.params.replace(mass=mass))
    if given is not None:
        one.shard(mesh)
    data = fly(one, commands(16))
    states.append(np.concatenate([np.asarray(v).reshape(16, -1) for v in jax.tree.leaves(data.states)], 1))
    if given is not None:
        pos = data.states.pos
        out["devices"] = len({s.device for s in pos.addressable_shards})
        out["shards"] = sorted({s.data.shape for s in pos.addressable_shards})
        out["steps"] = np.asarray(data.core.steps).ravel().tolist()
        text = one._program.run.lower(jax.tree.leaves(one.data), 4, False).compile().as_text()
        out["talk"] = [w for w in ("all-reduce", "all-gather", "collective-permute", "all-to-all") if w in text]
out["difference"] = float(np.abs(states[0] - states[1]).max())
# Gusts draw from one key: no two worlds may feel the same.
gusty = Sim(n_worlds=16, mesh=mesh, control="rotor_vel")
gusty.add_effect(effects.gusts)
gusty.step(2)
out["gusts"] = len(np.unique(np.asarray(gusty.data.memory["gusts"]["air"][0])))
# A stage of one's own.
own = Sim(n_worlds=16, mesh=mesh, control="rotor_vel")
own.step_pipeline.append(lambda d: d.replace(states=d.states.replace(pos=d.states.pos + 1.0)), "up")
own.build_step_fn()
own.step(2)
out["own"] = float(own.data.states.pos.min())
print(json.dumps(out))
"""
)

HOST = (
    FLIGHT
    + """
import sim
import jax
rank, port = int(sys.argv[1]), sys.argv[2]
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank, initialization_timeout=120)
from sim import Sim, sharding
mesh = sharding.world_mesh()
assert len(jax.devices()) == 4 and len(jax.local_devices()) == 2
one = Sim(n_worlds=8, n_drones=2, mesh=mesh)
data = fly(one, commands(8))
mine = {s.index[0].start: np.asarray(s.data).tolist() for s in data.states.pos.addressable_shards}
finite = all(bool(s.data.all()) for s in data.finite.addressable_shards)
print(json.dumps({"mine": mine, "finite": finite}))
jax.distributed.shutdown()
"""
)


def environ(devices):
    flags = f"--xla_force_host_platform_device_count={devices}"
    cache = str(CHECKOUT / ".cache" / "jax")
    return os.environ | {
        "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(CHECKOUT), "JAX_COMPILATION_CACHE_DIR": cache,
    }  # fmt: skip


def start(script, *arguments, devices):
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(
        command, env=environ(devices), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=CHECKOUT
    )


def answer(process):
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err[-3000:]
    return json.loads(out.splitlines()[-1])


@pytest.fixture(scope="module")
def eight():
    return answer(start(EIGHT, devices=8))


def test_eight_devices_fly_what_one_does(eight):
    assert eight["devices"] == 8
    assert eight["shards"] == [[2, 2, 3]]
    assert eight["steps"] == [7, 3, *[7] * 14]
    assert eight["difference"] < 1e-5


def test_devices_do_not_talk(eight):
    assert eight["talk"] == []


def test_random_stages_and_stages_of_ones_own_spread_too(eight):
    assert eight["gusts"] == 16
    assert eight["own"] == pytest.approx(2.0, abs=1e-3)


def test_two_processes_fly_what_one_does():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = [start(HOST, rank, port, devices=2) for rank in range(2)]
    try:
        answers = [answer(process) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert all(a["finite"] for a in answers)
    assert [sorted(map(int, a["mine"])) for a in answers] == [[0, 2], [4, 6]]
    both = {int(k): v for a in answers for k, v in a["mine"].items()}
    there = {}
    exec(FLIGHT, there)  # noqa: S102  the same flight
    data = there["fly"](Sim(n_worlds=8, n_drones=2), there["commands"](8))
    np.testing.assert_allclose(np.concatenate([both[k] for k in sorted(both)]), data.states.pos, atol=1e-6)


def test_a_mesh_that_does_not_divide_the_worlds_is_refused():
    class Mesh:
        shape = {"worlds": 8}  # noqa: RUF012

    with pytest.raises(ConfigError, match=r"n_worlds: 21 = 2 x 8 \+ 5; use 16 or 24 worlds"):
        Sim(n_worlds=21, mesh=Mesh())
    with pytest.raises(ConfigError, match=r"n_worlds: 3 = 0 x 8 \+ 3; use 8 worlds"):
        sharding.share(3, Mesh())
    with pytest.raises(ConfigError, match="mesh has the axes data, but 'worlds' is needed"):
        sharding.share(3, jax.make_mesh((1,), ("data",)))


def test_a_mesh_of_one_device_is_none():
    sim = Sim(n_worlds=3, mesh=sharding.world_mesh())
    sim.step(2)
    assert sim.data.states.pos.sharding.spec == jax.sharding.PartitionSpec("worlds")
    assert sharding.placement(sim.data, sim.mesh).core.rng_key.spec == jax.sharding.PartitionSpec()
