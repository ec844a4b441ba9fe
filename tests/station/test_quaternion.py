"""Scalar attitude algebra: the laws of the group, and the matrix that turns as the product does."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from station import quaternion

vectors = st.tuples(*[st.floats(-1.5, 1.5)] * 3)


@given(vectors)
def test_log_undoes_exp_for_either_sign(v):
    q = quaternion.exp(v)
    np.testing.assert_allclose(quaternion.log(q), v, atol=1e-9)
    np.testing.assert_allclose(quaternion.log(tuple(-x for x in q)), v, atol=1e-9)


@given(vectors, vectors)
def test_difference_is_what_turns_one_into_the_other(a, b):
    p, q = quaternion.exp(a), quaternion.exp(b)
    again = quaternion.multiply(p, quaternion.exp(quaternion.difference(p, q)))
    assert abs(abs(sum(x * y for x, y in zip(again, q, strict=True))) - 1.0) < 1e-9


@given(vectors, vectors)
def test_matrices_multiply_as_quaternions_do(a, b):
    p, q = quaternion.exp(a), quaternion.exp(b)
    np.testing.assert_allclose(
        np.array(quaternion.matrix(quaternion.multiply(p, q))),
        np.array(quaternion.matrix(p)) @ np.array(quaternion.matrix(q)),
        atol=1e-9,
    )


def test_a_quarter_turn_about_z_takes_x_to_y():
    rows = quaternion.matrix(quaternion.exp((0.0, 0.0, math.pi / 2)))
    np.testing.assert_allclose([row[0] for row in rows], (0.0, 1.0, 0.0), atol=1e-12)
