"""Throw recovery as a task: where episodes begin, what a step costs, when a throw counts as caught. Flies nothing.

Components have the batch in the last axis. Costs and their weights follow the terms that the paper names for its
throws (height, floor, orientation, hover thrust, smoothness, drift, sinking), shaped for short windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from sim import rotation
from sim.state import ANG_VEL, QUAT, VEL, Components

Array = Any
Three = tuple[Array, Array, Array]

FLOOR_M = 0.10
"""A throw that sinks below this is lost."""
HORIZON_S = 2.0
"""Time from activation within which the drone must have settled."""
SETTLED_S = 0.5
"""How long it must stay settled without a break."""
SETTLED_SPEED, SETTLED_UP, SETTLED_LOW_M, SETTLED_HIGH_M = 0.5, 0.9659258262890683, 0.3, 3.0
"""Settled: slower than 0.5 m/s, tilted less than 15 degrees (cosine), between these heights."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Takeover:
    """Where a policy is expected to take over: a Gaussian."""

    mean: Array  # (13,)
    """Position m, quaternion xyzw, velocity m/s, body rate rad/s."""
    cov: Array  # (12, 12)
    """Over position, attitude (body rotation vector), velocity, body rate."""


@dataclass(frozen=True)
class Spread:
    """How initial states are drawn; plain numbers that are part of a program."""

    predicted_share: float = 0.26
    """Share of episodes that begin around the prediction; the rest are broad throws. Training near a prediction
    alone is worse and depends on the seed."""
    floor_std: tuple[float, float, float, float] = (0.02, 0.12, 0.1, 0.7)
    """Least spread around a prediction: m, rad, m/s, rad/s."""
    broad_vel: float = 1.2
    broad_tilt: float = 0.7
    broad_rate: float = 4.0
    """Standard deviations per axis of broad throws: m/s, rad, rad/s."""
    broad_height: tuple[float, float] = (0.9, 2.5)
    """Heights of broad throws, m, uniform."""
    idle_rpm: float = 6000.0
    idle_rpm_std: float = 1500.0
    still_share: float = 0.25
    """Share of episodes whose rotors are still on their way from rest to idle."""


