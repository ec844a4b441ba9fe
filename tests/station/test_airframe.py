"""The station's literals are the simulator's; an unknown type is refused by name."""

import numpy as np
import pytest

from sim import drones
from station import airframe
from station.config import ConfigError


@pytest.mark.parametrize("name", airframe.NAMES)
def test_literals_are_those_of_the_simulator(name):
    ours, theirs = airframe.load(name), drones.load(name)
    np.testing.assert_allclose(ours.mass, theirs.mass, rtol=1e-6)
    np.testing.assert_allclose(np.diag(ours.inertia), theirs.inertia, rtol=1e-6)
    np.testing.assert_allclose(-np.diag(ours.drag), theirs.drag, rtol=1e-6)
    np.testing.assert_allclose(ours.thrust_min, theirs.thrust_min, rtol=1e-6)
    np.testing.assert_allclose(ours.thrust_max, theirs.thrust_max, rtol=1e-6)
    np.testing.assert_allclose(ours.rotor_rise, np.ravel(theirs.rotor_coef)[0], rtol=1e-6)


def test_identified_damping_is_trusted_more_than_the_guess():
    guess, known = airframe.load("cf21B_500"), airframe.load("cf21B_500", 0.8)
    assert known.damping == 0.8
    assert known.damping_std < guess.damping_std


def test_unknown_type_names_the_known_ones():
    with pytest.raises(ConfigError, match="cf21B_500"):
        airframe.load("cf9")
