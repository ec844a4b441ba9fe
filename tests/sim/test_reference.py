"""Agreement with trajectories of the peer simulator, whose model and integrator ours claims to be."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from sim import drones, pipeline
from sim.dynamics import first_principles
from sim.state import State, components, from_components

DATA = Path(__file__).parent.parent / "data"
NAMES = ("cf21B_500", "cf2x_L250")
FIELDS = {"pos": "pos", "vel": "vel", "ang_vel": "ang_vel", "rotor_rpm": "rotor_vel"}


def recorded(name):
    with np.load(DATA / f"{name}-first_principles-rotor_vel-euler.npz") as file:
        return {key: file[key][..., 0, :] for key in file}  # the axis of drones has length one


def first_state(data):
    return State(*(jnp.asarray(data["init_" + key], float) for key in ("pos", "quat", "vel", "ang_vel", "rotor_vel")))


def deviations(states, data):
    """Greatest difference of each field at each recorded time; rotor speeds relative, attitudes as angle."""
    out = {ours: np.abs(np.asarray(getattr(states, ours)) - data[theirs]) for ours, theirs in FIELDS.items()}
    out["rotor_rpm"] = out["rotor_rpm"] / 1e4
    turns = (
        Rotation.from_quat(np.asarray(states.quat, float).reshape(-1, 4))
        * Rotation.from_quat(data["quat"].reshape(-1, 4)).inv()
    )
    out["quat"] = turns.magnitude().reshape(data["quat"].shape[:-1])
    return {key: value.reshape(value.shape[0], -1).max(axis=1) for key, value in out.items()}


@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_float64_agrees_to_rounding(float64, name, diagonal):
    data = recorded(name)
    step = pipeline.build_step(dt=1 / 500, diagonal=diagonal)
    states = pipeline.rollout(step, drones.load(name), first_state(data), jnp.asarray(data["cmd"]), every=5)
    states = State(*(getattr(states, key)[1::2] for key in ("pos", "quat", "vel", "ang_vel", "rotor_rpm")))
    for key, error in deviations(states, data).items():
        assert error.shape == (40,)
        assert error[0] < 1e-9, key
        assert error.max() < 1e-6, key


@pytest.mark.parametrize("name", NAMES)
def test_float32_stays_within_a_thousandth(name):
    data = recorded(name)
    states = pipeline.rollout(
        pipeline.build_step(), drones.load(name), first_state(data), jnp.asarray(data["cmd"], jnp.float32), every=5
    )
    assert states.pos.dtype == jnp.float32
    states = State(*(getattr(states, key)[1::2] for key in ("pos", "quat", "vel", "ang_vel", "rotor_rpm")))
    for key, error in deviations(states, data).items():
        assert error.max() < 1e-3, key


def test_bare_step_is_the_built_step(float64):
    data = recorded("cf21B_500")
    params, state, u = drones.load("cf21B_500"), first_state(data), jnp.asarray(data["cmd"][0])
    built = pipeline.build_step(dt=1 / 500)(params, state, u)
    coefficients = first_principles.coefficients(params)
    for given in (params, coefficients):
        bare = from_components(pipeline.step_components(given, components(state), tuple(u.T), 1 / 500))
        for key in ("pos", "quat", "vel", "ang_vel", "rotor_rpm"):
            np.testing.assert_allclose(getattr(bare, key), getattr(built, key), rtol=1e-14, atol=1e-14)


def test_both_layouts_of_a_rollout_agree(float64, monkeypatch):
    data = recorded("cf21B_500")
    args = (drones.load("cf21B_500"), first_state(data), jnp.asarray(data["cmd"][:4]))
    stacked = pipeline.rollout(pipeline.build_step(), *args)
    monkeypatch.setattr(pipeline, "STACK_BELOW", 0)
    pipeline._fly.clear_cache()  # noqa: SLF001
    split = pipeline.rollout(pipeline.build_step(), *args)
    np.testing.assert_allclose(stacked.quat, split.quat, atol=1e-14)
    np.testing.assert_allclose(stacked.ang_vel, split.ang_vel, atol=1e-12)
