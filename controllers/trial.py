"""A network's trial: throws flown in simulation on drones that are not quite the model, and judged. Learns nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from controllers import policy, tasks
from sim import rotation
from sim.dynamics import first_principles
from sim.state import ANG_VEL, POS, QUAT, VEL, Components, Params

Array = Any
DT = 1.0 / policy.CONTROL_HZ
"""One tick of control and one step of physics, s."""
NOISE_STEPS = 64
"""Length of the noise that is played in a loop: a fresh draw for each step would cost more than the flight."""


@dataclass(frozen=True)
class Flaws:
    """What a real flight adds to the model; plain numbers that are part of a program."""

    mismatch: float = 0.05
    """Mass, inertia, thrust, torque, lag, drag each uniform within this share of nominal."""
    damping: tuple[float, float] = (0.2, 1.0)
    """Rotational damping, uniform, 1/s."""
    noise: tuple[float, float, float, float] = (0.01, 0.025, 0.1, 0.02)
    """Standard deviations of the estimate: m, rad, m/s, rad/s; half of the variance stays for the whole throw."""
    delay_ticks: int = 3
    """Ticks from an observation to the rotor command."""


NONE = Flaws(0.0, (0.0, 0.0), (0.0, 0.0, 0.0, 0.0), 0)


def advance(c: first_principles.Coefficients, x: Components, rotor_rpm_cmd: Components) -> Components:
    """One Euler step of `DT` on components, as in `sim`, but with the attitude to second order.

    The exact exponential costs a fifth of a training run and differs by |w dt|³/24, 1e-5 rad at 30 rad/s.
    """
    d = first_principles.derivative(c, x, rotor_rpm_cmd)
    half = tuple(0.5 * DT * w for w in x[ANG_VEL])
    cosine = 1.0 - 0.5 * (half[0] * half[0] + half[1] * half[1] + half[2] * half[2])
    qx, qy, qz, qw = rotation.multiply(x[QUAT], (*half, cosine))
    # One Newton step towards unit norm instead of a square root.
    scale = 1.5 - 0.5 * (qx * qx + qy * qy + qz * qz + qw * qw)
    pos = tuple(p + DT * v for p, v in zip(x[POS], d[0:3], strict=True))
    rest = tuple(a + DT * b for a, b in zip(x[7:17], d[6:16], strict=True))
    return (*pos, qx * scale, qy * scale, qz * scale, qw * scale, *rest)


def commands(params: Params, action: Array) -> Components:
    """Four rotor commands, rev/min, of actions (4, batch) as the firmware of the nominal drone maps them."""
    rpm = policy.rotor_rpm(action, (params.thrust_min, params.thrust_max), params.rpm2thrust)
    return rpm[0], rpm[1], rpm[2], rpm[3]


def flawed(key: Array, params: Params, count: int, flaws: Flaws) -> Params:
    """``count`` drones around ``params``, batch in front."""
    keys = iter(jax.random.split(key, 8))

    def off(nominal: Array, axes: int = 0, each: int = 1) -> Array:
        # The same factor for a whole curve; one of its own for each row of a matrix.
        factor = jax.random.uniform(next(keys), (count, each), minval=1.0 - flaws.mismatch, maxval=1.0 + flaws.mismatch)
        factor = factor.reshape((count, each, 1) if axes == 2 else (count, 1) if axes else (count,))
        return jnp.asarray(nominal)[None] * factor

    low, high = flaws.damping
    return replace(
        params,
        mass=off(params.mass),
        inertia=off(params.inertia, 2, 3),
        rpm2thrust=off(params.rpm2thrust, 1),
        rpm2torque=off(params.rpm2torque, 1),
        rotor_coef=off(params.rotor_coef, 1),
        drag=off(params.drag, 2, 3),
        rot_damping=jax.random.uniform(next(keys), (count,), minval=low, maxval=high),
    )


def fly(
    key: Array, network: policy.Network, start: Components, params: Params, target: Array, flaws: Flaws = NONE
) -> tasks.Verdict:
    """What `tasks.HORIZON_S` of flight from each of ``start`` (17 components, (batch,)) came to.

    Args:
        key: draws the drones and the noise.
        network: as the drone computes it.
        start: states at activation.
        params: what the firmware believes the drone to be.
        target: height to recover to, m.
        flaws: how far drones and estimates are off.
    """
    count = start[0].shape[0]
    k_drone, k_bias, k_noise = jax.random.split(key, 3)
    c = first_principles.coefficients(flawed(k_drone, params, count, flaws), diagonal=True)
    scale = jnp.asarray([flaws.noise[0]] + [s for s in flaws.noise[1:] for _ in range(3)])[:, None] * 0.5**0.5
    bias = scale * jax.random.normal(k_bias, (10, count))
    noise = scale[None] * jax.random.normal(k_noise, (NOISE_STEPS, 10, count))
    noisy = any(flaws.noise)

    def tick(carry: Any, step: Array) -> tuple[Any, None]:
        x, sent, verdict = carry
        height, quat, vel, ang_vel = x[2], x[QUAT], x[VEL], x[ANG_VEL]
        if noisy:
            e = bias + noise[step % NOISE_STEPS]
            height, quat = height + e[0], rotation.multiply(quat, rotation.exp((e[1], e[2], e[3])))
            vel = (vel[0] + e[4], vel[1] + e[5], vel[2] + e[6])
            ang_vel = (ang_vel[0] + e[7], ang_vel[1] + e[8], ang_vel[2] + e[9])
        last = sent[0]
        inputs = policy.observe(height, quat, vel, ang_vel, (last[0], last[1], last[2], last[3]), target)
        sent = (policy.forward(network, inputs), *sent)
        x = advance(c, x, commands(params, sent[flaws.delay_ticks]))
        up_z = 1.0 - 2.0 * (x[3] * x[3] + x[4] * x[4])
        return (x, sent[: flaws.delay_ticks + 1], tasks.watch(verdict, x[2], up_z, x[VEL])), None

    idle = jnp.full((4, count), policy.IDLE_ACTION)
    carry = (start, (idle,) * (flaws.delay_ticks + 1), tasks.begin(start[2]))
    (_, _, verdict), _ = jax.lax.scan(tick, carry, jnp.arange(round(tasks.HORIZON_S / DT)))
    return verdict
