"""Between the data of a `Sim` and what a step works on: parameters, components and memory. Computes no physics.

Data is (N, M, k), as people read it. A step wants components with the batch last, so that neighbours in memory are
neighbours in the vector registers; the batch is one axis of N M drones, or (N, M) where drones of a world couple.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from sim import rotation
from sim.data import AttitudeParams, RotorParams, SimControls, SimData
from sim.gains import Gains
from sim.onboard import mellinger
from sim.onboard.cascade import Cascade
from sim.state import ANG_VEL, POS, QUAT, ROTOR, VEL, Components, Params, Rotors, RpyParams
from sim.step import Memory, Step

RECORD = "commanded"
"""Name of the stage that remembers the command to the dynamics, which data shows."""


def batch_of(data: SimData, couples: bool) -> tuple[int, ...]:
    """Shape of the batch of components."""
    n, m = data.core.n_worlds, data.core.n_drones
    return (n, m) if couples else (n * m,)


def spread(leaf: Any, core: int, data: SimData, batch: tuple[int, ...]) -> Any:
    """A leaf with the ``core`` last axes its own: as it is, or with the whole batch in front."""
    if jnp.ndim(leaf) <= core:
        return leaf
    own = jnp.shape(leaf)[jnp.ndim(leaf) - core :]
    full = jnp.broadcast_to(leaf, (data.core.n_worlds, data.core.n_drones, *own))
    return full.reshape(*batch, *own)


def split(array: jax.Array, batch: tuple[int, ...]) -> Components:
    """The components of an array (N, M, k)."""
    return tuple(array[..., i].reshape(batch) for i in range(array.shape[-1]))


def joined(parts: Any, like: jax.Array) -> jax.Array:
    """The array of the shape and dtype of ``like`` that has ``parts`` as components."""
    shape = like.shape[:-1]
    return jnp.stack([jnp.broadcast_to(p, shape) if jnp.ndim(p) == 0 else p.reshape(shape) for p in parts], axis=-1)


def each_drone(steps: jax.Array, data: SimData, batch: tuple[int, ...]) -> jax.Array:
    """Numbers of worlds (N, 1) as numbers of drones."""
    return jnp.broadcast_to(steps, (data.core.n_worlds, data.core.n_drones)).reshape(batch)


def parameters(data: SimData, batch: tuple[int, ...], limits: tuple[float, float]) -> Params | RpyParams:
    """Parameters for a step; those of one drone stay so.

    Args:
        data: of the simulation.
        batch: from `batch_of`.
        limits: least and greatest thrust of a rotor, N.
    """
    p = data.params

    def of(leaf: Any, core: int) -> Any:
        return spread(leaf, core, data, batch)

    effects = {name: jax.tree.map(lambda v: _effect(v, data, batch), own) for name, own in data.effects.items()}
    common = {
        "mass": of(p.mass[..., 0], 0),
        "inertia": of(p.J, 2),
        "gravity": of(-p.gravity_vec[..., 2], 0),
        "thrust_min": limits[0],
        "thrust_max": limits[1],
        "effects": effects,
        "onboard": gains(data.controls),
    }
    if isinstance(p, AttitudeParams):
        rate, drag = p.thrust_dyn_coef, p.drag_matrix
        return RpyParams(
            **common,
            acc_coef=of(p.acc_coef[..., 0], 0),
            cmd_f_coef=of(p.cmd_f_coef[..., 0], 0),
            rpy_coef=of(p.rpy_coef, 1),
            rpy_rates_coef=of(p.rpy_rates_coef, 1),
            cmd_rpy_coef=of(p.cmd_rpy_coef, 1),
            thrust_dyn_coef=None if rate is None else of(rate[..., 0], 0),
            drag=None if drag is None else of(drag, 2),
        )
    return Params(
        **common,
        arm_length=of(p.L[..., 0], 0),
        prop_inertia=of(p.prop_inertia[..., 0], 0),
        rpm2thrust=of(p.rpm2thrust[..., 0, :], 1),
        rpm2torque=of(p.rpm2torque[..., 0, :], 1),
        rotor_coef=of(p.rotor_dyn_coef[..., 0, :], 1),
        mixing=of(p.mixing_matrix, 2),
        drag=of(p.drag_matrix, 2),
        rot_damping=of(p.rot_damping[..., 0], 0),
        rotors=_rotors(p, of),
    )


def _rotors(p: RotorParams, of: Any) -> Rotors | None:
    curves = (p.rpm2thrust, p.rpm2torque, p.rotor_dyn_coef)
    if {p.L.shape[-1], p.prop_inertia.shape[-1], *(v.shape[-2] for v in curves)} == {1}:
        return None

    def four(v: jax.Array, axis: int) -> jax.Array:
        shape = list(v.shape)
        shape[axis] = 4
        return of(jnp.broadcast_to(v, shape), -axis)

    return Rotors(four(p.L, -1), four(p.prop_inertia, -1), *(four(v, -2) for v in curves))


def _effect(leaf: Any, data: SimData, batch: tuple[int, ...]) -> Any:
    if jnp.shape(leaf)[:2] != (data.core.n_worlds, data.core.n_drones):
        return leaf
    return leaf.reshape(*batch, *leaf.shape[2:])


def gains(controls: SimControls) -> Gains | None:
    """Gains of the controllers in use; zero where no controller asks for one."""
    position = {} if controls.state is None else controls.state.params
    turning = controls.body_rate if controls.attitude is None else controls.attitude
    turn = {} if turning is None else turning.params
    share = {} if controls.force_torque is None else controls.force_torque.params
    if not (position or turn or share):
        return None
    known = {**{k: v for k, v in position.items() if k in ("mass_thrust", "thrust_max", "pwm_max")}, **turn, **share}
    zero = jnp.zeros((), jnp.result_type(next(iter(known.values()))))
    zeros = jnp.zeros(3, zero.dtype)
    named = {name: known.get(name, zero) for name in _SHARED}
    return Gains(
        **named,
        mass=position.get("mass", zero),
        mass_thrust=position.get("mass_thrust", zero),
        **{ours: position.get(theirs, zeros) for ours, theirs in POSITION.items()},
        **{ours: turn.get(theirs, zeros) for ours, theirs in TURNING.items()},
        arm_length=known.get("L", zero),
        rpm2thrust=share.get("rpm2thrust", zeros),
    )


_SHARED = ("pwm_min", "pwm_max", "thrust_min", "thrust_max", "thrust2torque")
POSITION = {"pos_kp": "kp", "pos_kd": "kd", "pos_ki": "ki", "pos_err_i_max": "int_err_max"}
TURNING = {
    "att_kp": "kR", "att_kd": "kw", "att_ki": "ki_m", "rate_kd": "kd_omega", "att_err_i_max": "int_err_max",
    "torque_pwm_max": "torque_pwm_max",
}  # fmt: skip
"""Names of gains in `sim.gains` and in data."""


def wrench(data: SimData, batch: tuple[int, ...]) -> tuple[Components, Components]:
    """Force and torque from outside, world frame; with what pulls sideways if gravity is not vertical."""
    shape = (*data.states.force.shape[:-1], 2)
    pull = jnp.broadcast_to(data.params.gravity_vec[..., :2], shape)
    side = split(jnp.broadcast_to(data.params.mass, shape) * pull, batch)
    force = split(data.states.force, batch)
    return (force[0] + side[0], force[1] + side[1], force[2]), split(data.states.torque, batch)


def state(data: SimData, batch: tuple[int, ...]) -> Components:
    """The 17 components."""
    s = data.states
    return tuple(c for a in (s.pos, s.quat, s.vel, s.ang_vel, s.rotor_vel) for c in split(a, batch))


def command(data: SimData, level: str, batch: tuple[int, ...]) -> Components:
    """The components of the staged command of ``level``."""
    c = data.controls
    return split(c.rotor_vel if level == "rotor_vel" else getattr(c, level).staged_cmd, batch)


def memory(step: Step, data: SimData, params: Params | RpyParams, batch: tuple[int, ...], slow: bool) -> Memory:
    """What the step remembers; it counts steps of each drone if ``slow``, as controllers tick by them."""
    c, kept = data.controls, {}
    turning = c.body_rate if c.attitude is None else c.attitude
    power = None
    for name in step.cascade.keeps:
        match name:
            case "command":
                kept[name] = split(getattr(c, step.cascade.control).cmd, batch)
            case "pos_err_i":
                kept[name] = split(c.state.pos_err_i, batch)
            case "attitude":
                target = split(c.attitude.staged_cmd, batch)
                kept[name] = rotation.from_euler(target[:3]) if step.cascade.rotors else target
            case "thrust":
                kept[name] = split(c.attitude.staged_cmd[..., 3:], batch)
            case "taken":
                kept[name] = split(c.attitude.cmd, batch)
            case "rates":
                kept[name] = split(c.attitude.staged_ang_vel_des, batch)
            case "rates_taken":
                taken = c.body_rate.cmd if c.attitude is None else c.attitude.ang_vel_des
                kept[name] = split(taken[..., :2], batch)
            case "att_err_i":
                kept[name] = split(turning.r_int_error, batch)
            case "ang_vel":
                kept[name] = split(turning.prev_ang_vel, batch)
            case "forces" | "forces_taken":
                power = power or mellinger.power_coefficients(params.onboard)
                array = c.force_torque.staged_cmd if name == "forces" else c.force_torque.cmd
                kept[name] = mellinger.shares(power, split(array, batch))
            case _:
                raise AssertionError(f"the cascade keeps {name!r}, which data does not show")
    effects = {
        name: jax.tree.map(lambda v: v.reshape(batch) if _per_drone(v, data) else v, own)
        for name, own in data.memory.items()
    }
    if any(stage.name == RECORD for stage in step.stages):
        # What the dynamics was last told; zero until it was told anything.
        told = c.rotor_vel if step.cascade.rotors else c.attitude.cmd
        effects[RECORD] = split(told, batch)
    steps = each_drone(data.core.steps, data, batch) if slow else jnp.zeros((), data.core.steps.dtype)
    return Memory(steps, kept, effects)


def _per_drone(leaf: Any, data: SimData) -> bool:
    return jnp.shape(leaf) == (data.core.n_worlds, data.core.n_drones)


def moved(step: Step, data: SimData, params: Any, x: Components, kept: Memory, count: int) -> SimData:
    """``data`` with the components and the memory ``count`` steps later."""
    s = data.states
    named = {"pos": POS, "quat": QUAT, "vel": VEL, "ang_vel": ANG_VEL, "rotor_vel": ROTOR}
    states = s.replace(**{name: joined(x[part], getattr(s, name)) for name, part in named.items()})
    steps = data.core.steps + count
    shown = {
        name: jax.tree.map(lambda new, old: new.reshape(old.shape), own, data.memory[name])
        for name, own in kept.effects.items()
        if name != RECORD
    }
    controls = told(step.cascade, data, params, kept, steps)
    core = data.core.replace(steps=steps)
    return data.replace(states=states, controls=controls, core=core, memory=shown)


def told(cascade: Cascade, data: SimData, params: Any, kept: Memory, steps: jax.Array) -> SimControls:
    """Controls of ``data`` at ``steps`` (N, 1), with what the memory says."""
    c, before, on = data.controls, data.core.steps, kept.onboard
    told = kept.effects.get(RECORD)
    if told is None:
        return c

    ticks = {n: (steps - 1) // n * n for _, n in cascade.periods}

    def ticked(level: str, control: Any) -> dict[str, Any]:
        """Its last tick."""
        last = ticks[cascade.period(level)]
        if cascade.period(level) == 1:
            return {"steps": last}
        return {"steps": jnp.where(last >= before, last, control.steps).astype(control.steps.dtype)}

    def taken(level: str, control: Any, staged: jax.Array, old: jax.Array) -> jax.Array:
        if cascade.period(level) == 1:
            return staged
        return jnp.where((ticked(level, control)["steps"] >= before)[..., None], staged, old)

    changes: dict[str, Any] = {}
    levels = cascade.levels
    if "state" in levels:
        now = c.state.replace(pos_err_i=joined(on["pos_err_i"], c.state.pos_err_i), **ticked("state", c.state))
        changes["state"] = now.replace(cmd=taken("state", c.state, c.state.staged_cmd, c.state.cmd))
    if "attitude" in levels:
        changes["attitude"] = _attitude(cascade, c.attitude, on, told, ticked, taken)
    if "body_rate" in levels:
        b = c.body_rate
        changes["body_rate"] = b.replace(
            cmd=taken("body_rate", b, b.staged_cmd, b.cmd),
            r_int_error=joined(on["att_err_i"], b.r_int_error),
            prev_ang_vel=joined(on["ang_vel"], b.prev_ang_vel),
            **ticked("body_rate", b),
        )
    if cascade.rotors:
        changes["rotor_vel"] = joined(told, c.rotor_vel)
        changes["force_torque"] = _shared(cascade, c, params.onboard, on, told, ticked, taken, changes)
    return c.replace(**changes)


def _attitude(cascade: Cascade, a: Any, on: Any, told: Any, ticked: Any, taken: Any) -> Any:
    now = ticked("attitude", a)
    if "attitude" in on:
        target = (*rotation.euler(on["attitude"]), *on["thrust"]) if cascade.rotors else on["attitude"]
        now["staged_cmd"] = joined(target, a.staged_cmd)
    now["cmd"] = taken("attitude", a, now.get("staged_cmd", a.staged_cmd), a.cmd)
    if not cascade.rotors:
        return a.replace(**now | {"cmd": joined(told, a.cmd)})
    if "rates" in on:
        now["staged_ang_vel_des"] = joined(on["rates"], a.ang_vel_des)
        now["ang_vel_des"] = taken("attitude", a, now["staged_ang_vel_des"], a.ang_vel_des)
    now["r_int_error"] = joined(on["att_err_i"], a.r_int_error)
    now["prev_ang_vel"] = joined(on["ang_vel"], a.prev_ang_vel)
    return a.replace(**now)


def _shared(
    cascade: Cascade, c: SimControls, g: Gains, on: Any, told: Any, ticked: Any, taken: Any, changes: dict[str, Any]
) -> Any:
    f = c.force_torque
    now = ticked("force_torque", f)
    if cascade.control == "force_torque":
        return f.replace(**now, cmd=taken("force_torque", f, f.staged_cmd, f.cmd))
    power = mellinger.power_coefficients(g)
    outer = changes["body_rate" if c.attitude is None else "attitude"]
    off = outer.cmd[..., 3:] == 0.0
    curve = tuple(g.rpm2thrust[..., i] for i in range(3))
    forces = on.get("forces", tuple(curve[0] + n * (curve[1] + n * curve[2]) for n in told))
    staged = joined(mellinger.force_torque(power, forces), f.staged_cmd)
    staged = staged if "forces" in on else jnp.where(off, 0.0, staged)
    cmd = joined(mellinger.force_torque(power, on["forces_taken"]), f.cmd) if "forces_taken" in on else staged
    return f.replace(**now, staged_cmd=staged, cmd=cmd)
