import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers import policy
from sim import drones, rotor


def random_network(seed=0, arch=policy.RECOVERY):
    rng = np.random.default_rng(seed)
    return policy.unflatten(rng.normal(0, 0.5, arch.parameters).astype(np.float32), arch)


def test_the_networks_of_the_wire_have_its_sizes():
    assert {a: n.parameters for a, n in policy.ARCHITECTURES.items()} == {1: 276, 2: 676, 3: 932}
    assert policy.RECOVERY.sizes == (20, 8, 8, 4)


def test_flat_order_is_input_major_then_biases_layer_by_layer():
    network = policy.unflatten(np.arange(276, dtype=np.float32))
    assert network.weights[0].shape == (20, 8) and network.weights[0][3, 2] == 3 * 8 + 2
    assert network.biases[0].tolist() == list(range(160, 168))
    assert network.weights[1][1, 0] == 176 and network.biases[1][0] == 232
    assert network.weights[2][7, 3] == 240 + 31 and network.biases[2].tolist() == [272, 273, 274, 275]
    assert np.array_equal(policy.flatten(network, np), np.arange(276))


def test_another_number_of_parameters_is_refused():
    with pytest.raises(ValueError, match=r"\(275,\).*276"):
        policy.unflatten(np.zeros(275, np.float32))


def test_observation_of_a_state_worked_out_by_hand():
    s = np.sqrt(0.5)
    # Rolled by 90 degrees: world's up lies along body +y, the drone's left side.
    inputs = policy.observe(1.7, (s, 0.0, 0.0, s), (1.0, 2.0, 3.0), (0.4, 0.5, 0.6), (-1.0, -0.5, 0.5, 1.0), 1.2, np)
    height = np.tanh(0.5)
    expected = [
        *(0, 1, 0),
        *(0.6, 1.8, -1.2),
        *(0.06, 0.075, 0.09),
        *(height, 1.5),
        *(-1, -0.5, 0.5, 1),
        *(0, 0, 0, 0, 0),
    ]
    assert np.allclose(inputs, expected, atol=1e-7)


def test_products_are_with_the_vertical_part_of_up():
    inputs = policy.features((0.1, 0.2, 0.5), (1.0, 2.0, 3.0), 0.3, (0.0, 0.0, 0.0), 0.4, (0.0,) * 4)
    assert np.allclose(inputs[15:], [0.05, 0.1, 0.2, 0.3, 0.6])
    assert len(inputs) == 20


@given(st.floats(-3.1, 3.1))
def test_heading_is_invisible(heading):
    def seen(yaw):
        turn = np.array([[np.cos(yaw), -np.sin(yaw)], [np.sin(yaw), np.cos(yaw)]])
        vx, vy = turn @ (1.0, -0.5)
        tilted = np.array([0.3, -0.2, 0.1, np.sqrt(1 - 0.14)])
        z, w = np.sin(yaw / 2), np.cos(yaw / 2)
        x0, y0, z0, w0 = tilted
        quat = (w * x0 - z * y0, w * y0 + z * x0, w * z0 + z * w0, w * w0 - z * z0)
        return np.array(policy.observe(1.0, quat, (vx, vy, 0.7), (1.0, 2.0, 3.0), (0.0,) * 4, 1.2, np))

    assert np.allclose(seen(heading), seen(0.0), atol=1e-9)


def test_batch_forward_is_the_plain_one():
    network = random_network()
    observations = np.random.default_rng(1).normal(size=(50, 20)).astype(np.float32)
    batch = policy.forward(network, tuple(jnp.asarray(observations[:, i]) for i in range(20)))
    assert batch.shape == (4, 50)
    assert np.allclose(batch.T, policy.act(network, observations), atol=2e-6)
    assert np.allclose(policy.act(network, observations[3]), policy.act(network, observations)[3], atol=1e-6)


def test_written_derivative_is_that_of_the_layers():
    network = jax.tree.map(jnp.asarray, random_network(2))
    inputs = tuple(jax.random.normal(jax.random.key(3), (20, 16)))
    weight = jax.random.normal(jax.random.key(4), (4, 16))

    def plain(network, inputs):
        x = jnp.stack(inputs)
        for i, (w, b) in enumerate(zip(network.weights, network.biases, strict=True)):
            x = w.T @ x + b[:, None]
            x = jnp.tanh(x) if i == 2 else jax.nn.relu(x)
        return (x * weight).sum()

    ours = jax.grad(lambda n, x: (policy.forward(n, x) * weight).sum(), (0, 1))(network, inputs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(jax.grad(plain, (0, 1))(network, inputs)), strict=True):
        assert np.allclose(a, b, rtol=1e-4, atol=1e-5)


def test_untrained_weights_have_their_spread_and_a_calm_last_layer():
    networks = [policy.init(jax.random.key(i)) for i in range(60)]
    for layer, (n_in, factor) in enumerate(((20, 1.0), (8, 1.0), (8, 0.1))):
        drawn = np.concatenate([np.ravel(n.weights[layer]) for n in networks])
        assert abs(drawn.std() * n_in**0.5 / factor - 1.0) < 0.05
    assert all(np.all(b == 0) for b in networks[0].biases)


def test_image_is_little_endian_halves_rounded_to_even():
    flat = np.zeros(276, np.float32)
    flat[:4] = 1.0, -2.0, 1.0 + 2.0**-11, 1.0 + 3 * 2.0**-11
    image = policy.to_halves(flat)
    assert len(image) == 552
    assert image[:8] == bytes.fromhex("003c00c0003c023c")
    back = policy.flatten(policy.from_halves(image), np)
    assert back.dtype == np.float32 and back[3] == 1.0 + 2.0**-9
    assert policy.crc(image) == zlib.crc32(image) and policy.crc(b"123456789") == 0xCBF43926


@pytest.mark.parametrize("bad", [np.nan, np.inf, 65.0])
def test_a_parameter_the_drone_would_refuse_is_not_packed(bad):
    flat = np.zeros(276, np.float32)
    flat[17] = bad
    with pytest.raises(ValueError, match="up to 64"):
        policy.to_halves(flat)


def test_canned_observation_and_expected_outputs():
    observation = policy.canned_observation()
    assert np.allclose(observation[:8], [-0.3, -0.2, -0.1, 0.0, 0.1, 0.2, 0.3, -0.3])
    flat = np.zeros(276, np.float32)
    flat[272:] = 0.1, -0.2, 0.3, 2.0
    halves = flat[272:].astype(np.float16).astype(np.float64)
    assert np.allclose(policy.expected_outputs(policy.to_halves(flat)), np.tanh(halves), atol=1e-6)


@settings(max_examples=50)
@given(st.floats(-1.0, 1.0))
def test_action_is_linear_in_the_thrust_it_commands(action):
    drone = drones.load("cf21B_500", np.float64)
    limits = (drone.thrust_min, drone.thrust_max)
    rpm = policy.rotor_rpm(action, limits, drone.rpm2thrust, np)
    c0, c1, c2 = drone.rpm2thrust
    thrust = c0 + c1 * rpm + c2 * rpm * rpm
    assert np.isclose(policy.action_of_thrust(thrust, limits), action, atol=1e-9)


def test_rotor_map_is_that_of_the_physics():
    drone = drones.load("cf21B_500")
    ours = policy.rotor_rpm(jnp.array([-1.0, 1.0]), (drone.thrust_min, drone.thrust_max), drone.rpm2thrust)
    low, high = rotor.limits(drone)
    assert np.allclose(ours, [low[0], high[0]], rtol=1e-5)
