"""The curve between rotor speed and thrust."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sim import drones, rotor


@pytest.mark.parametrize("name", drones.FIRST_PRINCIPLES)
def test_speed_and_thrust_invert_each_other(float64, name):
    params = drones.load(name)
    thrust = jnp.linspace(params.thrust_min, params.thrust_max, 50)
    speed = rotor.rpm(params, thrust)
    np.testing.assert_allclose(rotor.thrust(params, speed), thrust, rtol=1e-12)
    assert bool(jnp.all(jnp.diff(speed) > 0.0))


def test_slope_is_finite_where_no_speed_fits():
    params = drones.load("cf21B_500")
    slope = jax.grad(lambda f: rotor.rpm(params, f)[0])(jnp.array([-1.0]))
    np.testing.assert_array_equal(slope, 0.0)


def test_a_batch_of_drones_each_has_its_curve():
    many = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(drones.load, drones.FIRST_PRINCIPLES))
    together = rotor.hover_rpm(many)
    alone = jnp.stack([rotor.hover_rpm(drones.load(name)) for name in drones.FIRST_PRINCIPLES])
    np.testing.assert_allclose(together, alone, rtol=1e-6)
