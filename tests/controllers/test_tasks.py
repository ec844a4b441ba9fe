import jax
import jax.numpy as jnp
import numpy as np
import pytest

from controllers import tasks
from sim import rotation

N = 40_000
MEAN = jnp.array([0.3, -0.2, 1.8, 0.24, 0.18, 0.0, 0.9539392, 0.5, -0.3, 0.5, 3.0, -3.0, 2.0])
STD = np.repeat([0.05, 0.2, 0.3, 1.0], 3)


def takeover():
    return tasks.Takeover(MEAN, jnp.diag(jnp.asarray(STD**2, jnp.float32)))


def drawn(share, spread=tasks.Spread(), seed=0):  # noqa: B008
    return np.array(tasks.sample(jax.random.key(seed), N, takeover(), spread, share))


def at_rest(height, **changed):
    x = [0.0, 0.0, height, 0.0, 0.0, 0.0, 1.0, *(0.0,) * 6, *(15500.0,) * 4]
    for index, value in changed.items():
        x[int(index[1:])] = value
    return tuple(jnp.full(1, v) for v in x)


def cost(x, action=0.0, previous=0.0):
    return tasks.step_cost(
        tasks.Cost(), x, 1.2, jnp.full((4, 1), action), jnp.full((4, 1), previous), jnp.array(0.0)
    ).sum()


def test_predicted_starts_have_the_predicted_mean_and_covariance_above_the_floors():
    x = drawn(1.0)
    std = np.sqrt(STD**2 + np.repeat(tasks.Spread().floor_std, 3) ** 2)
    assert np.allclose(x[:3].mean(1), MEAN[:3], atol=0.003)
    assert np.allclose(x[7:13].mean(1), MEAN[7:], atol=0.03)
    assert np.allclose(x[:3].std(1), std[:3], rtol=0.03)
    assert np.allclose(x[7:13].std(1), std[6:], rtol=0.03)
    assert np.allclose(np.linalg.norm(x[3:7], axis=0), 1.0, atol=1e-5)


def test_factor_is_cholesky_s_and_bears_semidefinite_matrices():
    square = np.random.default_rng(0).normal(size=(12, 12)).astype(np.float32)
    cov = square @ square.T + 0.1 * np.eye(12, dtype=np.float32)
    lower = np.array(tasks.factor(jnp.asarray(cov)))
    assert np.allclose(lower, np.tril(lower), atol=1e-5) and np.allclose(lower @ lower.T, cov, atol=1e-4)
    flat = np.diag(np.float32([4.0, 0.0, 9.0]))
    assert np.allclose(tasks.factor(jnp.asarray(flat)), np.diag([2.0, 0.0, 3.0]))
    assert np.isfinite(tasks.factor(-jnp.eye(3))).all()


def test_attitude_spread_is_a_body_rotation_about_the_predicted_attitude():
    x = drawn(1.0)
    inverse = tuple(-MEAN[3 + i] for i in range(3)) + (MEAN[6],)
    error = np.array(rotation.multiply(inverse, tuple(jnp.asarray(v) for v in x[3:7])))
    assert np.allclose(2 * error[:3].std(1), np.hypot(0.2, 0.12), rtol=0.05)


def test_broad_throws_have_their_spread():
    spread = tasks.Spread()
    x = drawn(0.0)
    low, high = spread.broad_height
    assert low <= x[2].min() and x[2].max() <= high and abs(x[2].mean() - (low + high) / 2) < 0.02
    assert np.allclose(x[7:10].std(1), spread.broad_vel, rtol=0.03)
    assert np.allclose(x[10:13].std(1), spread.broad_rate, rtol=0.03)


def test_share_of_the_mixture():
    x = drawn(0.4)
    assert abs((x[0] != 0.0).mean() - 0.4) < 0.01


def test_a_perfect_prediction_still_spreads():
    sharp = tasks.Takeover(MEAN, jnp.zeros((12, 12)))
    x = np.array(tasks.sample(jax.random.key(1), N, sharp, tasks.Spread(), 1.0))
    assert np.allclose(x[2].std(), 0.02, rtol=0.03)


def test_rotors_idle_and_some_are_still_spinning_up():
    rpm = drawn(0.4)[13:]
    assert np.all(rpm >= 0.0) and np.array_equal(rpm[0], rpm[3])
    assert abs(np.median(rpm[0]) - 5600) < 400
    assert 0.05 < (rpm[0] < 2000).mean() < 0.15


@pytest.mark.parametrize(
    "worse",
    [
        {"_2": 0.6},
        {"_2": 2.5},
        {"_9": 0.5},
        {"_9": -0.5},
        {"_7": 0.5},
        {"_8": -0.5},
        {"_12": 5.0},
        {"_3": 0.3, "_6": 0.954},
    ],
)
def test_hovering_at_the_target_is_cheapest(worse):
    assert cost(at_rest(1.2)) < cost(at_rest(1.2, **worse))


def test_leaning_against_a_drift_is_cheaper_than_leaning_with_it():
    # A positive rotation about y tips the thrust towards +x.
    against, along = {"_4": -0.1, "_6": 0.995}, {"_4": 0.1, "_6": 0.995}
    assert cost(at_rest(1.2, _7=1.0, **against)) < cost(at_rest(1.2, _7=1.0, **along))


def test_climbing_towards_the_target_is_cheaper_than_away():
    assert cost(at_rest(0.8, _9=0.2)) < cost(at_rest(0.8, _9=-0.2))
    assert cost(at_rest(1.6, _9=-0.2)) < cost(at_rest(1.6, _9=0.2))


@pytest.mark.parametrize("x", [at_rest(1.2), at_rest(-0.4, _7=8.0, _10=40.0), at_rest(1.2, _3=1.0, _6=0.0)])
def test_gradients_are_finite_at_rest_and_far_off(x):
    assert all(np.isfinite(g).all() for g in jax.grad(cost)(x))


def test_what_left_the_room_or_is_not_a_number_starts_again():
    assert not tasks.astray(at_rest(1.0))[0]
    for bad in (
        {"_2": -0.6},
        {"_2": 5.1},
        {"_7": 8.1},
        {"_11": 41.0},
        {"_2": jnp.nan},
        {"_9": jnp.nan},
        {"_10": jnp.inf},
    ):
        assert tasks.astray(at_rest(1.0, **bad))[0]


def judged(heights, speeds, ups):
    verdict = tasks.begin(jnp.array([heights[0]]))
    zero = jnp.zeros(1)
    for height, speed, up in zip(heights, speeds, ups, strict=True):
        verdict = tasks.watch(verdict, jnp.array([height]), jnp.array([up]), (jnp.array([speed]), zero, zero))
    return bool(tasks.caught(verdict, 0.1)[0])


def test_caught_means_settled_without_a_break():
    calm, fast = [0.4] * 5, [0.6]
    assert judged([1.0] * 5, calm, [0.97] * 5)
    assert not judged([1.0] * 9, calm[:4] + fast + calm[:4], [0.97] * 9)
    assert judged([1.0] * 11, calm + fast * 6, [0.97] * 11)


def test_caught_needs_height_and_an_upright_drone():
    calm = [0.1] * 5
    assert not judged([1.0] * 5, calm, [0.96] * 5)
    assert not judged([0.29] * 5, calm, [1.0] * 5)
    assert not judged([3.1] * 5, calm, [1.0] * 5)
    assert not judged([0.09] + [1.0] * 5, [0.1] * 6, [1.0] * 6)
    assert not judged([np.nan] * 5, calm, [1.0] * 5)
