import hashlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from controllers import bptt, policy, tasks, trial
from sim.dynamics import first_principles


def prediction(height=1.8, vel=(0.5, -0.3, 0.5)):
    return np.array([0.0, 0, height, 0, 0, 0, 1, *vel, 1, 2, 3]), np.eye(12) * 0.01


def test_the_run_has_the_paper_s_size():
    assert bptt.Recipe().env_steps == 180_000 and bptt.Recipe().envs == 32


def test_untrained_it_crashes_and_trained_it_recovers_fresh_broad_throws(trained):
    # Broad throws include some that nothing catches (upside down, sinking at 0.9 m): ten times the steps catch 0.955.
    throws = tasks.sample(jax.random.key(11), 512, trained.arguments[1], trained.recipe.spread, 0.0)

    def share(flat):
        flown = trial.fly(jax.random.key(0), policy.unflatten(bptt.halved(flat)), throws, trained.drone, jnp.array(1.2))
        return float(tasks.caught(flown, trial.DT).astype(jnp.float32).mean())

    assert share(trained.outcome.initial) <= 0.05
    assert share(trained.outcome.flat) >= 0.85


def test_outcome_tells_its_own_story(trained):
    out = trained.outcome
    assert out.initial_success <= 0.05 and out.predicted_success > 0.97 and out.success > 0.88
    assert out.curve.shape == (trained.recipe.updates,) and out.curve[-10:].mean() < 0.5 * out.curve[:10].mean()
    assert out.dropped == 0
    assert np.array_equal(out.flat, np.float16(out.flat).astype(np.float32))
    assert not np.allclose(out.flat, out.initial, atol=0.1)


def test_same_arguments_give_the_same_bits(trained):
    again = trained.program(*trained.arguments)
    assert policy.to_halves(again.flat) == policy.to_halves(trained.outcome.flat)
    assert np.array_equal(again.initial, trained.outcome.initial)


def test_nothing_compiles_for_another_seed_prediction_drone_or_target(trained):
    before, images = trained.compilations.count, set()
    heavy = jax.tree.map(lambda leaf: 1.02 * np.asarray(leaf, np.float32), trained.drone)
    for arguments in (
        bptt.arguments(7, *prediction(), trained.drone, 1.2),
        bptt.arguments(8, *prediction(), trained.drone, 1.2),
        bptt.arguments(7, *prediction(2.1, (0.1, 0.9, -1.0)), trained.drone, 1.2),
        bptt.arguments(7, *prediction(), heavy, 1.2),
        bptt.arguments(7, *prediction(), trained.drone, 1.5),
    ):
        images.add(hashlib.sha256(policy.to_halves(trained.program(*arguments).flat)).hexdigest())
    assert len(images) == 5
    assert trained.compilations.count == before


def test_gradient_is_that_of_finite_differences(trained):
    recipe, drone = trained.recipe, trained.drone
    x = tasks.sample(jax.random.key(5), 32, trained.arguments[1], recipe.spread, 0.4)
    c, sent = first_principles.coefficients(drone, diagonal=True), (jnp.full((4, 32), -1.0),) * 5
    cost = jax.jit(lambda flat: bptt.window_cost(policy.unflatten(flat), x, sent, c, drone, jnp.array(1.2), recipe)[0])
    flat = policy.flatten(policy.init(jax.random.key(6)))
    slope = jax.grad(cost)(flat)
    assert np.all(np.isfinite(slope))
    along = slope / jnp.linalg.norm(slope)
    step = 1e-2
    assert np.isclose((cost(flat + step * along) - cost(flat - step * along)) / (2 * step), slope @ along, rtol=0.02)


def test_a_covariance_that_is_none_leaves_every_parameter_finite(trained):
    mean, cov = prediction()
    out = trained.program(*bptt.arguments(1, mean, -cov, trained.drone, 1.2))
    assert np.all(np.isfinite(out.flat))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m, c: (m[:12], c), "mean"),
        (lambda m, c: (m, c[:3]), "covariance"),
        (lambda m, c: (m * np.nan, c), "not finite"),
        (lambda m, c: (m * 2.0, c), "norm 2.0"),
    ],
)
def test_a_prediction_that_is_none_is_refused(trained, change, says):
    with pytest.raises(ValueError, match=says):
        bptt.arguments(0, *change(*prediction()), trained.drone, 1.2)


def test_arguments_take_the_covariance_of_a_message(trained):
    mean, cov = prediction()
    flat = bptt.arguments(2**40 + 5, tuple(mean), tuple(np.ravel(cov)), trained.drone, 1.2)
    assert flat[0] == 5 and flat[1].cov.shape == (12, 12) and flat[3].dtype == np.float32
