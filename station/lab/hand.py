"""The scripted hand: how a drone is carried, feinted with, wound up and let go. Knows no clock, plant or wire.

Its motion is twice continuously differentiable, the release included: there the hand already accelerates as the free
drone will, because the contact force of a hand that opens has vanished.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from station import config
from station.lab import motion as motions

Array = NDArray[np.float64]

TICK_S = 0.001
"""Releases fall on this grid, so that a plant of the same step takes over the exact state."""


@dataclass(frozen=True)
class Release:
    """The state in which the drone leaves the hand."""

    pos: Array  # (3,)
    quat: Array  # (4,)
    vel: Array  # (3,)
    ang_vel: Array  # (3,) body frame


@dataclass(frozen=True)
class Script:
    """Everything the hand will do, drawn before it starts; only the moment the window opens is not in it."""

    release: Release
    carry: motions.Wave
    tremor: motions.Wave
    carry_centre: Array  # (6,)
    start: Array  # (6,) where the wind-up starts from
    carry_s: float
    lift_s: float
    waits_s: tuple[float, float]
    feint: bool
    feint_mps: float
    feint_s: tuple[float, float, float, float]
    windup_s: float
    swing_s: float
    bottom: Array  # (6,)
    bottom_acc: Array  # (6,)


def draw(ranges: config.Hand, rng: np.random.Generator) -> Script:
    """One throw, every value uniform in its range (sideways velocity uniform over its disc)."""
    u = rng.uniform
    yaw, tilt, about = u(-math.pi, math.pi), math.radians(u(0.0, ranges.tilt_deg)), u(-math.pi, math.pi)
    lean = tilt * np.array([math.cos(about), math.sin(about), 0.0])
    quat = motions.multiply(_yawed(yaw), motions.exp(lean))
    sideways, heading = ranges.sideways_mps * math.sqrt(u()), u(-math.pi, math.pi)
    vel = np.array([sideways * math.cos(heading), sideways * math.sin(heading), u(*ranges.up_mps)])
    pos = np.array([u(-0.4, 0.4), u(-0.4, 0.4), u(*ranges.release_height_m)])
    release = Release(pos, quat, vel, u(-ranges.spin_rad_s, ranges.spin_rad_s, 3))

    level = motions.log(motions.multiply(motions.conjugate(quat), _yawed(yaw + u(-0.4, 0.4))))
    length = u(0.35, 0.55)
    swing_s = length / (0.45 * vel[2])
    bottom = np.concatenate([pos - 0.45 * swing_s * vel, level - 0.3 * swing_s * release.ang_vel])
    start = np.concatenate([bottom[:3] + np.array([u(-0.1, 0.1), u(-0.1, 0.1), u(0.08, 0.25)]), level])
    centre = np.concatenate([start[:3] + np.array([u(-0.3, 0.3), u(-0.3, 0.3), u(-0.1, 0.15)]), level])
    bottom_acc = np.concatenate([np.array([0.0, 0.0, u(6.0, 14.0)]), np.zeros(3)])
    carry_size = np.array([0.12, 0.12, 0.06, 0.12, 0.12, 0.08])
    tremor_size = np.array([0.001, 0.001, 0.001, 0.006, 0.006, 0.006])
    return Script(
        release=release,
        carry=_wave(rng, carry_size, (0.15, 0.7)),
        tremor=_wave(rng, tremor_size, (1.5, 4.0)),
        carry_centre=centre,
        start=start,
        carry_s=u(*ranges.carry_s),
        lift_s=u(0.6, 1.0),
        waits_s=(u(*ranges.wait_s), u(*ranges.wait_s)),
        feint=bool(u() < ranges.feint_share),
        feint_mps=u(1.0, 2.2),
        feint_s=(u(0.25, 0.4), u(0.2, 0.35), u(0.15, 0.3), u(0.6, 1.0)),
        windup_s=u(0.3, 0.5),
        swing_s=swing_s,
        bottom=bottom,
        bottom_acc=bottom_acc,
    )


def carry(script: Script) -> motions.Motion:
    """Carry the drone about, for ever."""
    return motions.Motion(script.release.quat, (motions.around(script.carry_centre, script.carry, 0.0),))


def throw(script: Script, motion: motions.Motion, t_open: float, free_acc: Array) -> motions.Motion:
    """The rest of the run once the window is seen open: carry on, lift, wait, perhaps feint and wait, wind up, let go.

    Args:
        script: What was drawn.
        motion: What the hand does now.
        t_open: When it saw the window open, s.
        free_acc: (6,) linear (world) and angular (body) acceleration of the free drone in the release state.
    """
    chain = motions.Chain(motion, t_open + script.carry_s)
    chain.settle(script.start, script.tremor, script.lift_s, script.waits_s[0])
    if script.feint:
        down, up, stop, back = script.feint_s
        rise = np.array([0.0, 0.0, 0.45 * script.feint_mps * up, 0.0, 0.0, 0.0])
        low = script.start.copy()
        low[2] = script.bottom[2]
        chain.move(low, np.zeros(6), script.bottom_acc, down)
        chain.move(low + rise, script.feint_mps * np.eye(6)[2], np.zeros(6), up)
        chain.move(low + rise * (1.0 + stop / up), np.zeros(6), np.zeros(6), stop)
        chain.settle(script.start, script.tremor, back, script.waits_s[1])
    # The last wait is stretched by less than a tick so that the release falls on the grid.
    ticks = (chain.t + script.windup_s + script.swing_s) / TICK_S
    chain.wait((math.ceil(ticks - 1e-6) - ticks) * TICK_S)
    chain.move(script.bottom, np.zeros(6), script.bottom_acc, script.windup_s)
    release = script.release
    end = np.concatenate([release.pos, np.zeros(3)])
    chain.move(end, np.concatenate([release.vel, release.ang_vel]), free_acc, script.swing_s)
    return replace(chain.motion(), t_release=round(chain.t / TICK_S) * TICK_S)


def stop(script: Script, motion: motions.Motion, t: float) -> motions.Motion:
    """Give up at ``t`` and hold the drone still for ever, from whatever the hand is doing."""
    chain = motions.Chain(motion, t)
    chain.settle(script.start, script.tremor, 0.8, math.inf)
    return chain.motion()


def _yawed(yaw: float) -> Array:
    return motions.exp(np.array([0.0, 0.0, yaw]))


def _wave(rng: np.random.Generator, size: Array, hz: tuple[float, float]) -> motions.Wave:
    shape = (2, 6)
    amplitude, phase = rng.uniform(0.2, 1.0, shape) * size, rng.uniform(0.0, 2.0 * math.pi, shape)
    return motions.Wave(amplitude, 2.0 * math.pi * rng.uniform(*hz, shape), phase)
