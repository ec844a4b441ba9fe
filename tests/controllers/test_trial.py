import jax
import jax.numpy as jnp
import numpy as np

from controllers import policy, tasks, trial
from sim import drones, pipeline
from sim.dynamics import first_principles


def starts(count, seed=0):
    takeover = tasks.Takeover(jnp.array([0.0, 0, 1.5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]), jnp.zeros((12, 12)))
    return tasks.sample(jax.random.key(seed), count, takeover, tasks.Spread(), 0.0)


def test_step_is_that_of_the_simulation_but_for_the_third_order_of_attitude():
    drone, x = drones.load("cf21B_500"), starts(64)
    c = first_principles.coefficients(drone, diagonal=True)
    u = trial.commands(drone, jax.random.uniform(jax.random.key(1), (4, 64), minval=-1.0))
    for ours, theirs in zip(trial.advance(c, x, u), pipeline.step_components(drone, x, u, trial.DT), strict=True):
        assert np.allclose(ours, theirs, rtol=1e-6, atol=2e-6)


def test_attitude_keeps_unit_length():
    drone, x = drones.load("cf21B_500"), starts(32)
    c, u = first_principles.coefficients(drone, diagonal=True), (jnp.full(32, 15_000.0),) * 4
    x, _ = jax.lax.scan(lambda x, _: (trial.advance(c, x, u), None), x, None, length=500)
    assert np.allclose(np.linalg.norm(np.array(x[3:7]), axis=0), 1.0, atol=1e-5)


def test_flawed_drones_stay_within_their_bounds_and_differ():
    drone = drones.load("cf21B_500")
    off = trial.flawed(jax.random.key(0), drone, 500, trial.Flaws(mismatch=0.05))
    for name in ("mass", "rpm2thrust", "rpm2torque", "rotor_coef", "inertia", "drag"):
        ours, nominal = np.array(getattr(off, name)), np.array(getattr(drone, name))
        ratio = ours.reshape(500, -1)[:, np.ravel(nominal) != 0] / np.ravel(nominal)[np.ravel(nominal) != 0]
        assert ratio.min() > 0.9499 and ratio.max() < 1.0501 and 0.02 < ratio.std() < 0.04, name
    assert np.allclose(off.rot_damping.mean(), 0.6, atol=0.05)
    same = trial.flawed(jax.random.key(0), drone, 3, trial.NONE)
    assert np.allclose(same.mass, drone.mass) and np.all(same.rot_damping == 0.0)


def test_a_trained_policy_bears_what_a_real_flight_adds(trained):
    network = policy.unflatten(trained.outcome.flat)
    throws = tasks.sample(jax.random.key(3), 256, trained.arguments[1], trained.recipe.spread, 1.0)

    def share(flaws):
        flown = trial.fly(jax.random.key(4), network, throws, trained.drone, jnp.array(1.2), flaws)
        return float(tasks.caught(flown, trial.DT).astype(jnp.float32).mean())

    assert share(trial.NONE) > 0.97
    assert share(trial.Flaws()) > 0.97
    assert share(trial.Flaws(delay_ticks=6)) > 0.9


def test_what_falls_is_not_caught():
    flat = np.zeros(276, np.float32)
    flat[272:] = -5.0
    network = jax.tree.map(jnp.asarray, policy.unflatten(flat))
    flown = trial.fly(jax.random.key(0), network, starts(16), drones.load("cf21B_500"), jnp.array(1.2))
    assert not np.any(tasks.caught(flown, trial.DT)) and np.all(flown.lowest < 0.1)
