"""Shapes, refusals and what a build decides."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sim import drones, effects, pipeline
from sim.errors import ConfigError, ShapeError
from sim.state import components, from_components, resting

PARAMS = drones.load("cf21B_500", np.float32)


@pytest.mark.parametrize("batch", [(), (1,), (5,), (2, 3), (300,)])
def test_shapes(batch):
    state = resting(jnp.zeros((*batch, 3)))
    step = pipeline.build_step()
    after = jax.eval_shape(step, PARAMS, state, jnp.zeros((*batch, 4)))
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, state)
    assert {leaf.dtype for leaf in jax.tree.leaves(after)} == {np.dtype(np.float32)}
    flown = jax.eval_shape(lambda s, u: pipeline.rollout(step, PARAMS, s, u), state, jnp.zeros((7, *batch, 4)))
    assert flown.pos.shape == (7, *batch, 3)
    assert flown.rotor_rpm.shape == (7, *batch, 4)


def test_one_command_serves_a_batch():
    flown = pipeline.rollout(pipeline.build_step(), PARAMS, resting(jnp.zeros((3, 3))), jnp.full((2, 4), 1e4))
    np.testing.assert_array_equal(flown.vel[:, 0], flown.vel[:, 2])


def test_a_batch_of_parameters_gives_each_drone_its_own():
    names = list(drones.FIRST_PRINCIPLES)
    many = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(drones.load(name) for name in names))
    u = jnp.broadcast_to(jnp.linspace(11e3, 13e3, 4), (50, 4, 4))
    together = pipeline.rollout(pipeline.build_step(), many, resting(jnp.zeros((4, 3))), u)
    for i, name in enumerate(names):
        alone = pipeline.rollout(pipeline.build_step(), drones.load(name), resting(), u[:, i])
        np.testing.assert_allclose(together.pos[:, i], alone.pos, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(together.rotor_rpm[:, i], alone.rotor_rpm, rtol=1e-5)


def test_commands_may_last_several_steps():
    u = jnp.asarray([[1e4, 11e3, 12e3, 13e3], [9e3, 9e3, 8e3, 8e3]])
    step = pipeline.build_step()
    held = pipeline.rollout(step, PARAMS, resting(), u, every=3)
    each = pipeline.rollout(step, PARAMS, resting(), jnp.repeat(u, 3, axis=0))
    np.testing.assert_allclose(held.pos, each.pos[2::3], rtol=1e-5, atol=1e-8)


def test_components_round_trip():
    state = resting(jnp.arange(6.0).reshape(2, 3), rotor_rpm=5.0)
    for a, b in zip(jax.tree.leaves(from_components(components(state))), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"dynamics": "magic"}, "unknown dynamics 'magic'; known are first_principles"),
        ({"integrator": "leapfrog"}, "unknown integrator 'leapfrog'; known are euler, symplectic_euler, rk4, rkmk4"),
        ({"dt": 0.0}, "dt is 0.0 s"),
        ({"dt": float("nan")}, "dt is nan s"),
        ({"stages": (effects.floor, effects.floor)}, "stages has 'floor' twice"),
        ({"stages": (effects.Stage("x", "nowhere", lambda p, x, dt: x),)}, "stage 'x' is at 'nowhere'"),
    ],
)
def test_wrong_builds_are_refused(wrong, text):
    with pytest.raises(ConfigError, match=text):
        pipeline.build_step(**wrong)


def test_wrong_shapes_are_refused():
    step = pipeline.build_step()
    with pytest.raises(ShapeError, match=r"rotor_vel commands have shape \(3,\)"):
        step(PARAMS, resting(), jnp.zeros(3))
    with pytest.raises(ShapeError, match=r"commands have shape \(7, 2, 4\)"):
        pipeline.rollout(step, PARAMS, resting(jnp.zeros((3, 3))), jnp.zeros((7, 2, 4)))
    with pytest.raises(ShapeError, match=r"state\.pos has shape \(2,\)"):
        step(PARAMS, resting(jnp.zeros(2)), jnp.zeros(4))


def test_new_parameters_do_not_recompile():
    traces = 0

    def count(params, x, u):
        nonlocal traces
        traces += 1
        return u

    step = pipeline.build_step(stages=[effects.Stage("count", "command", count)])
    for name in drones.FIRST_PRINCIPLES:
        pipeline.rollout(step, drones.load(name), resting(), jnp.zeros((5, 4)))
    after_rollouts = traces
    assert after_rollouts > 0
    pipeline.rollout(step, drones.load("cf2x_P250"), resting((1.0, 2.0, 3.0)), jnp.ones((5, 4)))
    assert traces == after_rollouts
