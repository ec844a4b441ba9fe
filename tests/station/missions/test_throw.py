"""The throw mission: every phase obeys its messages and only those, and every road ends."""

from dataclasses import replace

import pytest

from station import messages as m
from station.config import Drone, Space, Throw, Train
from station.missions import throw
from station.missions.throw import Phase

NOW = 100.0


def mission(phase=Phase.CONNECTING, **fields):
    return replace(throw.Mission(Drone(), Throw(), Train(), Space(), seed=7), phase=phase, since=NOW, **fields)


def takeover(stage="SPECULATE", reason="", drone="cf1"):
    return m.Takeover(
        t=NOW,
        drone=drone,
        stage=stage,
        t_release=NOW - 0.06,
        t_at=NOW + 0.2,
        pos=(0.0, 0.0, 1.5),
        quat=(0.0, 0.0, 0.0, 1.0),
        vel=(0.0, 0.0, 1.0),
        ang_vel=(0.0, 0.0, 0.0),
        cov=(0.0,) * 144,
        reason=reason,
    )


def image(job=1, success=0.97, drone="cf1"):
    return m.PolicyImage(
        t=NOW,
        drone=drone,
        job=job,
        policy=77,
        arch=1,
        halves=bytes(552),
        crc=5,
        expected=(0.0,) * 4,
        tolerance=1e-3,
        target_m=1.2,
        success=success,
        initial_success=0.0,
        initial_sha256="",
        initial_std=(),
        curve=(),
        wall_s=0.1,
        env_steps=180_000,
        envs=32,
        parameters=276,
        compiled_in_flight=False,
        sha256="",
    )


def estimate(mode="TRACK", vel=(0.0, 0.0, 0.0), pos=(0.0, 0.0, 1.2), quat=(0.0, 0.0, 0.0, 1.0)):
    return m.Estimate(
        t=NOW, drone="cf1", t_meas=NOW, pos=pos, quat=quat, vel=vel, ang_vel=(0.0,) * 3, std=(0.0,) * 4, mode=mode
    )


def event(name, drone="cf1", text=""):
    return m.Event(t=NOW, name=name, drone=drone, text=text)


def upload(state="READY", policy=77):
    return m.UploadStatus(t=NOW, drone="cf1", policy=policy, state=state)


def orders(out):
    return [message.name for message in out if isinstance(message, m.Command)]


def events(out):
    return [message.name for message in out if isinstance(message, m.Event)]


def play(state, *steps):
    """Apply (message, time) pairs; the state and everything sent."""
    out = []
    for message, now in steps:
        state, sent = throw.step(state, message, now)
        out += sent
    return state, out


def test_a_good_throw_runs_from_link_to_landing():
    state, out = throw.start(mission(), NOW)
    assert orders(out) == ["connect"]
    state, out = play(state, (event("connected"), NOW), (estimate(), NOW + 0.4))
    assert state.phase is Phase.OPEN
    assert orders(out) == ["window", "arm"]
    assert any(isinstance(message, m.ArmThrow) for message in out)
    state, out = play(state, (takeover("SPECULATE"), NOW + 1.0))
    assert [type(message) for message in out] == [m.TrainRequest, m.Event]
    state, out = play(state, (takeover("CONFIRM"), NOW + 1.07))
    assert orders(out) == ["released"]
    assert events(out) == ["confirmed", "predicted"]
    state, out = play(state, (image(), NOW + 1.1))
    assert any(isinstance(message, m.Upload) for message in out)
    state, out = play(state, (upload("SENT"), NOW + 1.12), (upload("READY"), NOW + 1.13))
    assert events(out) == ["uploaded", "committed"]
    assert orders(out) == ["activate"]
    state, out = play(state, (event("activated"), NOW + 1.14))
    assert state.phase is Phase.FLYING
    state, out = play(
        state, (estimate(vel=(0.0, 0.0, 1.0)), NOW + 1.3), (estimate(), NOW + 1.5), (estimate(), NOW + 2.01)
    )
    assert state.phase is Phase.RECOVERED
    state, out = play(state, (None, NOW + 3.2))
    assert orders(out) == ["land"]
    state, out = play(state, (event("landed"), NOW + 6.0))
    assert state.phase is Phase.DONE
    assert state.outcome == ""
    assert orders(out) == ["disarm", "disconnect"]
    assert events(out) == ["mission_done"]


def test_nothing_turns_a_rotor_before_the_ground_confirms():
    """Neither a speculation, nor a trained net, nor a committed one sends RELEASED or ACTIVATE."""
    state, out = play(
        mission(Phase.OPEN),
        (takeover("SPECULATE"), NOW),
        (image(), NOW),
        (upload("READY"), NOW),
        (takeover("SPECULATE"), NOW),
    )
    assert orders(out) == []
    assert state.ready
    state, out = play(state, (takeover("CONFIRM"), NOW))
    assert orders(out) == ["released", "activate"]


def test_activate_is_sent_once():
    state, _ = play(mission(Phase.OPEN), (takeover("CONFIRM"), NOW), (image(), NOW), (upload("READY"), NOW))
    state, out = play(state, (upload("READY"), NOW), (takeover("CONFIRM"), NOW))
    assert "activate" not in orders(out)


