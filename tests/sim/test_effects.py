"""Each stage does what its equation says, alone and at its place."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from sim import drones, effects, pipeline, rotor
from sim.errors import ConfigError
from sim.state import resting


def with_effects(**parameters):
    return replace(drones.load("cf21B_500"), effects=parameters)


def test_a_wrench_accelerates(float64):
    force, torque = jnp.array([0.1, -0.2, 0.3]), jnp.array([1e-5, 2e-5, -3e-5])
    params = with_effects(external_wrench=(force, torque))
    after = pipeline.build_step(stages=[effects.external_wrench], dt=1e-3)(params, resting(), jnp.zeros(4))
    gravity = jnp.array([0.0, 0.0, 9.81])
    np.testing.assert_allclose(after.vel, 1e-3 * (force / params.mass - gravity), rtol=1e-12)
    np.testing.assert_allclose(after.ang_vel, 1e-3 * torque / jnp.diagonal(params.inertia), rtol=1e-12)


def test_drag_is_felt_relative_to_the_wind(float64):
    wind = jnp.array([2.0, -1.0, 0.5])
    quat = jnp.array([0.5, 0.5, -0.5, 0.5])
    params = with_effects(wind=wind)
    carried = pipeline.build_step(stages=[effects.wind])(params, replace(resting(), quat=quat, vel=wind), jnp.zeros(4))
    still = pipeline.build_step()(with_effects(), replace(resting(), quat=quat), jnp.zeros(4))
    np.testing.assert_allclose(carried.vel - wind, still.vel, atol=1e-14)


def test_floor_holds_what_falls_and_lets_go_what_rises():
    step = pipeline.build_step(stages=[effects.floor])
    params = drones.load("cf21B_500")
    falling = replace(resting((1.0, 2.0, -0.0005)), vel=jnp.array([1.0, 0.0, -1.0]))
    held = step(params, falling, jnp.zeros(4))
    np.testing.assert_allclose(held.pos, [1.002, 2.0, effects.FLOOR_Z], rtol=1e-6)
    np.testing.assert_array_equal(held.vel, 0.0)
    rising = replace(resting((1.0, 2.0, 0.0)), vel=jnp.array([0.0, 0.0, 1.0]))
    assert float(step(params, rising, jnp.zeros(4)).pos[2]) > 0.0


def test_commands_are_held_within_the_rotors_reach():
    step = pipeline.build_step(stages=[effects.rotor_limits])
    params = drones.load("cf21B_500")
    top = rotor.limits(params)[1][0]
    state = resting(rotor_rpm=15e3)
    beyond, at = step(params, state, jnp.full(4, 1e6)), step(params, state, jnp.full(4, top))
    np.testing.assert_array_equal(beyond.rotor_rpm, at.rotor_rpm)
    below, off = step(params, state, jnp.full(4, -1e6)), step(params, state, jnp.zeros(4))
    np.testing.assert_array_equal(below.rotor_rpm, off.rotor_rpm)


def test_your_own_stage(float64):
    lift = effects.Stage("lift", "wrench", lambda p, x, u: ((0.0, 0.0, p.effects["lift"]), (0.0, 0.0, 0.0)))
    params = with_effects(lift=drones.load("cf21B_500").mass * 9.81)
    after = pipeline.build_step(stages=[lift], integrator="rk4")(params, resting(), jnp.zeros(4))
    np.testing.assert_allclose(after.vel, 0.0, atol=1e-15)


def test_parameters_and_stages_must_match():
    wrench = (jnp.zeros(3), jnp.zeros(3))
    with pytest.raises(
        ConfigError, match=r"params\.effects has \['external_wrench'\], but this step has only the stages \[\]"
    ):
        pipeline.build_step()(with_effects(external_wrench=wrench), resting(), jnp.zeros(4))
    with pytest.raises(ConfigError, match="stage 'wind' needs"):
        pipeline.build_step(stages=[effects.wind])(with_effects(), resting(), jnp.zeros(4))
