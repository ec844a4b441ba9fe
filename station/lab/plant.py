"""The plant: one simulated drone that no model knows exactly, stepped at 1 kHz. Knows no clock, hand or wire."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray

from sim import drones, pipeline, rotation
from sim.state import ANG_VEL, POS, QUAT, ROTOR, SIZE, VEL, Params, State
from station import config

Array = NDArray[np.float64]

DT = 0.001
STOPPED_RPM = 10.0
"""Below this a rotor stands still: a driver needs its start delay, and an unpowered one has stuck."""
TIMER = slice(SIZE, SIZE + 4)
"""Seconds each motor driver has been trying to start its rotor, behind the state of the simulator."""
FORCE = slice(TIMER.stop, TIMER.stop + 3)
"""Specific force, body frame, m/s²: what an ideal accelerometer averages over the step."""
WIDTH = FORCE.stop


@dataclass(frozen=True)
class Drawn:
    """The parameters of one plant."""

    params: Params
    factors: dict[str, float]
    """Each drawn parameter over its nominal value; `rot_damping` is absolute, 1/s."""


def draw(nominal: Params, lab: config.LabConfig, rng: np.random.Generator) -> Drawn:
    """A drone near ``nominal``: mass, inertia, thrust, torque, drag and rotor lag each uniform within the mismatch."""

    def factors(*shape: int) -> Any:
        return 1.0 + rng.uniform(-lab.mismatch, lab.mismatch, shape)

    mass, thrust, torque, lag = (float(factors()) for _ in range(4))
    drag = factors(3)
    damping = float(rng.uniform(*lab.rot_damping))
    moments = np.diagonal(nominal.inertia)
    inertia = factors(3)
    # No moment of a rigid body exceeds the sum of the others; near-flat drones come close.
    while 2.0 * (moments * inertia).max() > (moments * inertia).sum():
        inertia = factors(3)
    params = replace(
        nominal,
        mass=nominal.mass * mass,
        inertia=nominal.inertia * np.diag(inertia),
        rpm2thrust=nominal.rpm2thrust * thrust,
        rpm2torque=nominal.rpm2torque * torque,
        rotor_coef=nominal.rotor_coef / lag,
        drag=nominal.drag * np.diag(drag),
        rot_damping=np.asarray(damping, np.float64),
    )
    axes = {f"inertia_{axis}": float(f) for axis, f in zip("xyz", inertia, strict=True)}
    axes |= {f"drag_{axis}": float(f) for axis, f in zip("xyz", drag, strict=True)}
    single = {"mass": mass, "thrust_curve": thrust, "torque_curve": torque, "rotor_lag": lag, "rot_damping": damping}
    return Drawn(params, single | axes)


class Plant:
    """A compiled step and the packed state that it moves.

    ``state`` (24,) is pos 3, quat 4, vel 3, ang_vel 3, rotor_rpm 4, start timers 4, specific force 3. Everything is
    compiled in the constructor; new parameters compile nothing.

    Raises:
        sim.errors.ConfigError: no such drone, or none with rotors.
    """

    def __init__(self, drone: str, start_delay_s: float) -> None:
        self.nominal = drones.load(drone)
        # Every parameter as an array: the packed form of a drawn drone must have the same layout.
        self.nominal = replace(self.nominal, rot_damping=np.asarray(0.0, np.asarray(self.nominal.mass).dtype))
        unravel = ravel_pytree(self.nominal)[1]
        self._packed = flat = _pack(self.nominal)
        step = pipeline.build_step(integrator="rkmk4", dt=DT, diagonal=True)

        def advance(packed: jax.Array, z: jax.Array) -> jax.Array:
            return _advance(step, unravel(packed), z, start_delay_s)

        self._input = np.zeros(WIDTH + 4, flat.dtype)
        self._advance = jax.jit(advance).lower(flat, self._input).compile()
        self.state: Array = self._input[:WIDTH]
        """A view: what is written here is where the next step starts."""
        self._command = self._input[WIDTH:]
        self.state[6] = 1.0

    def reset(self, params: Params) -> None:
        """Another drone, at the origin, level, with its rotors at rest."""
        self._packed = _pack(params).astype(self._input.dtype)
        self._input[:] = 0.0
        self.state[6] = 1.0

    def step(self, rotor_rpm_cmd: Any) -> None:
        """Advance by 1 ms under four commanded rotor speeds, rev/min; 0 is off."""
        self._command[:] = rotor_rpm_cmd
        self.state[:] = self._advance(self._packed, self._input)

    def hold(self, pos: Array, quat: Array, vel: Array, ang_vel: Array, acc: Array) -> None:
        """Put the body where a hand has it, accelerating at ``acc`` (3,), m/s² in the world; rotors are left alone."""
        state = self.state
        state[POS], state[QUAT], state[VEL], state[ANG_VEL] = pos, quat, vel, ang_vel
        state[FORCE] = _into_body(quat, acc + np.array([0.0, 0.0, float(self.nominal.gravity)]))

    def free_acceleration(self, pos: Array, quat: Array, vel: Array, ang_vel: Array) -> Array:
        """(6,) linear (world) and angular (body) acceleration of the drone let go with its rotors at rest."""
        z = np.zeros_like(self._input)
        z[POS], z[QUAT], z[VEL], z[ANG_VEL] = pos, quat, vel, ang_vel
        after = np.asarray(self._advance(self._packed, z))
        return np.concatenate([after[VEL] - z[VEL], after[ANG_VEL] - z[ANG_VEL]]) / DT


def _pack(params: Params) -> Array:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree_util.tree_leaves(params)])


def _advance(step: pipeline.Step, params: Params, z: jax.Array, start_delay_s: float) -> jax.Array:
    command, timer, rpm = z[WIDTH:], z[TIMER], z[ROTOR]
    stopped = rpm < STOPPED_RPM
    timer = jnp.where((command > 0.0) & stopped, timer + DT, 0.0)
    # Half a step of slack: the timer is a sum of steps, and the rotor starts with the step after the delay.
    command = jnp.where(stopped & (timer < start_delay_s + 0.5 * DT), 0.0, command)

    after = step(params, State(z[POS], z[QUAT], z[VEL], z[ANG_VEL], rpm), command)
    new = jnp.concatenate([after.pos, after.quat, after.vel, after.ang_vel, after.rotor_rpm])
    spun = new[ROTOR]
    new = new.at[ROTOR].set(jnp.where((command <= 0.0) & (spun < STOPPED_RPM), 0.0, spun))
    # The floor takes all motion: a drone that meets it lies still, as it lies, until its thrust lifts it.
    floor = (new[2] <= 0.0) & (new[9] <= 0.0)
    new = jnp.where(floor, new.at[2].set(0.0).at[VEL].set(0.0).at[ANG_VEL].set(0.0), new)
    push = (new[VEL] - z[VEL]) / DT
    force = rotation.rotate_back(rotation.matrix(tuple(new[QUAT])), (push[0], push[1], push[2] + params.gravity))
    return jnp.concatenate([new, timer, jnp.stack(force)])


def _into_body(quat: Array, v: Array) -> Array:
    """R(quat)ᵀ v."""
    x, y, z, w = quat
    a, b, c = v
    # v' = v - 2w (q × v) + 2 q × (q × v)
    tx, ty, tz = 2.0 * (y * c - z * b), 2.0 * (z * a - x * c), 2.0 * (x * b - y * a)
    return np.array([a - w * tx + (y * tz - z * ty), b - w * ty + (z * tx - x * tz), c - w * tz + (x * ty - y * tx)])


def cache(directory: Path) -> None:
    """Keep compiled programs in ``directory``, so that the next lab starts without compiling."""
    jax.config.update("jax_compilation_cache_dir", str(directory))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
