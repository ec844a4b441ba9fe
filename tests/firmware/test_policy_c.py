"""policy.c against numpy, and against the station's policy: halves, observation, forward pass, thrust curve."""

from __future__ import annotations

import ctypes
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers import policy

f4, f20 = ctypes.c_float * 4, ctypes.c_float * 36


class Vehicle(ctypes.Structure):
    _fields_ = [("pos", ctypes.c_float * 3), ("quat", f4), ("vel", ctypes.c_float * 3), ("ang_vel", ctypes.c_float * 3)]


class Rotor(ctypes.Structure):
    _fields_ = [("low", ctypes.c_float), ("high", ctypes.c_float), ("curve", ctypes.c_float * 3)]


@pytest.fixture(scope="module")
def c(library):
    library.policy_half_to_float.argtypes, library.policy_half_to_float.restype = [ctypes.c_uint16], ctypes.c_float
    library.policy_float_to_half.argtypes, library.policy_float_to_half.restype = [ctypes.c_float], ctypes.c_uint16
    library.policy_arch.argtypes, library.policy_arch.restype = [ctypes.c_uint16], ctypes.c_void_p
    library.policy_forward.argtypes, library.policy_forward.restype = [ctypes.c_void_p] * 4, ctypes.c_bool
    library.policy_observe.argtypes, library.policy_observe.restype = (
        [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_float, ctypes.c_void_p, ctypes.c_void_p],
        None,
    )
    library.policy_rpm.argtypes, library.policy_rpm.restype = [ctypes.c_void_p, ctypes.c_float], ctypes.c_float
    return library


def forward(c, net, obs):
    params = net.halves.astype(np.float32)
    obs = np.asarray(obs, np.float32)
    action = f4()
    finite = c.policy_forward(c.policy_arch(net.arch), params.ctypes.data, obs.ctypes.data, action)
    return finite, np.array(action)


def observe(c, arch, state, target, past):
    obs, past = f20(), np.ascontiguousarray(past, np.float32)
    vehicle = Vehicle(*(type(getattr(Vehicle(), n))(*state[n]) for n in ("pos", "quat", "vel", "ang_vel")))
    c.policy_observe(c.policy_arch(arch), ctypes.byref(vehicle), target, past.ctypes.data, obs)
    return np.array(obs)


def random_state(seed):
    rng = np.random.default_rng(seed)
    quat = rng.normal(size=4)
    return {
        "pos": rng.normal(0, 1, 3),
        "quat": quat / np.linalg.norm(quat),
        "vel": rng.normal(0, 2, 3),
        "ang_vel": rng.normal(0, 5, 3),
    }


def rotation(q):
    x, y, z, w = q
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def reference_observation(state, target, past):
    R = rotation(state["quat"])
    g, v = R[2], 0.6 * R.T @ state["vel"]
    h = np.tanh(state["pos"][2] - target)
    products = [g[0] * g[2], g[1] * g[2], h * g[2], v[0] * g[2], v[1] * g[2]]
    return np.concatenate([g, v, 0.15 * state["ang_vel"], [h, 0.5 * state["vel"][2]], past[0], products])


def test_every_half_becomes_its_float(c):
    halves = np.arange(65536, dtype=np.uint16)
    ours = np.array([c.policy_half_to_float(int(h)) for h in halves], np.float32)
    numpys = halves.view(np.float16).astype(np.float32)
    assert np.array_equal(np.isnan(ours), np.isnan(numpys))
    number = ~np.isnan(numpys)
    assert np.array_equal(ours[number].view(np.uint32), numpys[number].view(np.uint32))


def test_every_half_survives_the_round_trip(c):
    for half in range(65536):
        back = c.policy_float_to_half(c.policy_half_to_float(half))
        assert back == half or (half & 0x7C00 == 0x7C00 and half & 0x3FF and back & 0x7C00 == 0x7C00 and back & 0x3FF)


def test_rounding_at_every_tie_and_beside_it(c):
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    ties = ((halves[:-1] + halves[1:]) / 2).astype(np.float32)
    ties = np.append(ties, np.float32(65520))
    for values in (ties, np.nextafter(ties, np.float32(0)), np.nextafter(ties, np.float32(np.inf)), -ties):
        with np.errstate(over="ignore"):
            want = values.astype(np.float16).view(np.uint16)
        got = np.array([c.policy_float_to_half(float(v)) for v in values], np.uint16)
        assert np.array_equal(got, want)


