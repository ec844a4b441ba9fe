"""Scripts written for the peer simulator run here with only the import line changed, and give the same numbers."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

CHECKOUT = Path(__file__).parent.parent.parent
PEER = CHECKOUT / ".cache" / "peer" / "bin" / "python"

THEIRS = "from crazyflow import Control, Drone, Dynamics, Sim"
OURS = "from sim import Control, Drone, Dynamics, Sim"

SCRIPT = """
import sys
import jax
{imports}
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
out = {{}}

def keep(name, sim):
    for key in ("pos", "quat", "vel", "ang_vel", "rotor_vel", "force", "torque"):
        out[f"{{name}}.{{key}}"] = np.asarray(getattr(sim.data.states, key))
    out[f"{{name}}.commanded"] = np.asarray(sim.data.controls.rotor_vel)
    levels = ("state", "attitude", "body_rate", "force_torque")
    for level in ("attitude",) if name.startswith("params.so_rpy") else levels:
        control = getattr(sim.data.controls, level)
        if control is not None and not name.startswith("again"):
            out[f"{{name}}.{{level}}.cmd"] = np.asarray(control.cmd)
            if "so_rpy" not in name:  # the peer does not count ticks there
                out[f"{{name}}.{{level}}.steps"] = np.asarray(control.steps)
    out[f"{{name}}.time"] = np.asarray(sim.time)

# Defaults, a takeoff from the floor with an attitude command, in one call and in many.
sim = Sim(n_worlds=2, n_drones=3)
cmd = np.zeros((2, 3, 4))
cmd[..., 0] = 0.1
cmd[..., 3] = sim.data.params.mass[0] * 9.81 * np.linspace(0.5, 1.3, 6).reshape(2, 3)
sim.attitude_control(cmd)
for _ in range(3):
    sim.step(9)
keep("attitude_more", sim)

# Staging at 100 Hz: a command given between ticks waits; a reset of one world lets it tick at once.
sim = Sim(n_worlds=3, n_drones=2, control=Control.state, drone=Drone.cf2x_L250)
for k in range(6):
    cmd = np.zeros((3, 2, 16))
    cmd[..., :3] = np.array([0.1 * k, -0.1, 0.5])
    cmd[..., 12] = 1.0
    cmd[..., 13:] = 0.1 * k
    sim.state_control(cmd)
    sim.step(3)
    if k == 2:
        sim.reset(jnp.array([False, True, False]))
    out[f"state.controllable{{k}}"] = np.asarray(sim.controllable)
    keep(f"state{{k}}", sim)

# Slower controllers.
sim = Sim(control="attitude", freq=1000, attitude_freq=250, force_torque_freq=500)
for k in range(5):
    sim.attitude_control(np.array([[[0.2 * k, 0.1, -0.1, 0.3 + 0.05 * k]]]))
    sim.step(3)
    keep(f"slow{{k}}", sim)
sim = Sim(control="body_rate", freq=1000, body_rate_freq=500, force_torque_freq=1000, integrator="rk4")
for k in range(5):
    sim.body_rate_control(np.array([[[0.2 * k, 0.1, -0.1, 0.3 + 0.05 * k]]]))
    sim.step(3)
    keep(f"rate{{k}}", sim)
sim = Sim(control="force_torque", freq=1000, force_torque_freq=500)
sim.force_torque_control(np.array([[[0.5, 1e-4, 2e-4, 1e-5]]]))
sim.step(5)
sim.force_torque_control(np.array([[[0.0, 1e-4, 2e-4, 1e-5]]]))
sim.step(4)
keep("force_torque", sim)

# Beyond what rotors can do, and off.
sim = Sim(n_worlds=2, control=Control.rotor_vel, integrator="symplectic_euler")
sim.rotor_vel_control(np.array([[[1e6, 2e4, 0.0, -5.0]], [[15e3] * 4]]))
sim.step(30)
keep("rotor_vel", sim)

