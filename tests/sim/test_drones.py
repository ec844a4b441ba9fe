"""Known drones load and are plausible; impossible ones are refused by name of the parameter."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from sim import drones, rotor
from sim.errors import ConfigError

GOOD = drones.load("cf21B_500", np.float64)


@pytest.mark.parametrize("name", drones.FIRST_PRINCIPLES)
def test_known_drones_can_fly(name):
    params = drones.check(drones.load(name))
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype(np.float32)}
    assert 1.2 < 4.0 * params.thrust_max / (params.mass * params.gravity) < 2.5
    assert 5e3 < float(rotor.hover_rpm(params)[0]) < 25e3


def test_float64_on_request():
    assert GOOD.mass.dtype == np.float64
    assert float(GOOD.inertia[1, 1]) == 2.8e-05


def test_unknown_drone_names_those_known():
    with pytest.raises(ConfigError, match=r"unknown drone 'cf3'; known are cf2x_L250, cf2x_P250, .*, hb_x500"):
        drones.load("cf3")


def test_drone_without_rotor_model_says_so():
    with pytest.raises(ConfigError, match="'hb_x500' has only the so_rpy family"):
        drones.load("hb_x500")


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("mass", -0.03, "must be positive"),
        ("mass", 0.0, "must be positive"),
        ("mass", np.nan, "must be finite"),
        ("mass", np.zeros(()), "must be positive"),
        ("gravity", np.inf, "must be finite"),
        ("inertia", np.zeros((3, 3)), "singular"),
        ("inertia", np.diag([1e-5, 1e-5, 0.0]), "singular"),
        ("inertia", np.diag([1e-5, -1e-5, 1e-5]), "singular or negative"),
        ("inertia", np.diag([1e-5, 1e-5, 9e-5]), "no rigid body"),
        ("inertia", np.array([[2e-5, 1e-5, 0], [0, 2e-5, 0], [0, 0, 3e-5]]), "must be symmetric"),
        ("inertia", np.full((3, 3), np.nan), "must be finite"),
        ("inertia", np.ones(3), r"has shape \(3,\)"),
        ("rpm2thrust", np.array([0.0, 0.0, -1e-10]), "quadratic term"),
        ("rpm2torque", np.zeros(4), r"has shape \(4,\)"),
        ("rotor_coef", np.array([-1.0, 0.0, 0.0, 0.0]), "not be negative"),
        ("drag", 0.01 * np.eye(3), "must not push"),
        ("thrust_min", 0.3, "below thrust_max"),
        ("rot_damping", -1.0, "not be negative"),
        ("mixing", np.zeros((4, 3)), r"has shape \(4, 3\)"),
    ],
)
def test_unphysical_parameters_are_refused(field, value, text):
    with pytest.raises(ConfigError, match=rf"params\.{field}.*{text}"):
        drones.check(replace(GOOD, **{field: value}))


def test_a_batch_is_checked_drone_by_drone():
    many = jax.tree.map(lambda a: np.stack([a, a]), GOOD)
    drones.check(many)
    with pytest.raises(ConfigError, match=r"params\.mass"):
        drones.check(replace(many, mass=np.array([0.04, -0.04])))


@pytest.mark.parametrize("dynamics", [d for d in drones.DYNAMICS if d != "first_principles"])
@pytest.mark.parametrize("name", drones.NAMES)
def test_every_drone_has_the_fitted_models(name, dynamics):
    params = drones.check(drones.load(name, np.float64, dynamics=dynamics, onboard=True))
    assert (params.thrust_dyn_coef is None) == (dynamics == "so_rpy")
    assert (params.drag is None) == (dynamics != "so_rpy_rotor_drag")
    assert params.onboard.mass > 0.0


def test_a_mapping_is_a_drone():
    own = {k: getattr(GOOD, k) for k in drones.FIRST_PRINCIPLES["cf21B_500"]} | {"mass": 0.05, "drag": [-0.01] * 3}
    params = drones.load(own, np.float64)
    assert float(params.mass) == 0.05
    np.testing.assert_array_equal(params.drag, -0.01 * np.eye(3))
    np.testing.assert_array_equal(params.mixing, GOOD.mixing)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"mass": -1.0}, r"params\.mass is -1\.0, but it must be positive"),
        ({"wings": 2}, r"has unknown \['wings'\]; Params has mass, inertia"),
        ({"mass": "heavy"}, r"drone\.mass is 'heavy', but numbers are needed"),
    ],
)
def test_an_impossible_mapping_is_refused(change, text):
    own = {k: getattr(GOOD, k) for k in drones.FIRST_PRINCIPLES["cf21B_500"]} | change
    with pytest.raises(ConfigError, match=text):
        drones.load(own)
    with pytest.raises(ConfigError, match=r"lacks \['arm_length'.*"):
        drones.load({"mass": 1.0})
    with pytest.raises(ConfigError, match="has no entry 'onboard'"):
        drones.load({"mass": 1.0}, onboard=True)


def test_unphysical_gains_and_models_are_refused():
    params = drones.load("cf21B_500", np.float64, dynamics="so_rpy", onboard=True)
    with pytest.raises(ConfigError, match=r"params\.onboard\.pwm_max is -1\.0"):
        drones.check(replace(params, onboard=replace(params.onboard, pwm_max=np.array(-1.0))))
    with pytest.raises(ConfigError, match=r"params\.rpy_coef .*stable"):
        drones.check(replace(params, rpy_coef=np.ones(3)))
    with pytest.raises(ConfigError, match="unknown dynamics 'magic'; known are first_principles, so_rpy"):
        drones.load("cf21B_500", dynamics="magic")
    with pytest.raises(ConfigError, match="unknown drone 'cf3'"):
        drones.gains("cf3")
