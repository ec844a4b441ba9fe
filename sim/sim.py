"""`Sim`: many drones in many worlds behind one object, with the face of the peer simulator (PyPI crazyflow 0.4.0).

The object keeps data (`sim.data`) and the function that moves it on, and no physics. Data is replaced, never changed:
what was read before a step stays what it was. Functions of data alone are in `sim.functional`, and
`Sim.build_step_fn` returns one that may be transformed (`jax.grad`, `jax.jit`, `jax.vmap`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from sim import assembly, effects, functional, screen, sharding, start
from sim.data import SimData
from sim.effects import Stage
from sim.errors import ConfigError, ShapeError
from sim.modes import Control, Drone, Dynamics, Integrator, choose
from sim.program import Program
from sim.stages import Pipeline


class Sim:
    """N worlds of M drones each.

    Attributes:
        data: states, controls, parameters and counts; assign ``sim.data = sim.data.replace(...)`` to change them.
        default_data: what `reset` goes back to.
        step_pipeline: named stages of a step, in order; after changing them call `build_step_fn`.
        reset_pipeline: the same of a reset; after changing them call `build_reset_fn`.
    """

    def __init__(
        self,
        n_worlds: int = 1,
        n_drones: int = 1,
        drone: Drone | str | Mapping[str, Any] = Drone.cf21B_500,
        dynamics: Dynamics | str = Dynamics.default,
        control: Control | str = Control.default,
        integrator: Integrator | str = Integrator.default,
        freq: int = 500,
        state_freq: int = 100,
        attitude_freq: int = 500,
        body_rate_freq: int = 500,
        force_torque_freq: int = 500,
        device: str = "cpu",
        rng_key: int | jax.Array = 0,
        mesh: Mesh | None = None,
    ) -> None:
        """Build data and pipelines; nothing is compiled yet.

        Args:
            n_worlds: worlds, which know nothing of each other.
            n_drones: drones in each world.
            drone: name of a known drone, or a mapping with parameters (see `sim.drones.load`).
            dynamics: model of the motion.
            control: level of the commands.
            integrator: how the motion is integrated.
            freq: steps per second.
            state_freq: Hz at which the state controller ticks. So the following.
            attitude_freq: of the attitude controller.
            body_rate_freq: of the body-rate controller.
            force_torque_freq: of the controller that shares thrust and torques among rotors.
            device: ``cpu``, ``gpu`` or another platform of JAX.
            rng_key: seed, or a key.
            mesh: spreads worlds over devices (see `sim.sharding`).

        Raises:
            ConfigError: unknown names, dynamics that cannot be commanded at that level, rates that do not divide, a
                drone without parameters or with unphysical ones, a mesh that does not divide the worlds.
        """
        for name, count in (("n_worlds", n_worlds), ("n_drones", n_drones), ("freq", freq)):
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise ConfigError(f"{name} is {count!r}, but it must be a positive whole number")
        if freq > 10_000 and not jax.config.jax_enable_x64:
            raise ConfigError(
                f"freq is {freq} Hz, where increments vanish in 32 bits; set jax_enable_x64 or use at most 10000 Hz"
            )
        self.dynamics = choose(Dynamics, dynamics, "dynamics")
        self.control = choose(Control, control, "control")
        self.integrator = choose(Integrator, integrator, "integrator")
        self.drone = drone if isinstance(drone, Mapping) else choose(Drone, drone, "drone")
        self.device = _device(device)
        self.n_worlds, self.n_drones, self.freq, self.mesh = n_worlds, n_drones, freq, mesh
        self._rates = {
            "state": state_freq, "attitude": attitude_freq, "body_rate": body_rate_freq,
            "force_torque": force_torque_freq,
        }  # fmt: skip
        if mesh is not None:
            sharding.share(n_worlds, mesh)
        dtype = jax.dtypes.canonicalize_dtype(float)
        self._loaded = start.load(self.drone, self.dynamics, self.control, dtype)
        self._plan = assembly.plan(self._loaded, self.dynamics, self.control, self.integrator, freq, self._rates)
        self._screened = screen.Screen()
        self._tree, self._program, self._whole = None, None, None
        self.build_data(jax.random.key(rng_key) if isinstance(rng_key, int) else rng_key)
        self.build_default_data()
        self.step_pipeline = Pipeline((stage.name, stage) for stage in self._plan.stages)
        self.reset_pipeline = Pipeline({"reset": start.again})
        self.build_step_fn()
        self.build_reset_fn()

    @property
    def data(self) -> SimData:
        """Everything a step reads and writes. Assigning it refuses unphysical parameters (ConfigError)."""
        if self._whole is None:
            self._whole = jax.tree.unflatten(self._tree, self._leaves)
        return self._whole

    @data.setter
    def data(self, data: SimData) -> None:
        self._diagonal = self._screened(data.params)
        self._data = data

    @property
    def _data(self) -> SimData:
        return self.data

    @_data.setter
    def _data(self, data: SimData) -> None:
        # Steps work on the flat list of arrays: taking the tree apart at each would cost as much as the step.
        self._whole = data
        self._leaves, tree = jax.tree.flatten(data)
        if self._tree is None or tree != self._tree:
            self._tree, self._program = tree, None

    def step(self, n_steps: int = 1) -> None:
        """Move all drones on by ``n_steps`` steps of 1 / freq seconds.

        Raises:
            ConfigError: ``n_steps`` is not a positive whole number.
        """
        if n_steps < 1:
            raise ConfigError(f"n_steps is {n_steps!r}, but it must be a positive whole number")
        if self._program is None:
            self._program = Program(self._moved, self._tree)
        self._leaves = self._program(self._leaves, n_steps, self._diagonal)
        self._whole = None

    def reset(self, mask: Any = None) -> None:
        """Back to `default_data`, the random key excepted: all worlds, or those where ``mask`` (n_worlds,) is true.

        Raises:
            ShapeError: the mask has another shape.
        """
        if mask is not None:
            if jnp.shape(mask) != (self.n_worlds,):
                raise ShapeError(f"mask has shape {jnp.shape(mask)}, but ({self.n_worlds},) is expected")
            mask = jnp.asarray(mask, bool)
        self.data = self._reset(self._data, self.default_data, mask)

    def seed(self, seed: int) -> None:
        """Set the random key in ``data.core.rng_key``."""
        key = jax.random.key(seed)
        key = jax.device_put(key, self._data.core.rng_key.sharding)
        self._data = self._data.replace(core=self._data.core.replace(rng_key=key))

    def state_control(self, controls: Any) -> None:
        """Stage state commands (n_worlds, n_drones, 16); see `sim.modes.Control`. So the following, with 4 numbers.

        Raises:
            ConfigError: the simulation was built for another level.
            ShapeError: the array has another shape.
        """
        self._stage(Control.state, controls)

    def attitude_control(self, controls: Any) -> None:
        """Stage attitude commands: roll, pitch, yaw (rad), thrust (N)."""
        self._stage(Control.attitude, controls)

    def body_rate_control(self, controls: Any) -> None:
        """Stage body rates (rad/s) and thrust (N)."""
        self._stage(Control.body_rate, controls)

    def force_torque_control(self, controls: Any) -> None:
        """Stage thrust (N) and torques (Nm)."""
        self._stage(Control.force_torque, controls)

    def rotor_vel_control(self, controls: Any) -> None:
        """Command rotor speeds (rev/min)."""
        self._stage(Control.rotor_vel, controls)

    def _stage(self, level: Control, controls: Any) -> None:
        if self.mesh is not None and not isinstance(controls, jax.Array):
            controls = sharding.put(controls, self._data.controls.rotor_vel)
        self._data = functional.staged(self._data, level, controls)

    @property
    def time(self) -> jax.Array:
        """Seconds since the last reset, (n_worlds, 1)."""
        return self._data.core.steps / self._data.core.freq

    @property
    def control_freq(self) -> int:
        """Hz of the controller that takes the commands; ``freq`` at rotor level."""
        return self.freq if self.control == Control.rotor_vel else self._rates[self.control.value]

    @property
    def controllable(self) -> jax.Array:
        """Which worlds (n_worlds, 1) take over a staged command in the next step."""
        return functional.controllable(self._data)

    def add_effect(self, stage: Stage, parameters: Any = None) -> None:
        """Put a stage of `sim.effects` in the pipeline, with its defaults or ``parameters``, and build it anew.

        Each leaf of the parameters has its own shape, or (n_worlds, n_drones) in front of it.
        """
        anchor = (
            assembly.FLOOR if stage.place == "state" and assembly.FLOOR in self.step_pipeline else assembly.INTEGRATION
        )
        self.step_pipeline.insert_before(anchor, stage)
        if parameters is not None:
            dtype = self._data.states.pos.dtype
            parameters = jax.tree.map(lambda v: jnp.asarray(v, dtype), parameters)
            own = {**self._data.effects, stage.name: parameters}
            self._data = self._data.replace(effects=own)
            self.default_data = self.default_data.replace(effects={**self.default_data.effects, stage.name: parameters})
        self.build_step_fn()

    def build_step_fn(self) -> Callable[..., SimData]:
        """Take over the stages of `step_pipeline`.

        Returns:
            A compiled pure function ``(data, n_steps=1) -> data``.

        Raises:
            ConfigError: stages that cannot stand in that order.
        """
        move, apart = assembly.assemble(self._plan, self.step_pipeline)
        self._furnish(assembly.added(self.step_pipeline))
        mesh = self.mesh

        def moved(data: SimData, n_steps: int, diagonal: bool) -> SimData:
            if mesh is not None and apart:
                return sharding.locally(lambda local: move(local, n_steps, diagonal), data, mesh)
            return move(data, n_steps, diagonal)

        whole = jax.jit(moved, static_argnums=(1, 2))

        def step(data: SimData, n_steps: int = 1) -> SimData:
            return whole(data, n_steps, screen.diagonal(data.params))

        self._moved, self._program, self._step = moved, None, step
        return step

    def _furnish(self, stages: tuple[Stage, ...]) -> None:
        """Give stages that are new their parameters and memory; forget those of stages that are gone."""
        names = {stage.name for stage in stages}
        dtype = self._data.states.pos.dtype
        given = {name: own for name, own in self._data.effects.items() if name in names}
        given = effects.defaults(stages, dtype) | given
        new = [stage for stage in stages if stage.name not in self._data.memory]
        kept = {name: own for name, own in self._data.memory.items() if name in names}
        key, drawn = jax.random.split(self._data.core.rng_key)
        holder = _Holder(given)
        kept |= effects.start(new, holder, (self.n_worlds, self.n_drones), drawn, dtype)
        core = self._data.core.replace(rng_key=key) if any(s.start is not None for s in new) else self._data.core
        self._data = self._place(self._data.replace(effects=given, memory=kept, core=core))
        self.default_data = self._place(self.default_data.replace(effects=given, memory=kept))

    def build_reset_fn(self) -> Callable[..., SimData]:
        """Take over the stages of `reset_pipeline`; returns a compiled ``(data, default_data, mask=None) -> data``."""
        stages = tuple(self.reset_pipeline.values())

        @jax.jit
        def reset(data: SimData, default_data: SimData, mask: jax.Array | None = None) -> SimData:
            for stage in stages:
                data = stage(data, default_data, mask)
            return data

        self._reset = reset
        return reset

    def build_data(self, rng_key: jax.Array | None = None) -> SimData:
        """Data as at the start, with the present random key or ``rng_key``."""
        key = self._data.core.rng_key if rng_key is None else rng_key
        shape, dtype = (self.n_worlds, self.n_drones), jax.dtypes.canonicalize_dtype(float)

        def create(key: jax.Array) -> SimData:
            return start.data(self._loaded, self.dynamics, self.control, self._rates, self.freq, shape, key, dtype)

        if self.mesh is None:
            data = jax.device_put(create(key), self.device)
        else:
            data = sharding.build(create, key, self.mesh)
        self.data = data
        return data

    def build_default_data(self) -> SimData:
        """Take the present data as what `reset` goes back to."""
        self.default_data = self._data
        return self.default_data

    def shard(self, mesh: Mesh) -> SimData:
        """Spread worlds over ``mesh`` from now on.

        Raises:
            ConfigError: it does not divide them.
        """
        sharding.share(self.n_worlds, mesh)
        self.mesh = mesh
        self._data, self.default_data = (self._place(d) for d in (self._data, self.default_data))
        self.build_step_fn()
        return self._data

    def _place(self, data: SimData) -> SimData:
        return data if self.mesh is None else sharding.shard(data, self.mesh)

    def close(self) -> None:
        """Nothing is held open; there for the peer's scripts."""


class _Holder:
    """Parameters of stages where nothing else is known yet."""

    def __init__(self, own: Mapping[str, Any]) -> None:
        self.effects = own


def _device(name: str) -> jax.Device:
    try:
        return jax.devices(name)[0]
    except RuntimeError as error:
        raise ConfigError(f"device is {name!r}, but JAX has {jax.default_backend()} here ({error})") from None
