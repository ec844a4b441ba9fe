"""What physics demands of the dynamics: conservation, symmetry, balance."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from sim import drones, pipeline, rotor
from sim.dynamics import first_principles
from sim.errors import ConfigError
from sim.state import State, components, resting

FULL_INERTIA = np.array([[2.5e-5, 3e-6, -2e-6], [3e-6, 2.8e-5, 1e-6], [-2e-6, 1e-6, 4.9e-5]])
RK4 = pipeline.build_step(integrator="rkmk4", dt=1e-3)


def world(states, vectors):
    return Rotation.from_quat(np.asarray(states.quat)).apply(np.asarray(vectors))


def tumbling(rotor_rpm):
    state = resting((0.0, 0.0, 5.0))
    quat = jnp.asarray(Rotation.from_rotvec([0.4, -0.3, 1.0]).as_quat())
    return replace(
        state, quat=quat, vel=jnp.array([1.0, -2.0, 3.0]), ang_vel=jnp.array([9.0, -4.0, 6.0]), rotor_rpm=rotor_rpm
    )


def without_air(**changes):
    nothing = {"rpm2thrust": np.zeros(3), "rpm2torque": np.zeros(3), "drag": np.zeros((3, 3))}
    return replace(drones.load("cf21B_500"), inertia=FULL_INERTIA, **nothing, **changes)


def test_energy_and_momentum_hold_in_free_fall_without_air(float64):
    params = without_air()
    states = pipeline.rollout(RK4, params, tumbling(jnp.zeros(4)), jnp.zeros((500, 4)))
    mass, g = float(params.mass), float(params.gravity)
    spin = np.asarray(states.ang_vel)
    energy = 0.5 * mass * np.sum(np.asarray(states.vel) ** 2, -1) + mass * g * np.asarray(states.pos)[:, 2]
    energy = energy + 0.5 * np.einsum("ti,ij,tj->t", spin, FULL_INERTIA, spin)
    np.testing.assert_allclose(energy, energy[0], rtol=1e-9)
    momentum = world(states, spin @ FULL_INERTIA)
    np.testing.assert_allclose(momentum, momentum[:1].repeat(500, 0), atol=1e-9 * np.linalg.norm(momentum[0]))
    np.testing.assert_allclose(np.asarray(states.vel)[:, :2], [[1.0, -2.0]] * 500, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(states.vel)[-1, 2], 3.0 - g * 0.5, rtol=1e-12)


def test_body_and_rotors_together_keep_their_angular_momentum(float64):
    # Only gyroscopic and reaction torques act: what the rotors gain the body loses. This fixes both their signs.
    params = without_air()
    states = pipeline.rollout(
        RK4, params, tumbling(jnp.full(4, 5e3)), jnp.tile(jnp.array([20e3, 18e3, 20e3, 14e3]), (400, 1))
    )
    rotors = -float(params.prop_inertia) * first_principles.RPM2RAD_S * np.asarray(states.rotor_rpm) @ params.mixing[2]
    total = np.asarray(states.ang_vel) @ FULL_INERTIA + rotors[:, None] * np.array([0.0, 0.0, 1.0])
    momentum = world(states, total)
    assert np.ptp(rotors) > 0.01 * np.linalg.norm(momentum[0])
    np.testing.assert_allclose(momentum, momentum[:1].repeat(400, 0), atol=1e-8 * np.linalg.norm(momentum[0]))


@pytest.mark.parametrize("name", drones.FIRST_PRINCIPLES)
def test_hover_speed_balances_the_drone(float64, name):
    params = drones.load(name)
    state = resting((0.0, 0.0, 1.0), rotor_rpm=rotor.hover_rpm(params))
    rates = first_principles.derivative(params, components(state), tuple(state.rotor_rpm))
    np.testing.assert_allclose(jnp.stack(rates), 0.0, atol=1e-9)


def test_drag_ends_in_a_terminal_speed(float64):
    params = drones.load("cf21B_500")
    states = pipeline.rollout(pipeline.build_step(dt=0.01), params, resting(), jnp.zeros((4000, 4)))
    expected = float(params.mass * params.gravity / params.drag[2, 2])  # drag is negative, so is the speed
    assert float(states.vel[-1, 2]) == pytest.approx(expected, rel=1e-6)


def test_damping_decays_at_its_rate(float64):
    params = without_air(rot_damping=np.asarray(2.0), gravity=np.asarray(0.0))
    state = replace(resting(), ang_vel=jnp.array([0.0, 0.0, 0.0]) + jnp.linalg.eigh(jnp.asarray(FULL_INERTIA))[1][:, 0])
    states = pipeline.rollout(RK4, params, state, jnp.zeros((500, 4)))
    np.testing.assert_allclose(states.ang_vel[-1], state.ang_vel * np.exp(-2.0 * 0.5), rtol=1e-8)


def flight(state, commands, params=None):
    return pipeline.rollout(pipeline.build_step(), params or drones.load("cf21B_500"), state, commands)


def commands(steps=200):
    wave = np.sin(np.arange(steps)[:, None] * np.array([0.05, 0.07, 0.11, 0.13]))
    return jnp.asarray(15_000 + 3_000 * wave)


def test_heading_does_not_matter(float64):
    turn = Rotation.from_rotvec([0.0, 0.0, 0.8])
    start = tumbling(jnp.full(4, 14e3))
    turned = replace(
        start,
        pos=jnp.asarray(turn.apply(np.array(start.pos))),
        vel=jnp.asarray(turn.apply(np.array(start.vel))),
        quat=jnp.asarray((turn * Rotation.from_quat(np.array(start.quat))).as_quat()),
    )
    a, b = flight(start, commands()), flight(turned, commands())
    np.testing.assert_allclose(turn.apply(np.array(a.pos)), b.pos, atol=1e-10)
    np.testing.assert_allclose(a.ang_vel, b.ang_vel, atol=1e-8)


def test_left_and_right_mirror(float64):
    # Mirrored at the xz plane: true vectors change y, rotations change x and z, left and right rotors swap.
    true, axial, swap = jnp.array([1.0, -1.0, 1.0]), jnp.array([-1.0, 1.0, -1.0]), jnp.array([3, 2, 1, 0])

    def mirror(s):
        with jax.numpy_rank_promotion("allow"):
            quat = s.quat * jnp.array([-1.0, 1.0, -1.0, 1.0])
            return State(s.pos * true, quat, s.vel * true, s.ang_vel * axial, s.rotor_rpm[..., swap])

    start = tumbling(jnp.array([14e3, 15e3, 16e3, 13e3]))
    a, b = flight(start, commands()), flight(mirror(start), commands()[:, swap])
    a = mirror(a)
    for key in ("pos", "vel", "ang_vel", "rotor_rpm"):
        np.testing.assert_allclose(getattr(a, key), getattr(b, key), rtol=1e-9, atol=1e-9)


def test_full_inertia_solves_the_equation_of_motion(float64):
    params = replace(drones.load("cf21B_500"), inertia=FULL_INERTIA)
    inverse = np.array(first_principles.coefficients(params).inertia_inv)
    np.testing.assert_allclose(inverse @ FULL_INERTIA, np.eye(3), atol=1e-12)
    with pytest.raises(ConfigError, match=r"params\.inertia has off-diagonal"):
        first_principles.coefficients(params, diagonal=True)


def start_states():
    hover = float(rotor.hover_rpm(drones.load("cf21B_500"))[0])
    level = resting((0.0, 0.0, 1.0))
    inverted = jnp.array([1.0, 0.0, 0.0, 0.0])
    return {
        "rest": (level, 0.0),
        "hover": (resting((0.0, 0.0, 1.0), rotor_rpm=hover), hover),
        "inverted": (replace(level, quat=inverted, rotor_rpm=jnp.full(4, hover)), hover),
        "saturated": (resting((0.0, 0.0, 1.0), rotor_rpm=21_000.0), 30_000.0),
        "tumbling": (replace(level, ang_vel=jnp.array([30.0, -25.0, 10.0])), hover),
        "spinning": (replace(level, ang_vel=jnp.array([0.0, 0.0, 2e3])), 0.0),
    }


@pytest.mark.parametrize("start", start_states())
def test_gradients_are_finite(start):
    state, rpm = start_states()[start]
    step = pipeline.build_step()

    def cost(params, state, u):
        last = pipeline.rollout(step, params, state, u)
        return sum(jnp.sum(jnp.square(getattr(last, k))) for k in ("pos", "quat", "vel", "ang_vel"))

    grads = jax.grad(cost, argnums=(0, 1, 2))(drones.load("cf21B_500"), state, jnp.full((20, 4), rpm))
    leaves = jax.tree.leaves(grads)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in leaves)
    assert any(float(jnp.max(jnp.abs(leaf))) > 0.0 for leaf in leaves)


def test_gradients_are_those_of_finite_differences(float64):
    state, rpm = tumbling(jnp.full(4, 14e3)), jnp.array([15e3, 16e3, 13e3, 15e3])
    step, params = pipeline.build_step(), drones.load("cf21B_500")

    def cost(scale):
        changed = replace(
            params, mass=params.mass * scale, inertia=params.inertia * scale, rpm2thrust=params.rpm2thrust * scale
        )
        last = pipeline.rollout(step, changed, state, jnp.tile(rpm, (50, 1)) * scale)
        return jnp.sum(last.pos[-1]) + jnp.sum(last.ang_vel[-1]) + jnp.sum(last.quat[-1])

    h = 1e-6
    slope = (cost(1.0 + h) - cost(1.0 - h)) / (2.0 * h)
    assert float(jax.grad(cost)(1.0)) == pytest.approx(float(slope), rel=1e-6)
