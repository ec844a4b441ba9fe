"""The pose gate refuses what no drone may be told; the ladders rise in the order of the design."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from station import safety
from station.config import Space
from station.safety import Action

LEVEL = (0.0, 0.0, 0.0, 1.0)
numbers = st.floats(-2.0, 2.0)


def test_a_good_pose_passes():
    assert safety.refuse_pose((0.0, 1.0, 1.5), LEVEL, (1.0, 0.0, -3.0), Space()) == ""


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("index", range(10))
def test_not_finite_is_refused_wherever_it_stands(bad, index):
    values = [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    values[index] = bad
    assert safety.refuse_pose(tuple(values[:3]), tuple(values[3:7]), tuple(values[7:]), Space()) == "not finite"


@pytest.mark.parametrize(
    ("pos", "quat", "vel", "word"),
    [
        ((0.0, 0.0, 1.0), (0.0, 0.0, 0.0, 0.9), (0.0, 0.0, 0.0), "norm"),
        ((0.0, 0.0, 1500.0), LEVEL, (0.0, 0.0, 0.0), "space"),
        ((9.0, 0.0, 1.0), LEVEL, (0.0, 0.0, 0.0), "x = 9.00"),
        ((0.0, 0.0, 1.0), LEVEL, (0.0, 0.0, -40.0), "speed"),
    ],
)
def test_impossible_poses_are_refused_by_name(pos, quat, vel, word):
    assert word in safety.refuse_pose(pos, quat, vel, Space())


@given(st.tuples(numbers, numbers, numbers), st.tuples(numbers, numbers, numbers), st.floats(0.0, 0.05))
def test_ahead_keeps_the_quaternion_unit_and_moves_along_the_velocity(vel, rate, dt):
    pos, quat = safety.ahead((1.0, 2.0, 3.0), LEVEL, vel, rate, dt)
    assert math.hypot(*quat) == pytest.approx(1.0, abs=1e-9)
    assert pos == pytest.approx((1.0 + vel[0] * dt, 2.0 + vel[1] * dt, 3.0 + vel[2] * dt))
    assert 2.0 * math.acos(min(1.0, quat[3])) == pytest.approx(math.hypot(*rate) * dt, abs=1e-6)


def test_ahead_turns_about_the_body_axis():
    """A quarter turn about body x of a drone yawed by 90 degrees is a quarter turn about world y."""
    yawed = (0.0, 0.0, math.sqrt(0.5), math.sqrt(0.5))
    _, quat = safety.ahead((0.0, 0.0, 0.0), yawed, (0.0, 0.0, 0.0), (math.pi / 2, 0.0, 0.0), 1.0)
    assert quat == pytest.approx((0.5, 0.5, 0.5, 0.5))


@pytest.mark.parametrize(
    ("age", "action"),
    [(0.01, Action.NONE), (0.06, Action.WARN), (0.2, Action.HOLD), (0.6, Action.LAND), (2.0, Action.LAND)],
)
def test_pose_ladder(age, action):
    assert safety.pose_action(age, 0.005, 1.5, True) is action


@pytest.mark.parametrize(("height", "inside"), [(0.3, True), (1.5, False)])
def test_kill_only_low_or_outside(height, inside):
    assert safety.pose_action(2.0, 0.005, height, inside) is Action.KILL


def test_a_slow_source_is_not_stale_by_nature():
    assert safety.pose_action(0.25, 0.1, 1.5, True) is Action.NONE
    assert safety.pose_action(0.31, 0.1, 1.5, True) is Action.HOLD


@given(st.floats(0.0, 10.0), st.floats(0.0, 10.0))
def test_ladders_never_fall_with_age(one, other):
    low, high = sorted((one, other))
    assert safety.pose_action(low, 0.005, 1.0, True) <= safety.pose_action(high, 0.005, 1.0, True)
    assert safety.daemon_action(low) <= safety.daemon_action(high)


def test_daemon_ladder():
    assert [safety.daemon_action(s) for s in (0.1, 0.16, 0.6)] == [Action.NONE, Action.HOLD, Action.LAND]