@settings(deadline=None)
@given(st.floats(width=32))
def test_any_float_becomes_its_half(library, value):
    library.policy_float_to_half.argtypes, library.policy_float_to_half.restype = [ctypes.c_float], ctypes.c_uint16
    got = np.uint16(library.policy_float_to_half(value)).view(np.float16)
    with np.errstate(over="ignore"):
        want = np.float32(value).astype(np.float16)
    assert (np.isnan(got) and np.isnan(want)) or got.view(np.uint16) == want.view(np.uint16)


@pytest.mark.parametrize("arch", [1, 2, 3])
def test_forward_pass_equals_numpy(c, network, arch):
    for seed in range(20):
        net = network(arch, seed, scale=0.5)
        obs = np.random.default_rng(seed).normal(0, 1, net.shapes[0][0])
        finite, action = forward(c, net, obs)
        assert finite
        assert np.abs(action - net.forward(obs)).max() < 1e-4


def test_not_finite_is_told(c, network):
    net = network()
    for bad in (np.nan, np.inf):
        obs = np.zeros(20)
        obs[13] = bad
        assert not forward(c, net, obs)[0]
    net.halves[5] = np.nan
    assert not forward(c, net, np.ones(20))[0]


def test_observation_order_and_scales(c):
    for seed in range(50):
        state, past = random_state(seed), np.random.default_rng(seed).uniform(-1, 1, (5, 4))
        got = observe(c, 1, state, 1.5, past)[:20]
        assert np.abs(got - reference_observation(state, 1.5, past)).max() < 1e-5


def test_arch_3_sees_four_more_actions(c):
    past = np.arange(20).reshape(5, 4) / 20
    got = observe(c, 3, random_state(0), 1.0, past)
    assert np.allclose(got[11:15], past[0])
    assert np.allclose(got[20:36], past[1:].ravel())


def test_observation_is_free_of_heading(c):
    state, past = random_state(3), np.zeros((5, 4))
    half = 0.5
    x, y, z, w = state["quat"]
    s, k = np.sin(half), np.cos(half)  # turned by 2 half about the world's z
    turned = np.array([k * x - s * y, k * y + s * x, k * z + s * w, k * w - s * z])
    R = np.array([[np.cos(1.0), -np.sin(1.0), 0], [np.sin(1.0), np.cos(1.0), 0], [0, 0, 1]])
    other = state | {"quat": turned, "vel": R @ state["vel"]}
    assert np.abs(observe(c, 1, state, 1.0, past) - observe(c, 1, other, 1.0, past)).max() < 1e-5


def test_thrust_map(c, airframe):
    rotor = Rotor(airframe.thrust_min_N, airframe.thrust_max_N, (ctypes.c_float * 3)(*airframe.rpm2thrust))
    _, k1, k2 = airframe.rpm2thrust
    for action in np.linspace(-1, 1, 21):
        rpm = c.policy_rpm(ctypes.byref(rotor), action)
        span = airframe.thrust_max_N - airframe.thrust_min_N
        want = airframe.thrust_min_N + (action + 1) / 2 * span
        assert k1 * rpm + k2 * rpm**2 == pytest.approx(want, rel=1e-5)


def test_against_the_stations_policy(c, network):
    for seed in range(10):
        net, state = network(1, seed), random_state(seed)
        _, action = forward(c, net, np.asarray(policy.canned_observation()))
        assert np.abs(action - np.asarray(policy.expected_outputs(net.image))).max() < 1e-3
        assert policy.crc(net.image) == zlib.crc32(net.image)
        past = np.random.default_rng(seed).uniform(-1, 1, (5, 4))
        components = (tuple(state[name]) for name in ("quat", "vel", "ang_vel"))
        theirs = policy.observe(state["pos"][2], *components, tuple(past[0]), 1.2, np)
        assert np.abs(np.array(theirs, float) - observe(c, 1, state, 1.2, past)[:20]).max() < 1e-5