@dataclass(frozen=True)
class Cost:
    """Weights of one step's cost; plain numbers that are part of a program.

    Height and drift alone need windows of half a second to show in a gradient, longer than an untrained net keeps its
    gradients finite. So the cost also says how fast to climb for a given height error and how to lean for a given
    drift, which shows within a tenth of a second.
    """

    height: float = 0.7078
    climb: float = 8.843
    climb_gain: float = 1.128
    """1/m"""
    climb_speed: float = 0.1406
    """Speed at which a far target is approached, m/s."""
    drift: float = 0.06038
    lean: float = 2.441
    lean_most: float = 0.2831
    """Sine of the lean against a fast drift."""
    tilt: float = 1.19
    floor: float = 26.73
    floor_m: float = 0.5
    hover: float = 0.1403
    smooth: float = 0.05106
    spin: float = 0.005236
    softness: float = 0.108
    """Added inside square roots, so that their gradients stay finite at zero."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Verdict:
    """What has been seen of a throw so far."""

    lowest: Array
    """m"""
    settled: Array
    """Steps without a break in which all conditions held."""
    longest: Array
    """The longest such run."""


def factor(cov: Array) -> Array:
    """Lower triangle L with L Lᵀ = cov (n, n), Cholesky by columns; directions without variance give zeros.

    Not LAPACK's: its functions are bound while JAX traces, and a program loaded from bytes would call none (measured:
    the process dies).
    """

    def column(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        rest, lower = carry
        pivot = rest[k, k]
        found = jnp.where(pivot > 1e-12, rest[:, k] * jax.lax.rsqrt(jnp.maximum(pivot, 1e-12)), 0.0)
        return rest - found[:, None] * found[None, :], lower.at[:, k].set(found)

    return jax.lax.fori_loop(0, cov.shape[0], column, (cov, jnp.zeros_like(cov)))[1]


def sample(key: Array, count: int, takeover: Takeover, spread: Spread, predicted_share: Array | float) -> Components:
    """Initial states of ``count`` episodes: a mixture of the prediction and broad throws.

    Args:
        key: randomness.
        count: episodes; the size of each component.
        takeover: the prediction.
        spread: the distributions.
        predicted_share: chance of an episode to begin around the prediction.

    Returns:
        17 components (see `sim.state`), each (count,).
    """
    k_normal, k_uniform = jax.random.split(key)
    normal = jax.random.normal(k_normal, (13, count))
    choice, height, still, idle = jax.random.uniform(k_uniform, (4, count))
    predicted = choice < predicted_share

    floor = jnp.repeat(jnp.asarray(spread.floor_std), 3, total_repeat_length=12)
    near = factor(takeover.cov + jnp.diag(floor * floor)) @ normal[:12]
    mean = takeover.mean
    low, high = spread.broad_height

    def pick(near_value: Array, broad_value: Array) -> Array:
        return jnp.where(predicted, near_value, broad_value)

    zero = jnp.zeros(count)
    pos = (
        pick(mean[0] + near[0], zero),
        pick(mean[1] + near[1], zero),
        pick(mean[2] + near[2], low + (high - low) * height),
    )
    base = tuple(pick(mean[3 + i], 1.0 if i == 3 else 0.0) for i in range(4))
    turn = tuple(pick(near[3 + i], spread.broad_tilt * normal[i]) for i in range(3))
    vel = tuple(pick(mean[7 + i] + near[6 + i], spread.broad_vel * normal[3 + i]) for i in range(3))
    ang_vel = tuple(pick(mean[10 + i] + near[9 + i], spread.broad_rate * normal[6 + i]) for i in range(3))
    rpm = jnp.maximum(spread.idle_rpm + spread.idle_rpm_std * normal[12], 0.0)
    rpm = rpm * jnp.where(still < spread.still_share, idle, 1.0)
    return (*pos, *rotation.multiply(base, rotation.exp(turn)), *vel, *ang_vel, rpm, rpm, rpm, rpm)


def step_cost(weights: Cost, x: Components, target: Array, action: Array, previous: Array, hover: Array) -> Array:
    """Cost of one step, (batch,).

    Args:
        weights: of the terms.
        x: 17 components of the state after the step.
        target: height to recover to, m.
        action: of this tick, (4, batch).
        previous: of the tick before, (4, batch).
        hover: action that holds the weight.
    """
    R = rotation.matrix(x[QUAT])
    vx, vy, vz = x[VEL]
    wx, wy, wz = x[ANG_VEL]
    soft = weights.softness
    error = x[2] - target
    low = jnp.maximum(weights.floor_m - x[2], 0.0)
    climb = vz + weights.climb_speed * jnp.tanh(weights.climb_gain * error)
    lean_x = R[2] + weights.lean_most * jnp.tanh(vx)
    lean_y = R[5] + weights.lean_most * jnp.tanh(vy)
    excess, change = action - hover, action - previous
    return (
        weights.height * jnp.sqrt(error * error + soft)
        + weights.climb * jnp.sqrt(climb * climb + soft)
        + weights.drift * jnp.sqrt(vx * vx + vy * vy + soft)
        + weights.lean * jnp.sqrt(lean_x * lean_x + lean_y * lean_y + soft)
        + weights.tilt * (1.0 - R[8])
        + weights.floor * low * low
        + weights.spin * (wx * wx + wy * wy + 0.5 * wz * wz)
        + (weights.hover * excess * excess + weights.smooth * change * change).sum(0)
    )


def astray(x: Components) -> Array:
    """Whether an episode has left what can be learned from, or is not finite, (batch,)."""
    speed = x[7] * x[7] + x[8] * x[8] + x[9] * x[9]
    spin = x[10] * x[10] + x[11] * x[11] + x[12] * x[12]
    return ~((x[2] > -0.5) & (x[2] < 5.0) & (speed < 8.0**2) & (spin < 40.0**2))


def begin(height: Array) -> Verdict:
    """A verdict before the first step."""
    nothing = jnp.zeros(height.shape, jnp.int32)
    return Verdict(height, nothing, nothing)


def watch(verdict: Verdict, height: Array, up_z: Array, vel: Three) -> Verdict:
    """The verdict after one more step; a state that is not finite never counts as settled."""
    vx, vy, vz = vel
    calm = (
        (vx * vx + vy * vy + vz * vz < SETTLED_SPEED**2)
        & (up_z > SETTLED_UP)
        & (height > SETTLED_LOW_M)
        & (height < SETTLED_HIGH_M)
    )
    settled = jnp.where(calm, verdict.settled + 1, 0)
    lowest = jnp.where(height < verdict.lowest, height, verdict.lowest)
    return Verdict(lowest, settled, jnp.maximum(verdict.longest, settled))


def caught(verdict: Verdict, dt: float) -> Array:
    """Whether the throw counts: never below the floor, and settled for long enough within the horizon watched."""
    return (verdict.lowest >= FLOOR_M) & (verdict.longest >= round(SETTLED_S / dt))
