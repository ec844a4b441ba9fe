"""Training of a recovery policy by backpropagation through the physics, as one program. Compiles and stores nothing.

Everything that changes from throw to throw (seed, prediction, drone, target) is an argument, so that one compiled
program serves them all; what does not is a `Recipe`. The program draws a network, flies windows of 90 ms with 32
drones, follows the gradient of their cost through policy and physics, and ends with a trial of the half-precision
network that would fly. Whoever calls it checks `Outcome.dropped` and `Outcome.success`: inside a program nothing
raises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from controllers import policy, tasks, trial
from sim.dynamics import first_principles
from sim.state import ANG_VEL, QUAT, VEL, Params

Array = Any
COMPILER_OPTIONS = {"xla_backend_optimization_level": 1, "xla_cpu_prefer_vector_width": 512}
"""LLVM's higher levels take twice as long over the one big loop and run it no faster; the width is worth 15 % where
the processor has it (AVX-512, measured on one core of an AMD Zen 4)."""


@dataclass(frozen=True)
class Recipe:
    """A training run; plain numbers that are part of a program."""

    envs: int = 32
    window: int = 45
    """Steps of one rollout; shorter ones do not show what tilt does to velocity, longer ones explode early."""
    updates: int = 125
    episode: int = 10
    """Windows from a start to the next; the starts of the environments are staggered."""
    rate: float = 0.04
    rate_end: float = 0.165
    """Share of ``rate`` that is left at the last update; linear in between."""
    decay: tuple[float, float] = (0.5, 0.99)
    """Adam's memory of gradients and of their squares. The usual 0.9 carries the net past where it was going within
    these few updates: 1 seed in 20 then fails."""
    clip: float = 0.33
    """Greatest norm of a gradient."""
    cost: tasks.Cost = field(default_factory=tasks.Cost)
    spread: tasks.Spread = field(default_factory=tasks.Spread)
    delay_ticks: int = 4
    """Ticks from an observation to the rotor command in training. Policies trained without any are so stiff that 10 ms
    topple them (0.39 of throws caught); with 8 ms they bear 0 to 14."""
    flaws: trial.Flaws = field(default_factory=trial.Flaws)
    """Of the trial; training itself flies the model it is given."""
    trials: int = 256
    """Half of them begin around the prediction, half are broad throws."""
    initial_trials: int = 64

    @property
    def env_steps(self) -> int:
        """Steps of experience in a run."""
        return self.envs * self.window * self.updates


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Outcome:
    """What a run ended with."""

    flat: Any  # (276,)
    """Parameters in the wire's order, float32 holding half-precision values."""
    initial: Any  # (276,)
    """Parameters before the first update, float32."""
    curve: Any  # (updates,)
    """Mean cost of each window."""
    dropped: Any  # ()
    """Updates whose gradient was not finite and was left out."""
    success: Any  # ()
    """Share of all trials that were caught."""
    predicted_success: Any  # ()
    """Share of the trials around the prediction."""
    initial_success: Any  # ()
    """Share of such trials that the untrained network, in half precision, catches."""


def halved(flat: Array) -> Array:
    """Parameters rounded to half precision, as float32."""
    return flat.astype(jnp.float16).astype(jnp.float32)


def window_cost(
    network: policy.Network,
    x: tuple,
    sent: tuple,
    c: first_principles.Coefficients,
    params: Params,
    target: Array,
    recipe: Recipe,
) -> tuple[Array, tuple]:
    """Mean cost of one window, and where it ended.

    Args:
        network: to fly.
        x: 17 components of the states, each (envs,).
        sent: the last ``delay_ticks`` + 1 actions, newest first, each (4, envs).
        c: coefficients of ``params``.
        params: the drone.
        target: height to recover to, m.
        recipe: window, cost and delay.
    """
    hover = policy.action_of_thrust(0.25 * params.mass * params.gravity, (params.thrust_min, params.thrust_max))

    def tick(carry: tuple, _: None) -> tuple[tuple, None]:
        x, sent, total = carry
        last = sent[0]
        past = (last[0], last[1], last[2], last[3])
        action = policy.forward(network, policy.observe(x[2], x[QUAT], x[VEL], x[ANG_VEL], past, target))
        sent = (action, *sent)
        x = trial.advance(c, x, trial.commands(params, sent[recipe.delay_ticks]))
        cost = tasks.step_cost(recipe.cost, x, target, action, last, hover)
        return (x, sent[: recipe.delay_ticks + 1], total + cost), None

    start = (x, sent, jnp.zeros(x[0].shape))
    (x, sent, total), _ = jax.lax.scan(tick, start, None, length=recipe.window)
    return total.mean() / recipe.window, (x, sent)