# Parameters and disturbances of each world, a drone of each dynamics.
for dynamics in Dynamics:
    sim = Sim(n_worlds=2, n_drones=2, dynamics=dynamics, control="attitude")
    mass = sim.data.params.mass * np.array([0.9, 1.0, 1.1, 1.2]).reshape(2, 2, 1)
    J = sim.data.params.J * np.array([1.0, 1.3]).reshape(2, 1, 1, 1)
    params = sim.data.params.replace(mass=mass, J=J, J_inv=jnp.linalg.inv(J))
    force = np.array([0.02, -0.01, 0.03]) * np.ones((2, 2, 1))
    torque = np.array([2e-5, -1e-5, 1e-5]) * np.ones((2, 2, 1))
    states = sim.data.states.replace(force=jnp.asarray(force), torque=jnp.asarray(torque))
    sim.data = sim.data.replace(params=params, states=states)
    sim.attitude_control(np.array([0.1, -0.2, 0.3, 0.5]) * np.ones((2, 2, 1)))
    sim.step(40)
    keep(f"params.{{dynamics.value}}", sim)
    sim.reset()
    keep(f"again.{{dynamics.value}}", sim)
sim = Sim(control="rotor_vel")
p = sim.data.params
own = jnp.array([0.9, 1.0, 1.1, 1.2])
p = p.replace(rpm2thrust=p.rpm2thrust * own[:, None], L=p.L * own, rotor_dyn_coef=p.rotor_dyn_coef * own[:, None])
p = p.replace(rpm2torque=p.rpm2torque * own[:, None], prop_inertia=p.prop_inertia * own)
sim.data = sim.data.replace(params=p)
sim.rotor_vel_control(np.full((1, 1, 4), 17e3))
sim.step(50)
keep("rotors", sim)

# A stage of one's own between controllers and motion, with its own state.
sim = Sim(n_worlds=2, control="attitude")
def push(data):
    up = 0.001 * data.core.steps[..., None] * jnp.ones((2, 1, 3))
    return data.replace(states=data.states.replace(force=up))
items = list(sim.step_pipeline.items())
place = [name for name, _ in items].index("integration")
items.insert(place, ("push", push))
sim.step_pipeline.clear()
sim.step_pipeline.update(items)
sim.build_step_fn()
sim.attitude_control(np.array([[[0.1, 0.0, 0.0, 0.4]], [[0.0, 0.1, 0.0, 0.5]]]))
sim.step(10)
keep("pushed", sim)
del sim.step_pipeline["clip_floor_pos"]
step = sim.build_step_fn()
keep("pure", type("S", (), {{"data": step(sim.data, 20), "time": 0.0}}))

# A change to the reset.
sim = Sim(n_worlds=2, control="rotor_vel")
def lifted(data, default_data, mask):
    pos = data.states.pos.at[..., 2].set(1.5)
    return data.replace(states=data.states.replace(pos=pos))
sim.reset_pipeline["lifted"] = lifted
sim.build_reset_fn()
sim.reset()
keep("reset", sim)
sim.seed(3)
out["key"] = np.asarray(jax.random.key_data(sim.data.core.rng_key))
for count in (5, 12):
    out[f"grid{{count}}"] = np.asarray(Sim(n_drones=count).data.states.pos)
sim.close()
np.savez(sys.argv[1], **out)
"""


def run(python, imports, target):
    environ = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(CHECKOUT) if "sim" in imports else ""}
    environ["JAX_COMPILATION_CACHE_DIR"] = str(CHECKOUT / ".cache" / ("jax" if "sim" in imports else "peer-jax"))
    environ.pop("XLA_FLAGS", None)
    script = SCRIPT.format(imports=imports)
    environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
    command = [python, "-c", script, str(target)]
    done = subprocess.run(command, env=environ, cwd=target.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    with np.load(target) as file:
        return {key: file[key] for key in file.files}


@pytest.mark.skipif(not PEER.exists(), reason="the peer is not installed (./midair bench sim installs it)")
def test_a_script_for_the_peer_needs_another_import_and_nothing_else(tmp_path):
    theirs = run(str(PEER), THEIRS, tmp_path / "theirs.npz")
    ours = run(sys.executable, OURS, tmp_path / "ours.npz")
    assert set(ours) == set(theirs)
    wrong = {}
    for key, b in theirs.items():
        a = ours[key]
        if a.shape != b.shape:
            wrong[key] = f"{a.shape}, not {b.shape}"
            continue
        error = np.abs(a.astype(float) - b)
        if key.endswith("quat"):
            error = np.minimum(error, np.abs(a + b))
        error = error.max() / max(1.0, np.abs(b).max())
        if not error <= 1e-9:
            wrong[key] = error
    assert not wrong
