"""Free flight: the model against the exact one, the filter's errors against its covariance, the idle thrust."""

import math

import numpy as np
import pytest

from station import airframe, ballistic, quaternion
from station.airframe import GRAVITY
from tests.station import motions

FRAME = airframe.load("cf21B_500")
STATE = ((0.1, -0.2, 1.5), quaternion.exp((0.3, -0.4, 1.0)), (0.5, -0.3, 3.0), (3.0, -3.5, 2.0))


def free(damping=0.0, **changes):
    state = ballistic.init(FRAME, 0.0, *STATE, 0.0003, 0.0035)
    return state._replace(damping=damping, **changes)


@pytest.mark.parametrize("damping", [0.0, 0.7])
def test_model_is_the_exact_one_to_a_millimetre(damping):
    plant = (np.array([[FRAME.mass]]), np.array([FRAME.inertia]), np.array([FRAME.drag]), np.array([[damping]]))
    exact = motions.fly(tuple(np.array([x]) for x in STATE), plant, 0.3, dt=0.0005)
    ours = ballistic.predict_to(free(damping), FRAME, 0.3)
    assert math.dist(ours.pos, exact[0][0, -1]) < 1e-3
    assert math.dist(ours.vel, exact[2][0, -1]) < 1e-3
    assert motions.angle_between(ours.quat, exact[1][0, -1]) < math.radians(0.2)
    assert math.dist(ours.ang_vel, exact[3][0, -1]) < 0.02


def test_energy_and_angular_momentum_of_an_undamped_body_are_kept():
    at = ballistic.predict_to(free(drag_scale=0.0), FRAME, 0.4)
    height = at.pos[2] - STATE[0][2]
    before, after = (0.5 * sum(v * v for v in vel) for vel in (STATE[2], at.vel))
    assert abs(after + GRAVITY * height - before) < 1e-3
    spin = [
        motions.to_world(np.array(q), np.array(w) * np.array(FRAME.inertia))
        for q, w in ((STATE[1], STATE[3]), (at.quat, at.ang_vel))
    ]
    np.testing.assert_allclose(spin[1], spin[0], atol=0.01 * np.linalg.norm(spin[0]))


def test_covariance_is_that_of_scattered_states():
    """Propagated covariance against 300 propagated samples, damping and drag among what is scattered."""
    rng = np.random.default_rng(0)
    std = np.array([1e-3] * 3 + [0.01] * 3 + [0.02] * 3 + [0.1] * 3 + [0.2, 0.07])
    start = free(0.6, cov=np.diag(std**2))
    at = ballistic.predict_to(start, FRAME, 0.2)
    ends = []
    for d in rng.standard_normal((300, 14)) * std:
        moved = start._replace(
            pos=tuple(np.add(start.pos, d[:3])),
            quat=quaternion.multiply(start.quat, quaternion.exp(tuple(d[3:6]))),
            vel=tuple(np.add(start.vel, d[6:9])),
            ang_vel=tuple(np.add(start.ang_vel, d[9:12])),
            damping=start.damping + d[12],
            drag_scale=1.0 + d[13],
        )
        end = ballistic.predict_to(moved, FRAME, 0.2)
        turn = quaternion.difference(at.quat, end.quat)
        ends.append([*np.subtract(end.pos, at.pos), *turn, *np.subtract(end.vel, at.vel), *end.ang_vel])
    sampled = np.std(ends, axis=0)
    np.testing.assert_allclose(np.sqrt(np.diagonal(at.cov)), sampled, rtol=0.2)


def test_filter_errors_are_what_it_says():
    """40 throws, each filtered for 150 ms: normalised errors near their 12 dimensions, damping and drag unknown."""
    throws = motions.throws(40, 3)
    first = int(np.argmax(throws.t > 0.0))
    rng = np.random.default_rng(4)
    nees = []
    for k in range(40):
        state = None
        for i in range(first, first + 30):
            pos = tuple((throws.pos[k, i] + 0.0003 * rng.standard_normal(3)).tolist())
            turn = motions.exp(0.0035 * rng.standard_normal(3))
            quat = tuple(motions.multiply(throws.quat[k, i], turn).tolist())
            if state is None:
                state = ballistic.init(FRAME, throws.t[i], pos, quat, (0.0, 0.0, 3.0), (0.0, 0.0, 0.0), 0.0003, 0.0035)
            else:
                state, chi = ballistic.step(state, FRAME, throws.t[i], pos, quat, 0.0003, 0.0035)
                assert chi < ballistic.GATE
        true = [column[k, i] for column in (throws.pos, throws.quat, throws.vel, throws.ang_vel)]
        error = np.concatenate(
            [
                true[0] - state.pos,
                quaternion.difference(state.quat, tuple(true[1])),
                true[2] - state.vel,
                true[3] - state.ang_vel,
            ]
        )
        nees.append(error @ np.linalg.solve(state.cov[:12, :12], error))
    assert 6.0 < np.mean(nees) < 16.0


def test_idle_rotors_slow_the_fall_from_when_they_turn():
    still = ballistic.predict_to(free(), FRAME, 0.3)
    level = free()._replace(quat=quaternion.IDENTITY, ang_vel=(0.0, 0.0, 0.0))
    later = ballistic.predict_to(level._replace(t_idle=0.5), FRAME, 0.3)
    idling = ballistic.predict_to(level._replace(t_idle=0.1), FRAME, 0.3)
    assert abs(later.vel[2] - still.vel[2]) < 0.1
    assert 0.1 < idling.vel[2] - later.vel[2] < 0.2 * 4 * FRAME.thrust_min / FRAME.mass
    assert idling.cov[8, 8] > later.cov[8, 8]


def test_frames_off_the_parabola_are_counted_and_left_out():
    state = free()
    for i in range(1, 6):
        at = ballistic.predict_to(state, FRAME, 0.005 * i)
        state, _ = ballistic.step(state, FRAME, 0.005 * i, at.pos, at.quat, 0.0003, 0.0035)
    off = tuple(np.add(state.pos, (0.3, 0.0, 0.0)))
    after, chi = ballistic.step(state, FRAME, state.t + 0.005, off, state.quat, 0.0003, 0.0035)
    assert chi > ballistic.GATE and after.misses == 1
    assert math.dist(after.pos, ballistic.predict_to(state, FRAME, after.t).pos) == 0.0