def build(recipe: Recipe) -> Callable[[Array, tasks.Takeover, Params, Array], Outcome]:
    """The whole run as a function ``(seed, takeover, params, target) -> Outcome``, to be compiled.

    Gives the same bits for the same arguments on the same machine. Arguments come from `arguments`.
    """
    schedule = optax.linear_schedule(recipe.rate, recipe.rate * recipe.rate_end, recipe.updates)
    b1, b2 = recipe.decay
    optimizer = optax.chain(optax.clip_by_global_norm(recipe.clip), optax.adam(schedule, b1, b2))
    slot = jnp.arange(recipe.envs)

    def train(seed: Array, takeover: tasks.Takeover, params: Params, target: Array) -> Outcome:
        k_net, k_start, k_trial, k_flight = jax.random.split(jax.random.key(seed), 4)
        network = policy.init(k_net)
        c = first_principles.coefficients(params, diagonal=True)
        count = (recipe.updates + 1) * recipe.envs
        drawn = tasks.sample(k_start, count, takeover, recipe.spread, recipe.spread.predicted_share)
        starts = tuple(value.reshape(recipe.updates + 1, recipe.envs) for value in drawn)
        slope = jax.value_and_grad(window_cost, has_aux=True)

        def update(carry: tuple, inputs: tuple) -> tuple[tuple, tuple]:
            network, memory, x, sent = carry
            number, fresh = inputs
            begins = ((slot + number) % recipe.episode == 0) | tasks.astray(x)
            x = tuple(jnp.where(begins, new, old) for new, old in zip(fresh, x, strict=True))
            sent = tuple(jnp.where(begins[None], policy.IDLE_ACTION, action) for action in sent)
            (cost, (x, sent)), gradient = slope(network, x, sent, c, params, target, recipe)
            finite = jnp.isfinite(optax.tree.norm(gradient))
            gradient = jax.tree.map(lambda g: jnp.where(finite, g, 0.0), gradient)
            change, memory = optimizer.update(gradient, memory)
            return (optax.apply_updates(network, change), memory, x, sent), (cost, ~finite)

        carry = (
            network,
            optimizer.init(network),
            tuple(value[-1] for value in starts),
            (jnp.full((4, recipe.envs), policy.IDLE_ACTION),) * (recipe.delay_ticks + 1),
        )
        inputs = (jnp.arange(recipe.updates), tuple(value[:-1] for value in starts))
        (trained, *_), (curve, dropped) = jax.lax.scan(update, carry, inputs)

        initial, flat = policy.flatten(network), halved(policy.flatten(trained))
        # Predicted throws first: a share of one half, drawn in order instead of by chance.
        near = (jnp.arange(recipe.trials) < recipe.trials // 2).astype(jnp.float32)
        throws = tasks.sample(k_trial, recipe.trials, takeover, recipe.spread, near)
        flown = trial.fly(k_flight, policy.unflatten(flat), throws, params, target, recipe.flaws)
        caught = tasks.caught(flown, trial.DT).astype(jnp.float32)
        some = tuple(value[:: recipe.trials // recipe.initial_trials] for value in throws)
        untrained = trial.fly(k_flight, policy.unflatten(halved(initial)), some, params, target, recipe.flaws)
        return Outcome(
            flat=flat,
            initial=initial,
            curve=curve,
            dropped=dropped.sum(),
            success=caught.mean(),
            predicted_success=(caught * near).sum() / near.sum(),
            initial_success=tasks.caught(untrained, trial.DT).astype(jnp.float32).mean(),
        )

    return train


def program(recipe: Recipe) -> Callable[..., Outcome]:
    """`build` with the compiler options that suit it; compiled at its first call unless lowered and compiled before."""
    return jax.jit(build(recipe), compiler_options=COMPILER_OPTIONS)


RESULT = Outcome(flat=0, initial=0, curve=0, dropped=0, success=0, predicted_success=0, initial_success=0)
"""The structure of an outcome, for loading a stored program."""


def arguments(seed: int, mean: Any, cov: Any, params: Params, target_m: float) -> tuple:
    """Arguments of the program, in the types it was compiled for: plain numpy, float32.

    Args:
        seed: any integer; its lower 32 bits count.
        mean: (13,) predicted position m, quaternion xyzw, velocity m/s, body rate rad/s.
        cov: (12, 12) or its 144 entries, over position, attitude (body rotation vector), velocity, body rate.
        params: the drone.
        target_m: height to recover to.

    Raises:
        ValueError: a number is not finite, a shape is wrong or the quaternion is not of unit length.
    """
    mean = np.asarray(mean, np.float32)
    cov = np.asarray(cov, np.float32)
    if mean.shape != (13,) or cov.size != 144:
        raise ValueError(f"a prediction has mean (13,) and covariance (12, 12), not {mean.shape} and {cov.shape}")
    if not (np.isfinite(mean).all() and np.isfinite(cov).all() and np.isfinite(target_m)):
        raise ValueError("the prediction or the target height is not finite; predict again before training")
    length = float(np.linalg.norm(mean[3:7]))
    if abs(length - 1.0) > 1e-3:
        raise ValueError(f"the predicted attitude has norm {length}; give a unit quaternion xyzw")
    takeover = tasks.Takeover(mean, cov.reshape(12, 12))
    drone = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), params)
    return np.uint32(seed & 0xFFFFFFFF), takeover, drone, np.float32(target_m)
