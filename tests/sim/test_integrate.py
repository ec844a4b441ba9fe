"""Order of convergence of every integrator on a tumbling, accelerating drone."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sim import drones, integrate, pipeline
from sim.state import State


def tumbling():
    quat = jnp.array([0.1, -0.2, 0.3, 0.9])
    rotors = jnp.array([5e3, 6e3, 7e3, 8e3])
    return State(
        jnp.zeros(3), quat / jnp.linalg.norm(quat), jnp.array([1.0, 2.0, -1.0]), jnp.array([8.0, -5.0, 3.0]), rotors
    )


def end(integrator, steps, duration=0.128):
    step = pipeline.build_step(integrator=integrator, dt=duration / steps)
    # Rotors rise all the time, so that their switch between rise and fall does not blur the order.
    states = pipeline.rollout(step, drones.load("cf21B_500"), tumbling(), jnp.full((steps, 4), 19e3))
    return np.concatenate(
        [np.asarray(leaf[-1]) * scale for leaf, scale in zip(jax.tree.leaves(states), (1, 1, 1, 1, 1e-3), strict=True)]
    )


@pytest.mark.parametrize(
    ("integrator", "order", "steps"),
    [("euler", 1, 128), ("symplectic_euler", 1, 128), ("rk4", 2, 64), ("rkmk4", 4, 16)],
)
def test_error_falls_with_the_order(float64, integrator, order, steps):
    exact = end("rkmk4", 2048)
    coarse, fine = (np.abs(end(integrator, n) - exact).max() for n in (steps, 2 * steps))
    assert np.log2(coarse / fine) == pytest.approx(order, abs=0.3)


@pytest.mark.parametrize("integrator", integrate.INTEGRATORS)
def test_quaternion_stays_unit(integrator):
    step = pipeline.build_step(integrator=integrator)
    states = pipeline.rollout(step, drones.load("cf21B_500"), tumbling(), jnp.full((2000, 4), 19e3))
    np.testing.assert_allclose(jnp.linalg.norm(states.quat, axis=-1), 1.0, atol=3e-7)


def fitted_end(integrator, steps, duration=0.128):
    step = pipeline.build_step(dynamics="so_rpy_rotor_drag", integrator=integrator, dt=duration / steps)
    state = replace(tumbling(), rotor_rpm=jnp.full(4, 0.3))
    u = jnp.tile(jnp.array([0.3, -0.2, 0.5, 0.6]), (steps, 1))
    states = pipeline.rollout(step, drones.load("cf21B_500", dynamics="so_rpy_rotor_drag"), state, u)
    return np.concatenate([np.asarray(leaf[-1]) for leaf in jax.tree.leaves(states)])


@pytest.mark.parametrize(
    ("integrator", "order", "steps"),
    [("euler", 1, 256), ("symplectic_euler", 1, 256), ("rk4", 2, 64), ("rkmk4", 4, 32)],
)
def test_error_of_the_fitted_model_falls_with_the_order(float64, integrator, order, steps):
    exact = fitted_end("rkmk4", 2048)
    coarse, fine = (np.abs(fitted_end(integrator, n) - exact).max() for n in (steps, 2 * steps))
    assert np.log2(coarse / fine) == pytest.approx(order, abs=0.3)