def test_a_feint_is_forgotten_and_the_next_throw_trains_anew():
    state, out = play(mission(Phase.OPEN), (takeover("SPECULATE"), NOW), (takeover("ABORT", "caught by hand"), NOW))
    assert state.phase is Phase.OPEN
    assert "cancelled" in events(out)
    state, _ = play(state, (image(job=1), NOW))
    assert state.image is None, "the feint's network must not fly"
    state, out = play(state, (takeover("SPECULATE"), NOW))
    request = next(message for message in out if isinstance(message, m.TrainRequest))
    assert request.job == 2


@pytest.mark.parametrize("phase", [p for p in Phase if p is not Phase.DONE])
def test_an_abort_ends_every_phase_with_motors_off(phase):
    state, out = throw.abort(mission(phase), NOW, "why")
    assert state.phase is Phase.DONE
    assert state.outcome == "why"
    assert orders(out) == ["abort", "disconnect"]
    assert next(message for message in out if isinstance(message, m.Command)).values == {"mode": 1.0}


@pytest.mark.parametrize("phase", [Phase.FLYING, Phase.RECOVERED])
def test_an_interrupted_flight_lands(phase):
    state, out = throw.interrupt(mission(phase), NOW, "interrupted")
    assert state.phase is Phase.LANDING
    assert orders(out) == ["land"]


@pytest.mark.parametrize("phase", [p for p in Phase if p is not Phase.DONE])
def test_time_alone_ends_every_phase(phase):
    """No phase waits for ever for a message that never comes."""
    state, now = mission(phase), NOW
    for _ in range(10_000):
        now += 0.05
        state, _ = throw.step(state, None, now)
        if state.phase is Phase.DONE:
            break
    assert state.phase is Phase.DONE
    assert now - NOW < 60.0


@pytest.mark.parametrize("name", ["link_lost", "link_failed"])
@pytest.mark.parametrize("phase", [p for p in Phase if p is not Phase.DONE])
def test_a_lost_link_ends_the_mission_with_its_reason(phase, name):
    state, _ = throw.step(mission(phase), event(name, text="dongle pulled"), NOW)
    assert state.phase is Phase.DONE
    assert "dongle pulled" in state.outcome


def test_an_infeasible_throw_is_refused_with_motors_off():
    state, out = play(mission(Phase.SPECULATED), (takeover("ABORT", "infeasible: stops 0.2 m below the floor"), NOW))
    assert state.phase is Phase.DONE
    assert state.outcome.startswith("refused")
    assert events(out)[0] == "refused"
    assert orders(out)[0] == "abort"


def test_a_poor_network_is_trained_again_and_the_better_one_flies():
    state, _ = play(mission(Phase.OPEN), (takeover("SPECULATE"), NOW))
    state, out = play(state, (image(job=1, success=0.7), NOW + 0.05))
    (again,) = out
    assert isinstance(again, m.TrainRequest) and again.job == 2 and again.seed != 7001
    better, out = play(state, (image(job=2, success=0.95), NOW + 0.2))
    assert [message.image.success for message in out if isinstance(message, m.Upload)] == [0.95]
    worse, out = play(state, (image(job=2, success=0.6), NOW + 0.2))
    assert [message.image.success for message in out if isinstance(message, m.Upload)] == [0.7]


def test_there_is_no_second_training_when_it_would_end_too_late():
    """Release was at NOW - 0.06 and a training takes 0.1 s: after NOW + 0.17 another ends over the budget of 330 ms."""
    state, _ = play(mission(Phase.OPEN), (takeover("SPECULATE"), NOW))
    _, out = play(state, (image(job=1, success=0.7), NOW + 0.18))
    assert any(isinstance(message, m.Upload) for message in out)


def test_a_network_that_fell_short_is_not_uploaded():
    late = NOW + 0.3
    state, out = play(mission(Phase.CONFIRMED, job=1, takeover=takeover()), (image(success=0.3), late))
    assert not any(isinstance(message, m.Upload) for message in out)
    assert "30%" in state.outcome


def test_a_failed_upload_ends_with_motors_off():
    state, out = play(mission(Phase.CONFIRMED, job=1, image=image()), (upload("FAILED"), NOW))
    assert state.phase is Phase.DONE
    assert orders(out)[0] == "abort"


def test_a_policy_fault_lands():
    state, out = play(mission(Phase.FLYING), (event("policy_fault", text="lease"), NOW))
    assert state.phase is Phase.LANDING
    assert orders(out) == ["land"]


def test_other_drones_change_nothing():
    before = mission(Phase.OPEN)
    for message in (takeover(drone="cf2"), image(drone="cf2"), event("link_lost", drone="cf2")):
        assert throw.step(before, message, NOW) == (before, [])


@pytest.mark.parametrize(
    "message", [takeover(), image(), upload(), estimate(), event("connected"), event("landed"), None]
)
def test_a_finished_mission_obeys_nothing(message):
    done = mission(Phase.DONE)
    assert throw.step(done, message, NOW + 100.0) == (done, [])


def test_recovered_needs_half_a_second_without_a_break():
    state, _ = play(
        mission(Phase.FLYING), (estimate(), NOW), (estimate(vel=(0.6, 0.0, 0.0)), NOW + 0.4), (estimate(), NOW + 0.6)
    )
    assert state.phase is Phase.FLYING
    tilted = (0.2, 0.0, 0.0, 0.98)  # 23 degrees
    state, _ = play(state, (estimate(quat=tilted), NOW + 0.9), (estimate(), NOW + 1.2), (estimate(), NOW + 1.75))
    assert state.phase is Phase.RECOVERED
