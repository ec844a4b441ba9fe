"""What is drawn is spread as asked, over what was asked, from the key alone, and always flies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from sim import randomize
from sim.data import RotorParams
from sim.errors import ConfigError
from sim.randomize import Spread, Start
from sim.sim import Sim

KEY = jax.random.key(5)


@pytest.fixture(scope="module")
def nominal() -> RotorParams:
    return Sim().data.params


def test_each_world_or_drone_or_rotor_has_its_own(nominal):
    spreads = {
        "mass": Spread(0.2, "world"),
        "drag_matrix": Spread(0.5),
        "rpm2thrust": Spread(0.1, "rotor"),
        "L": Spread(0.1, "rotor"),
    }
    drawn = randomize.parameters(KEY, nominal, spreads, (50, 4))
    assert drawn.mass.shape == (50, 4, 1)
    assert len(np.unique(drawn.mass)) == 50
    assert drawn.drag_matrix.shape == (50, 4, 3, 3)
    assert len(np.unique(drawn.drag_matrix[..., 0, 0])) == 200
    assert drawn.rpm2thrust.shape == (50, 4, 4, 3)
    assert drawn.L.shape == (50, 4, 4)
    ratio = drawn.rpm2thrust[..., 2] / nominal.rpm2thrust[0, 2]
    assert len(np.unique(ratio)) > 790
    assert 0.9 <= ratio.min() < 0.91
    assert 1.09 < ratio.max() <= 1.1
    np.testing.assert_allclose(ratio, drawn.rpm2thrust[..., 1] / nominal.rpm2thrust[0, 1], rtol=1e-5)
    assert drawn.J is nominal.J


def test_normal_spread(nominal):
    drawn = randomize.parameters(KEY, nominal, {"mass": Spread(0.1, shape="normal")}, (4000, 1))
    ratio = drawn.mass / nominal.mass[0]
    np.testing.assert_allclose([ratio.mean(), ratio.std()], [1.0, 0.1], atol=0.005)
    assert 0.7 <= ratio.min()
    assert ratio.max() <= 1.3


def test_any_inertia_is_one_of_a_body(nominal):
    drawn = randomize.parameters(KEY, nominal, {"J": Spread(0.9)}, (500, 1)).J
    moments = np.linalg.eigvalsh(drawn)
    assert moments.min() > 0.0
    assert np.all(moments[..., 0] + moments[..., 1] >= moments[..., 2] * (1 - 1e-5))
    assert moments[..., 2].std() > 0.1 * moments[..., 2].mean()
    skew = jnp.asarray(Rotation.from_rotvec([0.3, 0.2, 0.1]).as_matrix(), jnp.float32)
    turned = randomize.inertia(KEY, skew @ nominal.J @ skew.T, Spread(0.0), (2, 1))
    np.testing.assert_allclose(turned[1, 0], skew @ nominal.J @ skew.T, rtol=1e-3, atol=1e-9)


def test_the_key_decides_and_one_more_parameter_changes_no_other(nominal):
    some = randomize.parameters(KEY, nominal, {"mass": Spread(0.1)}, (3, 2))
    more = randomize.parameters(KEY, nominal, {"L": Spread(0.1), "mass": Spread(0.1)}, (3, 2))
    other = randomize.parameters(jax.random.key(6), nominal, {"mass": Spread(0.1)}, (3, 2))
    np.testing.assert_array_equal(some.mass, more.mass)
    assert not np.array_equal(some.mass, other.mass)


def test_states_are_drawn_as_asked():
    sim = Sim(n_worlds=2000, control="rotor_vel")
    sim.data = sim.data.replace(states=sim.data.states.replace(rotor_vel=jnp.full((2000, 1, 4), 1e4)))
    start = Start((0.0, 1.0, 2.0), (1.0, 1.0, 4.0), vel=2.0, tilt=0.3, yaw=1.0, ang_vel=3.0, rotor_share=(0.5, 0.8))
    s = randomize.states(KEY, sim.data, start).states
    pos = s.pos[:, 0]
    np.testing.assert_allclose([pos.min(0), pos.max(0)], [start.low, start.high], atol=0.01)
    np.testing.assert_allclose([s.vel.std(), s.ang_vel.std()], [2.0, 3.0], rtol=0.03)
    np.testing.assert_allclose(np.linalg.norm(s.quat, axis=-1), 1.0, rtol=1e-6)
    turns = Rotation.from_quat(s.quat[:, 0])
    tilt = np.arccos(turns.as_matrix()[:, 2, 2])
    np.testing.assert_allclose(np.sqrt((tilt**2).mean() / 2.0), 0.3, rtol=0.05)
    assert 5e3 <= float(s.rotor_vel.min()) < 5.1e3
    assert 7.9e3 < float(s.rotor_vel.max()) <= 8e3


def test_drawn_worlds_fly_and_differ():
    sim = Sim(n_worlds=3, control="rotor_vel")
    sim.data = randomize.of(
        KEY, randomize.states(KEY, sim.data), {"mass": Spread(0.2), "rpm2thrust": Spread(0.1, "rotor")}
    )
    sim.rotor_vel_control(jnp.full((3, 1, 4), 15e3))
    sim.step(20)
    assert bool(sim.data.finite.all())
    assert len(np.unique(sim.data.states.ang_vel[..., 0])) == 3


@pytest.mark.parametrize(
    ("spreads", "text"),
    [
        ({"colour": Spread(0.1)}, "spreads has 'colour', but RotorParams has mass, L"),
        ({"rpy_coef": Spread(0.1)}, "spreads has 'rpy_coef', but RotorParams has"),
        ({"mass": Spread(1.0)}, r"spreads\['mass'\].share is 1.0, but it must be at least 0 and below 1"),
        ({"mass": Spread(0.4, shape="normal")}, "below 1/3"),
        ({"J": Spread(0.1, "rotor")}, r"spreads\['J'\] is per rotor, but rotors differ in L"),
    ],
)
def test_what_cannot_be_drawn_is_refused(nominal, spreads, text):
    with pytest.raises(ConfigError, match=text):
        randomize.parameters(KEY, nominal, spreads, (2, 1))


def test_a_box_inside_out_is_refused():
    with pytest.raises(ConfigError, match=r"start.low is \(0.0, 0.0, 3.0\) m"):
        randomize.states(KEY, Sim().data, Start(low=(0.0, 0.0, 3.0)))
