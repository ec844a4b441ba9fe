"""The object face: what it starts with, what a step and a reset do to data, and what it refuses."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sim import effects, functional, layout
from sim.errors import ConfigError, ShapeError
from sim.modes import Control, Drone, Dynamics, Integrator
from sim.sim import Sim

DATA = Path(__file__).parent.parent / "data"


def hovering(sim, shape):
    return jnp.broadcast_to(jnp.asarray([0.1, -0.05, 0.2, 0.45], jnp.float32), (*shape, 4))


def arrays(states):
    return {k: np.asarray(getattr(states, k)) for k in ("pos", "quat", "vel", "ang_vel", "rotor_vel")}


def assert_same(a, b, **tolerance):
    for key, value in arrays(a).items():
        np.testing.assert_allclose(value, arrays(b)[key], err_msg=key, **tolerance)


def test_starts_as_the_peer_does():
    sim = Sim(n_worlds=2, n_drones=3)
    assert (sim.drone, sim.dynamics, sim.control, sim.integrator) == (
        Drone.cf21B_500,
        Dynamics.first_principles,
        Control.attitude,
        Integrator.euler,
    )
    assert (sim.freq, sim.control_freq, sim.device.platform) == (500, 500, "cpu")
    assert list(sim.step_pipeline) == [
        "attitude_controller",
        "force_torque_controller",
        "clip_rotor_vel_cmd",
        "integration",
        "clip_floor_pos",
        "increment_steps",
    ]
    assert list(sim.reset_pipeline) == ["reset"]
    s = sim.data.states
    sizes = {"pos": 3, "quat": 4, "vel": 3, "ang_vel": 3, "force": 3, "torque": 3, "rotor_vel": 4}
    assert {k: getattr(s, k).shape for k in sizes} == {k: (2, 3, n) for k, n in sizes.items()}
    assert {leaf.dtype for leaf in jax.tree.leaves(s)} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(s.quat[..., 3], 1.0)
    assert sim.data.controls.state is None
    assert sim.data.controls.attitude.staged_cmd.shape == (2, 3, 4)
    assert sim.data.core.steps.shape == sim.time.shape == (2, 1)


@pytest.mark.parametrize("dynamics", ["first_principles", "so_rpy_rotor_drag"])
def test_a_recorded_flight_under_state_control(float64, dynamics):
    file = DATA / f"cf21B_500-{dynamics}-state-euler.npz"
    with np.load(file) as arrays_in_file:
        data = {key: arrays_in_file[key] for key in arrays_in_file.files}
    sim = Sim(n_worlds=4, dynamics=dynamics, control="state")
    fresh = {k: jnp.asarray(data[f"init_{k}"]) for k in ("pos", "quat", "vel", "ang_vel", "rotor_vel")}
    sim.data = sim.data.replace(states=sim.data.states.replace(**fresh))
    for k in range(16):
        sim.state_control(data["cmd"][k])
        sim.step(5)
        if k % 2:
            for key, value in arrays(sim.data.states).items():
                np.testing.assert_allclose(value, data[key][k // 2], atol=1e-9 * max(1, abs(data[key]).max()))


@pytest.mark.parametrize("control", ["rotor_vel", "attitude", "state"])
def test_many_drones_fly_as_few(control):
    """Chunks, whole arrays and stacks of components are the same arithmetic."""
    size = 16 if control == "state" else 4
    rng = np.random.default_rng(1)
    command = {"rotor_vel": 15e3, "attitude": 0.2, "state": 0.5}[control] * rng.uniform(0.8, 1.2, (2100, 1, size))
    few = [0, 1, 1023, 1024, 2047, 2048, 2099]
    flown = []
    for chosen in (slice(None), slice(0, 2100, 7), few):
        sim = Sim(n_worlds=len(command[chosen]), control=control)
        mass = sim.data.params.mass[0] * jnp.asarray(1.0 + command[chosen][..., :1] * 1e-6, jnp.float32)
        sim.data = sim.data.replace(params=sim.data.params.replace(mass=mass))
        getattr(sim, f"{control}_control")(command[chosen])
        sim.step(12)
        flown.append(sim.data)
    everyone, some, handful = flown
    for k in arrays(everyone.states):
        a = getattr(everyone.states, k)
        np.testing.assert_allclose(a[::7], getattr(some.states, k), rtol=2e-5, atol=2e-5, err_msg=k)
        np.testing.assert_allclose(a[np.array(few)], getattr(handful.states, k), rtol=2e-5, atol=2e-5, err_msg=k)
    np.testing.assert_allclose(everyone.controls.rotor_vel[::7], some.controls.rotor_vel, rtol=1e-5)


@pytest.mark.parametrize("dynamics", ["first_principles", "so_rpy_rotor"])
def test_a_stage_of_ones_own_changes_nothing_else(float64, dynamics):
    flown = []
    for place in (None, "integration", "clip_rotor_vel_cmd", "increment_steps"):
        sim = Sim(n_worlds=2, dynamics=dynamics, control="state")
        if place:
            sim.step_pipeline.insert_before(place, lambda data: data, "nothing")
            sim.build_step_fn()
        sim.state_control(0.3 * jnp.ones((2, 1, 16)))
        sim.step(7)
        flown.append(sim.data)
    for other in flown[1:]:
        assert jax.tree.structure(other) == jax.tree.structure(flown[0])
        for a, b in zip(
            jax.tree.leaves(other.replace(core=None)), jax.tree.leaves(flown[0].replace(core=None)), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(other.core.steps, flown[0].core.steps)


def test_stages_are_added_replaced_and_removed():
    sim = Sim(control="rotor_vel")
    sim.step_pipeline.append(lambda data: data.replace(plugins={"count": data.plugins["count"] + 1}), "count")
    sim.data = sim.data.replace(plugins={"count": jnp.int32(0)})
    sim.step_pipeline.remove("clip_floor_pos")
    sim.step_pipeline.replace("clip_rotor_vel_cmd", lambda data: data)
    sim.build_step_fn()
    sim.step(5)
    assert int(sim.data.plugins["count"]) == 5
    # No floor any more: four steps at the speed before each.
    np.testing.assert_allclose(sim.data.states.pos[0, 0, 2], -9.81 * 0.002**2 * 10, rtol=1e-2)
    np.testing.assert_array_equal(sim.data.states.rotor_vel, 0.0)
    # One's own dynamics.
    sim.step_pipeline.replace(
        "integration", lambda data: data.replace(states=data.states.replace(pos=data.states.pos + 1.0))
    )
    sim.build_step_fn()
    before = sim.data.states.pos
    sim.step(2)
    np.testing.assert_allclose(sim.data.states.pos, before + 2.0)
    with pytest.raises(ConfigError, match="there is no stage 'magic'; there are"):
        sim.step_pipeline.insert_after("magic", lambda data: data)
    with pytest.raises(ConfigError, match="there is a stage 'count' already"):
        sim.step_pipeline.prepend(lambda data: data, "count")
    with pytest.raises(ConfigError, match="but a function or a Stage"):
        sim.step_pipeline.append(3, "three")


def test_controllers_run_together():
    sim = Sim(control="attitude")
    sim.step_pipeline.insert_after("attitude_controller", lambda data: data, "between")
    with pytest.raises(ConfigError, match="run together"):
        sim.build_step_fn()


def test_a_command_waits_for_its_tick():
    sim = Sim(control="state", n_worlds=2)
    first, second = 0.1 * jnp.ones((2, 1, 16)), 0.2 * jnp.ones((2, 1, 16))
    sim.state_control(first)
    sim.step(1)
    sim.state_control(second)
    sim.step(4)
    np.testing.assert_array_equal(sim.data.controls.state.cmd, first)
    np.testing.assert_array_equal(sim.controllable, True)
    sim.step(1)
    np.testing.assert_array_equal(sim.data.controls.state.cmd, second)
    np.testing.assert_array_equal(sim.data.controls.state.steps, 5)
    np.testing.assert_array_equal(sim.controllable, False)
    sim.reset(np.array([False, True]))
    np.testing.assert_array_equal(sim.data.core.steps, [[6], [0]])
    np.testing.assert_array_equal(sim.controllable, [[False], [True]])


def test_commands_and_places_are_clipped():
    sim = Sim(control="rotor_vel", n_worlds=2)
    sim.rotor_vel_control(jnp.asarray([[[1e6] * 4], [[0.0] * 4]]))
    sim.step(1)
    low, high = float(sim.data.controls.rotor_vel[1, 0, 0]), float(sim.data.controls.rotor_vel[0, 0, 0])
    c = sim.data.params.rpm2thrust[0]
    np.testing.assert_allclose([c[0] + n * (c[1] + n * c[2]) for n in (low, high)], [0.0213626, 0.2], rtol=1e-4)
    sim.step(100)
    assert float(sim.data.states.pos[1, 0, 2]) == np.float32(effects.FLOOR_Z)
    assert float(sim.data.states.pos[0, 0, 2]) > 0.0


def test_reset_of_some_worlds_and_of_all():
    sim = Sim(n_worlds=3, control="attitude")
    sim.seed(7)
    key = sim.data.core.rng_key
    sim.attitude_control(hovering(sim, (3, 1)))
    sim.step(20)
    flown = sim.data
    sim.reset(jnp.array([True, False, True]))
    assert_same(
        jax.tree.map(lambda v: v[1], sim.data.states), jax.tree.map(lambda v: v[1], flown.states), rtol=0, atol=0
    )
    for world in (0, 2):
        assert float(abs(sim.data.states.ang_vel[world]).max()) == 0.0
        assert float(abs(sim.data.controls.attitude.r_int_error[world]).max()) == 0.0
    np.testing.assert_array_equal(sim.data.core.steps, [[0], [20], [0]])
    sim.reset()
    assert_same(sim.data.states, sim.default_data.states, rtol=0, atol=0)
    np.testing.assert_array_equal(sim.data.controls.attitude.staged_cmd, 0.0)
    assert jnp.all(jax.random.key_data(sim.data.core.rng_key) == jax.random.key_data(key))


def test_what_was_read_stays_what_it_was():
    sim = Sim()
    before, states = sim.data, arrays(sim.data.states)
    sim.attitude_control(hovering(sim, (1, 1)))
    sim.step(10)
    for key, value in states.items():
        np.testing.assert_array_equal(getattr(before.states, key), value)
    assert sim.data.params.mass is before.params.mass


@pytest.mark.parametrize("fault", ["state", "parameter", "command"])
def test_nan_stays_in_its_world(fault):
    sim = Sim(n_worlds=3, n_drones=2)
    command = np.array(hovering(sim, (3, 2)))
    if fault == "command":
        command[1, 1, 0] = np.nan
    sim.attitude_control(command)
    if fault == "state":
        sim.data = sim.data.replace(states=sim.data.states.replace(vel=sim.data.states.vel.at[1, 1, 0].set(jnp.nan)))
    if fault == "parameter":
        force = sim.data.states.force.at[1, 0, 2].set(jnp.inf)
        sim.data = sim.data.replace(states=sim.data.states.replace(force=force))
    sim.step(5)
    np.testing.assert_array_equal(sim.data.finite, [[True], [False], [True]])
    clean = Sim(n_worlds=3, n_drones=2)
    clean.attitude_control(hovering(sim, (3, 2)))
    clean.step(5)
    for world in (0, 2):
        pick = lambda data: jax.tree.map(lambda v: v[world], data.states)  # noqa: B023, E731
        assert_same(pick(sim.data), pick(clean.data), rtol=1e-6, atol=1e-9)
    sim.reset(jnp.array([False, True, False]))
    sim.attitude_control(hovering(sim, (3, 2)))
    sim.step(1)
    assert bool(sim.data.finite.all())


def test_effects_act_in_worlds_of_their_own():
    sim = Sim(n_worlds=2, n_drones=2, control="rotor_vel")
    pos = jnp.array([[[0.0, 0.0, 2.0], [0.0, 0.0, 1.4]], [[0.0, 0.0, 2.0], [5.0, 0.0, 1.4]]])
    rotors = jnp.full((2, 2, 4), 16e3)
    sim.data = sim.data.replace(states=sim.data.states.replace(pos=pos, rotor_vel=rotors))
    sim.add_effect(effects.downwash)
    sim.add_effect(effects.wind, jnp.zeros((2, 2, 3)).at[1, 0, 0].set(3.0))
    sim.rotor_vel_control(rotors)
    sim.step(10)
    vel = sim.data.states.vel
    assert float(vel[0, 1, 2]) < float(vel[0, 0, 2]) - 0.03
    np.testing.assert_allclose(vel[1, 1], vel[0, 0], atol=1e-5)
    np.testing.assert_allclose(vel[1, 0, 0], 3.0 * 0.0216 / 0.0434 * 0.02, rtol=0.03)
    np.testing.assert_allclose(vel[0, :, :2], 0.0, atol=1e-6)


def test_memories_of_effects_move_and_reset():
    sim = Sim(n_worlds=2, control="rotor_vel")
    sim.add_effect(effects.gusts)
    sim.add_effect(effects.motor_delay(3))
    sim.add_effect(effects.battery)
    start = sim.data.memory
    air = np.stack(start["gusts"]["air"])
    assert len(np.unique(air)) == 6
    sim.rotor_vel_control(jnp.full((2, 1, 4), 15e3))
    sim.step(3)
    np.testing.assert_array_equal(sim.data.states.rotor_vel, 0.0)
    sim.step(3)
    assert float(sim.data.states.rotor_vel.min()) > 300.0
    assert not np.array_equal(np.stack(sim.data.memory["gusts"]["air"]), air)
    assert float(sim.data.memory["battery"]["used_C"].min()) > 0.0
    sim.reset(np.array([True, False]))
    used = sim.data.memory["battery"]["used_C"]
    assert float(used[0, 0]) == 0.0 < float(used[1, 0])
    np.testing.assert_array_equal(np.stack(sim.data.memory["gusts"]["air"])[:, 0], air[:, 0])
    sim.step_pipeline.remove("gusts")
    sim.build_step_fn()
    assert set(sim.data.memory) == set(sim.data.effects) | {"motor_delay"} == {"motor_delay", "battery"}


def test_gravity_may_point_anywhere():
    sim = Sim(control="rotor_vel")
    gravity = jnp.array([1.0, -2.0, -3.0])
    pos = sim.data.states.pos.at[..., 2].set(5.0)
    states = sim.data.states.replace(pos=pos)
    sim.data = sim.data.replace(params=sim.data.params.replace(gravity_vec=gravity), states=states)
    sim.step(1)
    np.testing.assert_allclose(sim.data.states.vel[0, 0], 0.002 * gravity, rtol=1e-5)


def test_gradients_are_finite_through_the_pure_step():
    sim = Sim(control="attitude", n_worlds=2)
    step = sim.build_step_fn()

    def cost(command, data):
        data = step(functional.attitude_control(data, command), 10)
        return sum((v**2).sum() for v in arrays_of(data.states))

    def arrays_of(states):
        return (states.pos, states.vel, states.ang_vel, states.quat[..., :3])

    # At rest with the motors off, and far beyond what they can do.
    for command in (jnp.zeros((2, 1, 4)), jnp.full((2, 1, 4), 50.0)):
        assert bool(jnp.isfinite(jax.grad(cost)(command, sim.data)).all())
    sim.data = sim.data.replace(states=sim.data.states.replace(pos=sim.data.states.pos + 1.0))
    assert float(abs(jax.grad(cost)(hovering(sim, (2, 1)), sim.data)).min()) > 0.0


def test_every_memory_of_the_cascade_is_shown():
    """What a cascade keeps stands in data between calls, so that a flight in parts is the flight in one."""
    for control, rates in (("attitude", {"attitude_freq": 250}), ("body_rate", {"force_torque_freq": 250})):
        sim = [Sim(control=control, **rates) for _ in range(2)]
        for s in sim:
            getattr(s, f"{control}_control")(hovering(s, (1, 1)))
        for _ in range(6):
            sim[0].step(1)
        sim[1].step(6)
        assert_same(sim[0].data.states, sim[1].data.states, rtol=1e-5, atol=1e-6)
    assert layout.RECORD not in sim[0].data.memory


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"n_worlds": 0}, "n_worlds is 0, but it must be a positive whole number"),
        ({"n_drones": 1.5}, "n_drones is 1.5"),
        ({"drone": "cf3"}, "drone is 'cf3', but it must be one of cf21B_500"),
        ({"dynamics": "magic"}, "dynamics is 'magic', but it must be one of first_principles"),
        ({"control": "thought"}, "control is 'thought', but it must be one of state"),
        ({"integrator": "leapfrog"}, "integrator is 'leapfrog', but it must be one of euler"),
        ({"dynamics": "so_rpy", "control": "rotor_vel"}, "control is 'rotor_vel', but dynamics 'so_rpy' has no rotors"),
        ({"drone": "hb_x500"}, "drone 'hb_x500' has only the so_rpy family"),
        ({"freq": 500, "attitude_freq": 300}, "attitude_freq is 300 Hz, which does not divide the 500 Hz"),
        ({"freq": 500, "attitude_freq": 1000}, "attitude_freq is 1000 Hz, which does not divide the 500 Hz"),
        ({"control": "state", "state_freq": 0}, "state_freq is 0, but it must be a positive number"),
        ({"freq": 20_000}, "freq is 20000 Hz, where increments vanish in 32 bits"),
        ({"device": "abacus"}, "device is 'abacus', but JAX has cpu here"),
        ({"drone": {"mass": 1.0}, "control": "rotor_vel"}, "drone lacks"),
        ({"drone": {"mass": 1.0}}, "drone has no entry 'onboard'"),
    ],
)
def test_wrong_simulations_are_refused(wrong, text):
    with pytest.raises(ConfigError, match=text):
        Sim(**wrong)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"mass": jnp.array([-0.1])}, r"params.mass is \[-0.1\], but it must be positive"),
        ({"mass": jnp.array([[[0.1]], [[jnp.nan]]])}, "params.mass is .*, but it must be finite"),
        ({"J": jnp.diag(jnp.array([1e-5, 1e-5, 0.0]))}, "params.J is .*, but it must have positive moments"),
        ({"J": jnp.eye(3).at[0, 1].set(0.5)}, "params.J is .*, but it must be symmetric"),
        ({"rotor_dyn_coef": -jnp.ones((1, 4))}, "params.rotor_dyn_coef is .*, but it must not be negative"),
        ({"rpm2thrust": jnp.zeros((1, 3))}, "params.rpm2thrust is .*, but it must have a positive quadratic term"),
    ],
)
def test_unphysical_parameters_are_refused(change, text):
    sim = Sim(n_worlds=2)
    before = sim.data
    with pytest.raises(ConfigError, match=text):
        sim.data = sim.data.replace(params=sim.data.params.replace(**change))
    assert sim.data is before


def test_wrong_shapes_are_refused():
    sim = Sim(n_worlds=2, n_drones=3)
    with pytest.raises(ShapeError, match=r"attitude commands have shape \(2, 4\), but \(2, 3, 4\) is expected"):
        sim.attitude_control(jnp.zeros((2, 4)))
    with pytest.raises(ConfigError, match="state_control was called, but control is 'attitude'"):
        sim.state_control(jnp.zeros((2, 3, 16)))
    with pytest.raises(ShapeError, match=r"mask has shape \(3,\), but \(2,\) is expected"):
        sim.reset(np.ones(3, bool))
    with pytest.raises(ConfigError, match="n_steps is 0"):
        sim.step(0)
    with pytest.raises(ShapeError, match=r"params.mass has shape \(\), but \(..., 1\) is expected"):
        sim.data = sim.data.replace(params=sim.data.params.replace(mass=jnp.float32(0.1)))
