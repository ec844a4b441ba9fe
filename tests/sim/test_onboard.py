"""The onboard cascade: levels one by one and together, rates and staging, gradients, refusals."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from sim import drones, onboard, pipeline
from sim.errors import ConfigError, ShapeError
from sim.state import Rotors, resting

GAINS = drones.gains("cf21B_500", np.float64)
LEVELS = {
    "state": [0.5, -0.3, 1.2, 0, 0, 0, 0, 0, 0, 0, 0, 0.3826834, 0.9238795, 0.1, -0.2, 0.3],
    "attitude": [0.1, -0.2, 0.4, 0.45],
    "body_rate": [0.5, -0.3, 0.2, 0.45],
    "force_torque": [0.45, 1e-4, -2e-4, 5e-5],
    "rotor_vel": [15.1e3, 15.5e3, 14.8e3, 15.2e3],
}
PAIRS = [("first_principles", level) for level in LEVELS] + [
    (model, level) for model in ("so_rpy", "so_rpy_rotor", "so_rpy_rotor_drag") for level in ("state", "attitude")
]


def tilted(rotor_rpm=15e3):
    quat = Rotation.from_euler("xyz", [0.3, -0.2, 0.7]).as_quat()
    state = resting((0.1, 0.2, 1.0), rotor_rpm=rotor_rpm)
    return replace(
        state, quat=jnp.asarray(quat), vel=jnp.array([0.4, -0.2, 0.1]) + 0.0, ang_vel=jnp.array([0.5, -1.0, 0.3]) + 0.0
    )


def params_of(dynamics, dtype=None):
    return drones.load("cf21B_500", dtype, dynamics=dynamics, onboard=True)


def rest_of(dynamics, pos=(0.0, 0.0, 1.0)):
    return resting(pos, rotor_rpm=15e3 if dynamics == "first_principles" else 0.42)


@pytest.mark.parametrize("level", ["state", "attitude", "body_rate"])
def test_levels_one_by_one_are_the_cascade(float64, level):
    params, state, command = params_of("first_principles"), tilted(), jnp.asarray(LEVELS[level])
    step = pipeline.build_step(control=level, state_freq=500)
    memory, own, outer = step.memory(params), onboard.AttitudeMemory.start(), onboard.StateMemory.start()
    for _ in range(7):
        rates, lower = None, command
        if level == "state":
            outer, lower = onboard.state2attitude(GAINS, outer, state, command, dt=1 / 500)
            rates = command[13:16]
        if level == "body_rate":
            own, lower = onboard.body_rate2force_torque(GAINS, own, state, lower)
        else:
            own, lower = onboard.attitude2force_torque(GAINS, own, state, lower, rates=rates)
        alone = pipeline.build_step()(params, state, onboard.force_torque2rotor_vel(GAINS, lower))
        memory, state, _ = pipeline.fly(step, params, memory, state, command[None])
        np.testing.assert_allclose(state.rotor_rpm, alone.rotor_rpm, rtol=1e-12)
        np.testing.assert_allclose(state.ang_vel, alone.ang_vel, atol=1e-12)
    assert int(memory.step) == 7


def test_the_attitude_level_wants_what_scipy_says(float64):
    # Below every limit the torque is proportional to vee(Rd^T R - R^T Rd), the integral and its derivative left out.
    gains = replace(GAINS, att_kd=jnp.zeros(3), att_ki=jnp.zeros(3), rate_kd=jnp.zeros(3), att_kp=jnp.full(3, 1e3))
    state = replace(tilted(), ang_vel=jnp.zeros(3))
    wanted = [0.1, -0.2, 0.4]
    _, lower = onboard.attitude2force_torque(gains, onboard.AttitudeMemory.start(), state, jnp.array([*wanted, 0.4]))
    R, Rd = (r.as_matrix() for r in (Rotation.from_quat(np.asarray(state.quat)), Rotation.from_euler("xyz", wanted)))
    E = Rd.T @ R - R.T @ Rd
    error = np.array([E[2, 1], E[0, 2], E[1, 0]])
    newton = float(gains.thrust_max / gains.pwm_max)
    arms = np.array([2.0 * gains.arm_length, 2.0 * gains.arm_length, 4.0 * gains.thrust2torque])
    np.testing.assert_allclose(lower[1:], -1e3 * newton * error * arms, rtol=1e-9)
    assert float(lower[0]) == pytest.approx(0.4, rel=1e-12)


def test_the_position_level_at_its_goal_holds_the_drone(float64):
    state, command = resting((0.0, 0.0, 1.0)), jnp.zeros(16).at[2].set(1.0).at[12].set(1.0)
    memory, lower = onboard.state2attitude(GAINS, onboard.StateMemory.start(), state, command)
    np.testing.assert_allclose(lower[:3], 0.0, atol=1e-12)
    scale = float(GAINS.mass_thrust / GAINS.pwm_max * 4.0 * GAINS.thrust_max)
    assert float(lower[3]) == pytest.approx(float(GAINS.mass) * 9.81 * scale)
    np.testing.assert_array_equal(memory.pos_err_i, 0.0)


@pytest.mark.parametrize("wanted", [[0.0, 0.0, -20.0], [0.0, 8.0, -9.81], [3.0, 0.0, -30.0]])
def test_the_position_level_points_thrust_where_it_is_needed(float64, wanted):
    # Also downwards, where the half angle of the roll passes a quarter turn.
    command = jnp.zeros(16).at[6:9].set(jnp.asarray(wanted)).at[11].set(np.sin(0.3)).at[12].set(np.cos(0.3))
    _, lower = onboard.state2attitude(GAINS, onboard.StateMemory.start(), resting(), command)
    force = np.asarray(wanted) + [0.0, 0.0, 9.81]
    axis = Rotation.from_euler("xyz", np.asarray(lower[:3])).as_matrix()[:, 2]
    np.testing.assert_allclose(axis, force / np.linalg.norm(force), atol=1e-9)


def test_zero_thrust_is_off_and_nothing_exceeds_the_motors(float64):
    state = tilted()
    for force, bounds in ((0.0, (0.0, 0.0)), (0.4, (0.0213, 0.2)), (9.0, (0.0213, 0.2)), (-1.0, (0.0213, 0.0215))):
        _, lower = onboard.attitude2force_torque(
            GAINS, onboard.AttitudeMemory.start(), state, jnp.array([1.0, -1.0, 2.0, force])
        )
        rpm = np.asarray(onboard.force_torque2rotor_vel(GAINS, lower))
        c = np.asarray(GAINS.rpm2thrust)
        thrust = c[0] + rpm * (c[1] + rpm * c[2])
        assert thrust.min() >= bounds[0] - 1e-9
        assert thrust.max() <= bounds[1] + 1e-9


@pytest.mark.parametrize(("dynamics", "level"), PAIRS)
def test_a_command_waits_for_the_tick(float64, dynamics, level):
    # At a fifth of the rate, a command set between ticks must not matter; the one that stands at the tick must.
    if level == "rotor_vel":
        pytest.skip("taken over at every step")
    params, state = params_of(dynamics), rest_of(dynamics)
    step = pipeline.build_step(dynamics=dynamics, control=level, **{f"{level}_freq": 100})
    command = jnp.asarray(LEVELS[level])
    other = command.at[-1].add(0.1) if level != "state" else command.at[2].add(0.3)
    steady = jnp.tile(command, (10, 1))
    between = steady.at[1:5].set(other)
    late = steady.at[5:].set(other)
    flown = [pipeline.rollout(step, params, state, u) for u in (steady, between, late)]
    for a, b in zip(*(jax.tree.leaves(f) for f in flown[:2]), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(flown[0].pos[:5], flown[2].pos[:5])
    assert any(bool(jnp.any(a != b)) for a, b in zip(*(jax.tree.leaves(f) for f in (flown[0], flown[2])), strict=True))


@pytest.mark.parametrize(("dynamics", "level"), [("first_principles", "state"), ("so_rpy_rotor", "state")])
def test_drones_may_have_clocks_of_their_own(float64, dynamics, level):
    params = params_of(dynamics)
    step = pipeline.build_step(dynamics=dynamics, control=level, attitude_freq=250)
    command = jnp.asarray(LEVELS[level])
    state = rest_of(dynamics)
    memory, later, _ = pipeline.fly(step, params, step.memory(params), state, jnp.tile(command, (3, 1)))

    def both(a, b):
        return jax.tree.map(lambda v, w: jnp.stack([jnp.asarray(v), jnp.asarray(w)]), a, b)

    u = jnp.tile(command.at[2].add(0.4), (6, 1))
    _, together, _ = pipeline.fly(
        step, params, both(memory, step.memory(params)), both(later, state), jnp.tile(u[:, None], (1, 2, 1))
    )
    for i, (m, s) in enumerate(((memory, later), (step.memory(params), state))):
        _, alone, _ = pipeline.fly(step, params, m, s, u)
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(a[i], b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("dynamics", "level"), PAIRS)
def test_a_flight_in_two_parts_is_one_flight(float64, dynamics, level):
    params, state = params_of(dynamics), rest_of(dynamics)
    step = pipeline.build_step(dynamics=dynamics, control=level, force_torque_freq=250, limits=True)
    u = jnp.tile(jnp.asarray(LEVELS[level]), (14, 1))
    whole = pipeline.rollout(step, params, state, u)
    memory, half, _ = pipeline.fly(step, params, step.memory(params), state, u[:7], record=False)
    _, end, _ = pipeline.fly(step, params, memory, half, u[7:])
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(end), strict=True):
        np.testing.assert_allclose(a[-1], b, rtol=1e-13, atol=1e-13)


def starts(dynamics, level):
    level_state, command = rest_of(dynamics), jnp.asarray(LEVELS[level])
    hover = command if level != "attitude" else jnp.array([0.0, 0.0, 0.0, 0.42])
    turn = jnp.array([1.0, 0.0, 0.0, 0.0])
    return {
        "rest": (resting((0.0, 0.0, 1.0)), jnp.zeros_like(command)),
        "hover": (level_state, hover),
        "inverted": (replace(level_state, quat=turn), hover),
        "saturated": (level_state, 100.0 * command),
        "upright pitch": (replace(level_state, quat=jnp.array([0.0, 0.5**0.5, 0.0, 0.5**0.5])), hover),
        "spinning": (replace(level_state, ang_vel=jnp.array([30.0, -25.0, 10.0])), hover),
    }


@pytest.mark.parametrize("start", ["rest", "hover", "inverted", "saturated", "upright pitch", "spinning"])
@pytest.mark.parametrize(("dynamics", "level"), PAIRS)
def test_gradients_are_finite(dynamics, level, start):
    state, command = starts(dynamics, level)[start]
    step = pipeline.build_step(dynamics=dynamics, control=level, limits=True)

    def cost(params, state, u):
        last = pipeline.rollout(step, params, state, u, every=2)
        return sum(jnp.sum(jnp.square(getattr(last, k))) for k in ("pos", "quat", "vel", "ang_vel"))

    grads = jax.grad(cost, argnums=(0, 1, 2))(params_of(dynamics), state, jnp.tile(command, (4, 1)))
    leaves = jax.tree.leaves(grads)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in leaves)
    assert any(float(jnp.max(jnp.abs(leaf))) > 0.0 for leaf in leaves)


@pytest.mark.parametrize(("dynamics", "level"), PAIRS)
def test_gradients_are_those_of_finite_differences(float64, dynamics, level):
    step = pipeline.build_step(dynamics=dynamics, control=level)
    params, state, command = params_of(dynamics), rest_of(dynamics), jnp.asarray(LEVELS[level])
    state = replace(state, quat=tilted().quat, ang_vel=jnp.array([0.5, -1.0, 0.3]) + 0.0)

    def cost(scale):
        changed = replace(params, mass=params.mass * scale)
        last = pipeline.rollout(step, changed, state, jnp.tile(command * scale, (20, 1)))
        return jnp.sum(last.pos[-1]) + jnp.sum(last.ang_vel[-1]) + jnp.sum(last.quat[-1])

    h = 1e-6
    slope = (cost(1.0 + h) - cost(1.0 - h)) / (2.0 * h)
    assert float(jax.grad(cost)(1.0)) == pytest.approx(float(slope), rel=1e-5)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"control": "thought"}, "unknown control 'thought'; known are state, attitude, body_rate"),
        (
            {"dynamics": "so_rpy", "control": "rotor_vel"},
            "control 'rotor_vel' works on rotors, which dynamics 'so_rpy'",
        ),
        ({"dynamics": "so_rpy_rotor", "control": "body_rate"}, "use 'state' or 'attitude'"),
        (
            {"control": "state", "state_freq": 300},
            "state_freq is 300 Hz, which does not divide the 500 Hz of the steps",
        ),
        ({"control": "attitude", "attitude_freq": 1000}, "attitude_freq is 1000 Hz, which does not divide"),
        ({"control": "attitude", "attitude_freq": 0}, "attitude_freq is 0, but it must be a positive number of Hz"),
        ({"control": "force_torque", "force_torque_freq": float("nan")}, "force_torque_freq is nan"),
        ({"freq": -1}, "freq is -1 Hz"),
        ({"freq": 500, "dt": 0.002}, "only one of them"),
    ],
)
def test_wrong_builds_are_refused(wrong, text):
    with pytest.raises(ConfigError, match=text):
        pipeline.build_step(**wrong)


def test_what_a_level_needs_is_said():
    step = pipeline.build_step(control="attitude")
    bare = drones.load("cf21B_500")
    with pytest.raises(ConfigError, match=r"control 'attitude' needs gains, but params\.onboard is None"):
        pipeline.rollout(step, bare, resting(), jnp.zeros((1, 4)))
    with pytest.raises(ConfigError, match=r"has a memory, but a call takes none; use sim\.pipeline\.fly"):
        step(params_of("first_principles"), resting(), jnp.zeros(4))
    with pytest.raises(ShapeError, match=r"state commands have shape \(1, 4\), but \(\.\.\., 16\) is expected"):
        pipeline.rollout(
            pipeline.build_step(control="state"), params_of("first_principles"), resting(), jnp.zeros((1, 4))
        )
    with pytest.raises(ShapeError, match=r"command has shape \(3,\), but \(\.\.\., 16\)"):
        onboard.state2attitude(GAINS, onboard.StateMemory.start(), resting(), jnp.zeros(3))


def test_a_wrench_must_fit():
    step, params, state = pipeline.build_step(), drones.load("cf21B_500"), resting(jnp.zeros((3, 3)))
    args = (step, params, step.memory(params, (3,)), state, jnp.zeros((2, 4)))
    with pytest.raises(
        ShapeError, match=r"wrench torque has shape \(2, 3\), but \(3,\) or \(\*\(3,\), 3\) is expected"
    ):
        pipeline.fly(*args, wrench=(jnp.zeros(3), jnp.zeros((2, 3))))


@pytest.mark.parametrize("dynamics", pipeline.DYNAMICS)
def test_a_wrench_pushes_and_turns_in_the_world_frame(float64, dynamics):
    params, state = params_of(dynamics), replace(rest_of(dynamics), quat=tilted().quat)
    step = pipeline.build_step(dynamics=dynamics)
    u = jnp.asarray(LEVELS["rotor_vel" if dynamics == "first_principles" else "attitude"])[None]
    force, torque = jnp.array([0.01, -0.02, 0.03]), jnp.array([1e-5, 2e-5, -3e-5])
    ends = [
        pipeline.fly(step, params, step.memory(params), state, u, wrench=wrench)[1]
        for wrench in (None, (force, torque))
    ]
    np.testing.assert_allclose((ends[1].vel - ends[0].vel) * params.mass * 500, force, rtol=1e-9)
    body = Rotation.from_quat(np.asarray(state.quat)).inv().apply(np.array(torque))
    np.testing.assert_allclose(params.inertia @ (ends[1].ang_vel - ends[0].ang_vel) * 500, body, rtol=1e-9)


def test_rotors_of_their_own_do_what_shared_ones_do(float64):
    params, state = drones.load("cf21B_500"), tilted()
    step, u = pipeline.build_step(), jnp.asarray([[15e3, 16e3, 14e3, 15e3]])

    def each(v, *axes):
        return jnp.tile(jnp.asarray(v), (4, *axes))

    same = Rotors(
        each(params.arm_length), each(params.prop_inertia), each(params.rpm2thrust, 1), each(params.rpm2torque, 1),
        each(params.rotor_coef, 1),
    )  # fmt: skip
    a, b = (pipeline.rollout(step, p, state, u, every=9) for p in (params, replace(params, rotors=same)))
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-14)
    weak = replace(same, rpm2thrust=same.rpm2thrust.at[0].multiply(0.8))
    rolled = pipeline.rollout(step, replace(params, rotors=weak), state, u, every=9)
    assert float(rolled.ang_vel[0, 0]) > float(a.ang_vel[0, 0])  # front right is weak: it rolls to the right
