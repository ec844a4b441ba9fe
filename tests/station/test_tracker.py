"""Guards and alarms: each fault is said once an episode, and whatever comes in, what goes out is finite."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.ports import Frame
from station import tracker
from station.messages import Estimate, Event
from tests.station import motions

DT = 0.005


def still(n, seed=0, t0=10.0):
    """Frames of a drone that is held still."""
    rng = np.random.default_rng(seed)
    pos = np.array([0.1, 0.2, 1.0]) + 0.0003 * rng.standard_normal((n, 3))
    quat = motions.exp(0.0035 * rng.standard_normal((n, 3)))
    return [frame(t0 + DT * i, pos[i], quat[i], seq=i) for i in range(n)]


def frame(t, pos, quat, *, seq=0, tracked=True):
    return Frame("cf1", seq, t, t + 0.004, np.asarray(pos, float), np.asarray(quat, float), tracked, 1e-4, 0.004)


def feed(frames, track=None):
    """Track after the frames, and all that was said."""
    track, said = track or motions.track(), []
    for item in frames:
        track, out = tracker.observe(track, item, item.t_source, item.t_arrival)
        said += out
    return track, said


def idle(track, t_from, t_to):
    """Time that passes without frames."""
    said, t = [], t_from
    while t < t_to:
        t += DT
        track, out = tracker.tick(track, t)
        said += out
    return track, said


def names(said):
    return [m.name for m in said if isinstance(m, Event)]


def test_every_frame_gives_an_estimate_predicted_to_now():
    _, said = feed(still(60))
    estimates = [m for m in said if isinstance(m, Estimate)]
    assert len(estimates) == 60
    assert [m.mode for m in estimates[:9]] == ["INIT"] * 9 and estimates[-1].mode == "TRACK"
    last = estimates[-1]
    assert math.isclose(last.t - last.t_meas, 0.004, abs_tol=1e-9)
    assert math.dist(last.pos, (0.1, 0.2, 1.0)) < 0.001
    assert last.std[0] < 0.001 and last.flags == ()


def test_stale_then_lost_once_each_then_anew():
    track, _ = feed(still(60))
    end = 10.0 + 60 * DT
    track, said = idle(track, end, end + 0.4)
    assert names(said) == ["STALE", "LOST"]
    stale, lost = (m.t - (end - DT) for m in said if isinstance(m, Event))
    assert 0.05 < stale < 0.062 and 0.15 < lost < 0.162
    modes = [m.mode for m in said if isinstance(m, Estimate)]
    assert modes[0] in ("TRACK", "COAST") and modes[-1] == "LOST"
    _, said = feed(still(40, 1, t0=end + 1.0), track)
    assert names(said) == ["RESTARTED"]
    assert [m.mode for m in said if isinstance(m, Estimate)][-1] == "TRACK"


def test_a_lost_body_does_not_drift_away_in_the_estimate():
    moving = [frame(10 + DT * i, (2.0 * DT * i, 0, 1 + 1e-5 * (i % 3)), (0, 0, 0, 1.0)) for i in range(100)]
    track, _ = feed(moving)
    _, said = idle(track, 10.5, 14.0)
    assert max(m.pos[0] for m in said if isinstance(m, Estimate)) < 1.0 + 2.0 * 0.2


@pytest.mark.parametrize(
    ("spoil", "name"),
    [
        (lambda f: dataclasses.replace(f, pos=f.pos * math.nan), "NAN"),
        (lambda f: dataclasses.replace(f, quat=f.quat + math.inf), "NAN"),
        (lambda f: dataclasses.replace(f, pos=f.pos * 1000.0), "FAR"),
        (lambda f: dataclasses.replace(f, quat=f.quat * 1.1), "NOT UNIT"),
        (lambda f: dataclasses.replace(f, quat=f.quat * 0.0), "NOT UNIT"),
        (lambda f: dataclasses.replace(f, pos=f.pos * math.nan, quat=f.quat * math.nan, tracked=False), "OCCLUDED"),
        (lambda f: dataclasses.replace(f, quat=motions.multiply(f.quat, np.array([0, 1.0, 0, 0]))), "FLIP"),
    ],
)
def test_spoilt_frames_are_said_once_and_left_out(spoil, name):
    frames = still(90)
    frames[60:68] = [spoil(f) for f in frames[60:68]]
    _, said = feed(frames)
    assert names(said) == [name]
    estimates = [m for m in said if isinstance(m, Estimate)]
    assert all(name in m.flags for m in estimates[60:68])
    assert estimates[-1].flags == ()
    for m in estimates[60:]:
        assert math.dist(m.pos, (0.1, 0.2, 1.0)) < 0.01
        assert motions.angle_between(m.quat, (0, 0, 0, 1)) < 0.05


def test_an_alarm_is_news_again_after_its_episode():
    frames = still(400)
    for i in (60, 62, 300):
        frames[i] = dataclasses.replace(frames[i], tracked=False)
    track, said = motions.track(), []
    for item in frames:
        track, out = tracker.observe(track, item, item.t_source, item.t_arrival)
        track, more = tracker.tick(track, item.t_arrival)
        said += out + more
    assert names(said) == ["OCCLUDED", "OCCLUDED"]


def test_frozen_after_five_identical_poses():
    frames = still(60)
    frozen = [dataclasses.replace(frames[-1], t_source=f.t_source, t_arrival=f.t_arrival) for f in still(80)[60:]]
    track, said = feed(frames + frozen[:3])
    assert names(said) == []
    _, said = feed(frozen[3:], track)
    assert names(said) == ["FROZEN"]


def test_a_body_taken_away_and_put_down_elsewhere_is_found_there():
    track, _ = feed(still(60))
    elsewhere = [
        dataclasses.replace(f, pos=f.pos + np.array([1.5, -1.0, -0.8])) for f in still(120, 2, t0=10.0 + 60 * DT)
    ]
    track, said = feed(elsewhere, track)
    last = [m for m in said if isinstance(m, Estimate)][-1]
    assert last.mode == "TRACK" and math.dist(last.pos, (1.6, -0.8, 0.2)) < 0.002


poses = st.tuples(
    st.lists(st.floats(width=32), min_size=3, max_size=3),
    st.lists(st.floats(-1.5, 1.5) | st.just(math.nan), min_size=4, max_size=4),
    st.booleans(),
    st.floats(-0.05, 0.2),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(poses, max_size=12), st.booleans())
def test_nothing_that_comes_in_makes_what_goes_out_not_finite(bad, started):
    track, t = (feed(still(60))[0], 10.3) if started else (motions.track(), 10.3)
    for pos, quat, tracked, gap in bad:
        t += gap
        norm = math.hypot(*quat)
        unit = [x / norm for x in quat] if 0.1 < norm < math.inf else quat
        track, said = tracker.observe(track, frame(t, pos, unit, tracked=tracked), t, t + 0.01)
        track, more = tracker.tick(track, t + 0.02)
        for m in said + more:
            if isinstance(m, Estimate):
                assert np.isfinite([*m.pos, *m.quat, *m.vel, *m.ang_vel, *m.std]).all()
                assert abs(math.hypot(*m.quat) - 1.0) < 0.03
