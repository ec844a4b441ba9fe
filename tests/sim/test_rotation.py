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
