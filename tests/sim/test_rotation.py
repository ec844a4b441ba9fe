"""Rotations against SciPy's, and their behaviour where formulas are singular."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from sim import rotation

ANGLES = st.floats(-1.8, 1.8, allow_subnormal=True)
VECTORS = st.tuples(ANGLES, ANGLES, ANGLES)


@settings(max_examples=100, deadline=None)
@given(VECTORS)
def test_exp_is_exact_up_to_half_a_turn(v):
    if np.linalg.norm(v) > np.pi:
        v = tuple(np.array(v) * np.pi / np.linalg.norm(v))
    with jax.enable_x64(True):
        ours = np.array(rotation.exp(tuple(jnp.float64(a) for a in v)))
    theirs = Rotation.from_rotvec(v).as_quat()
    np.testing.assert_allclose(ours * np.sign(ours @ theirs or 1.0), theirs, atol=4e-15)


def test_exp_in_float32_is_exact_to_its_rounding():
    v = np.random.default_rng(1).uniform(-1.8, 1.8, (3, 1000)).astype(np.float32)
    ours = np.stack(rotation.exp(tuple(map(jnp.asarray, v))))
    theirs = Rotation.from_rotvec(v.T).as_quat().T
    np.testing.assert_allclose(np.abs(np.sum(ours * theirs, 0)), 1.0, atol=5e-7)


def test_exp_stays_a_rotation_at_any_rate():
    turned = rotation.turn((0.0, 0.0, 0.0, 1.0), (jnp.float32(1e4), jnp.float32(-1e4), jnp.float32(0.0)))
    assert float(jnp.linalg.norm(jnp.stack(turned))) == pytest.approx(1.0, abs=1e-6)


def test_exp_is_smooth_at_zero(float64):
    jacobian = jax.jacobian(lambda v: jnp.stack(rotation.exp(tuple(v))))(jnp.zeros(3))
    np.testing.assert_array_equal(jacobian, np.vstack([0.5 * np.eye(3), np.zeros(3)]))
    curvature = jax.hessian(lambda v: rotation.exp(tuple(v))[3])(jnp.zeros(3))
    np.testing.assert_allclose(curvature, -0.25 * np.eye(3), atol=1e-15)


def test_matrix_and_products_agree_with_scipy(float64):
    a, b = Rotation.random(2, rng=np.random.default_rng(3))
    v = np.array([0.3, -2.0, 0.7])
    qa, qb = (tuple(map(jnp.float64, r.as_quat())) for r in (a, b))
    R = rotation.matrix(qa)
    np.testing.assert_allclose(np.reshape(R, (3, 3)), a.as_matrix(), atol=1e-15)
    np.testing.assert_allclose(rotation.rotate(R, tuple(v)), a.apply(v), atol=1e-15)
    np.testing.assert_allclose(rotation.rotate_back(R, tuple(v)), a.inv().apply(v), atol=1e-15)
    product = Rotation.from_quat(np.array(rotation.multiply(qa, qb)))
    assert (product * (a * b).inv()).magnitude() < 1e-14


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2.5e-7), (np.float64, 1e-15)])
def test_angle_is_the_arc_tangent_in_every_direction(dtype, tolerance):
    turns = np.concatenate([np.linspace(-np.pi, np.pi, 4001)[1:-1], [0.0, 0.5 * np.pi, -0.5 * np.pi]])
    with jax.enable_x64(dtype == np.float64):
        s, c = jnp.asarray(np.sin(turns), dtype), jnp.asarray(np.cos(turns), dtype)
        expected = np.arctan2(np.asarray(s, float), np.asarray(c, float))
        np.testing.assert_allclose(rotation.angle(s, c), expected, atol=2.0 * tolerance)
        slope = jax.vmap(jax.grad(rotation.angle, argnums=(0, 1)))(s, c)
        np.testing.assert_allclose(slope[0], c, atol=1e-5)
        np.testing.assert_allclose(slope[1], -s, atol=1e-5)
        nothing = jax.grad(rotation.angle, argnums=(0, 1))(jnp.zeros((), dtype), jnp.zeros((), dtype))
        np.testing.assert_array_equal(nothing, 0.0)


def test_euler_angles_are_those_of_scipy():
    angles = np.random.default_rng(5).uniform([-3.1, -1.5, -3.1], [3.1, 1.5, 3.1], (200, 3))
    quats = Rotation.from_euler("xyz", angles).as_quat()
    with jax.enable_x64(True):
        ours = np.stack(rotation.euler(tuple(jnp.asarray(quats.T))), -1)
        back = np.stack(rotation.from_euler(tuple(jnp.asarray(angles.T))), -1)
    np.testing.assert_allclose(ours, angles, atol=1e-12)
    np.testing.assert_allclose(np.abs(np.sum(back * quats, -1)), 1.0, atol=1e-14)


@given(st.floats(-3.14, 3.14))
@settings(deadline=None)
def test_half_angles_double_back(turn):
    with jax.enable_x64(True):
        c, s = (float(v) for v in rotation.half(jnp.cos(turn), jnp.sin(turn)))
    np.testing.assert_allclose(
        [c * c - s * s, 2.0 * c * s, c * c + s * s], [np.cos(turn), np.sin(turn), 1.0], atol=1e-14
    )
