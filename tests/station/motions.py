"""Seeded hands and free flights for the ingest tests, many at once, and a source that measures them badly."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hardware.ports import Frame
from station import airframe as airframes
from station import sync, tracker
from station.config import Drone, Source, Space, Throw

RATE = 200.0
POS_STD, ATT_STD = 0.0003, math.radians(0.2)
SOURCE = Source(position_std_m=0.0003, attitude_std_rad=0.0035)
GRAVITY = np.array([0.0, 0.0, -9.81])


@dataclass(frozen=True)
class Motions:
    """(N, T, ...) samples at the exposures ``t`` (T,), s; ``t_release`` (N,), inf for a hand that never lets go."""

    t: np.ndarray
    pos: np.ndarray
    quat: np.ndarray
    vel: np.ndarray
    ang_vel: np.ndarray
    t_release: np.ndarray
    smooth: np.ndarray
    """(N,) whether the hand's acceleration is already that of free fall when it lets go."""


def multiply(a, b):
    ax, ay, az, aw = np.moveaxis(a, -1, 0)
    bx, by, bz, bw = np.moveaxis(b, -1, 0)
    return np.stack(
        [
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
            aw * bw - ax * bx - ay * by - az * bz,
        ],
        -1,
    )


def exp(v):
    angle = np.linalg.norm(v, axis=-1, keepdims=True)
    return np.concatenate([0.5 * np.sinc(angle / (2 * np.pi)) * v, np.cos(0.5 * angle)], -1)


def angle_between(a, b):
    """Angle of the rotation between two attitudes, rad."""
    return 2.0 * np.arccos(np.clip(np.abs(np.sum(np.asarray(a) * np.asarray(b), -1)), 0.0, 1.0))


def to_world(q, v):
    u, w = q[..., :3], q[..., 3:]
    return v + 2.0 * np.cross(u, np.cross(u, v) + w * v)


def quintic(t, duration, begin, end):
    """Values at ``t`` (..., T) of the polynomial between (x, x', x'') triples, each entry broadcast as (..., 1)."""
    (x0, v0, a0), (x1, v1, a1) = begin, end
    d, n = x1 - x0, duration
    c3 = (20 * d - (8 * v1 + 12 * v0) * n - (3 * a0 - a1) * n**2) / (2 * n**3)
    c4 = (-30 * d + (14 * v1 + 16 * v0) * n + (3 * a0 - 2 * a1) * n**2) / (2 * n**4)
    c5 = (12 * d - 6 * (v1 + v0) * n + (a1 - a0) * n**2) / (2 * n**5)
    return x0 + t * (v0 + t * (a0 / 2 + t * (c3 + t * (c4 + t * c5))))


def derivative(pos, quat, vel, ang_vel, mass, inertia, drag, damping):
    back = np.concatenate([-quat[..., :3], quat[..., 3:]], -1)
    force = to_world(quat, -drag * to_world(back, vel))
    spin = -np.cross(ang_vel, inertia * ang_vel) / inertia - damping * ang_vel
    rate = np.concatenate([ang_vel, np.zeros_like(ang_vel[..., :1])], -1)
    return vel, 0.5 * multiply(quat, rate), GRAVITY + force / mass, spin


def fly(state, plant, duration, dt=0.005):
    """RK4 over ``duration``: (N, K, ...) from the state (pos, quat, vel, ang_vel) on, the state itself included."""
    out = [state]
    for _ in range(round(duration / dt)):
        k1 = derivative(*state, *plant)
        k2 = derivative(*(s + 0.5 * dt * k for s, k in zip(state, k1, strict=True)), *plant)
        k3 = derivative(*(s + 0.5 * dt * k for s, k in zip(state, k2, strict=True)), *plant)
        k4 = derivative(*(s + dt * k for s, k in zip(state, k3, strict=True)), *plant)
        pos, quat, vel, ang_vel = (
            s + dt / 6 * (a + 2 * b + 2 * c + d) for s, a, b, c, d in zip(state, k1, k2, k3, k4, strict=True)
        )
        state = (pos, quat / np.linalg.norm(quat, axis=-1, keepdims=True), vel, ang_vel)
        out.append(state)
    return tuple(np.stack(column, 1) for column in zip(*out, strict=True))


def plants(rng, n, name="cf21B_500", mismatch=0.05):
    """True mass, inertia, drag and rotational damping of n drones, none of them the nominal one."""
    nominal = airframes.load(name)
    u = lambda *shape: rng.uniform(1 - mismatch, 1 + mismatch, shape)  # noqa: E731
    return (
        nominal.mass * u(n, 1),
        np.array(nominal.inertia) * u(n, 3),
        np.array(nominal.drag) * u(n, 1),
        rng.uniform(0.2, 1.0, (n, 1)),
    )


def tremor(rng, n, t, size):
    """(N, T, 3) small sines, as of a hand that holds still."""
    amplitude = size * rng.uniform(0.2, 1.0, (n, 1, 3, 2))
    omega = 2 * np.pi * rng.uniform(1.0, 5.0, (n, 1, 3, 2))
    return (amplitude * np.sin(omega * t[:, None, None] + rng.uniform(0, 6.3, (n, 1, 3, 2)))).sum(-1)


def throws(n, seed, flight_s=0.45, name="cf21B_500"):
    """A carry, a wind-up and a release at random times; smooth in acceleration for half of the hands."""
    rng = np.random.default_rng(seed)
    plant = plants(rng, n, name)
    quat = multiply(exp(np.stack([np.zeros(n), np.zeros(n), rng.uniform(-3, 3, n)], -1)), exp(_tilt(rng, n)))
    vel = np.concatenate([rng.uniform(-0.7, 0.7, (n, 2)), rng.uniform(2.5, 3.5, (n, 1))], -1)
    pos = np.concatenate([rng.uniform(-0.4, 0.4, (n, 2)), rng.uniform(1.3, 1.8, (n, 1))], -1)
    state = (pos, quat, vel, rng.uniform(-4.0, 4.0, (n, 3)))
    free = derivative(*state, *plant)
    hold_s, swing_s = 0.05, rng.uniform(0.25, 0.45, (n, 1, 1))
    smooth = (rng.uniform(size=n) < 0.5)[:, None]
    end_acc = np.where(smooth, free[2], rng.uniform(-8.0, 20.0, (n, 3)))
    end_spin = np.where(smooth, free[3], rng.uniform(-30.0, 30.0, (n, 3)))
    # The release falls on a frame of the flight's grid; the source's phase is shifted against it below.
    t = np.arange(-round((hold_s + 0.45) * RATE), 1) / RATE
    shift = rng.uniform(0.0, 1.0 / RATE)
    since = np.maximum(t[None, :, None] - shift + swing_s, 0.0)
    begin_pos = (pos - vel * swing_s[:, 0] * rng.uniform(0.4, 0.55, (n, 1)))[:, None]
    lift = quintic(
        since,
        swing_s,
        (begin_pos, 0.0, np.array([0.0, 0.0, 1.0]) * rng.uniform(0.0, 8.0, (n, 1, 1))),
        (pos[:, None], vel[:, None], end_acc[:, None]),
    )
    turn = quintic(
        since,
        swing_s,
        (-0.4 * swing_s * state[3][:, None], 0.0, 0.0),
        (0.0, state[3][:, None], end_spin[:, None]),
    )
    fade = np.clip(-(t - shift) / 0.1, 0.0, 1.0)[:, None] ** 3
    hand_pos = lift + fade * tremor(rng, n, t, 0.002)
    hand_quat = multiply(np.broadcast_to(quat[:, None], (n, len(t), 4)), exp(turn + fade * tremor(rng, n, t, 0.01)))
    first = fly(state, plant, 1.0 / RATE - shift, dt=1.0 / RATE - shift)
    flown = fly(tuple(x[:, 1] for x in first), plant, flight_s)
    nan = np.full((n, len(t), 3), np.nan)
    t_all = np.concatenate([t, 1.0 / RATE + np.arange(flown[0].shape[1]) / RATE]) - shift
    return Motions(
        t_all,
        np.concatenate([hand_pos, flown[0]], 1),
        np.concatenate([hand_quat, flown[1]], 1),
        np.concatenate([nan, flown[2]], 1),
        np.concatenate([nan, flown[3]], 1),
        np.zeros(n),
        smooth[:, 0],
    )


def _tilt(rng, n):
    angle, about = np.radians(rng.uniform(0, 40, n)), rng.uniform(-3.2, 3.2, n)
    return np.stack([angle * np.cos(about), angle * np.sin(about), np.zeros(n)], -1)


def feints(n, seed, duration=1.1):
    """Hands that never let go: lifts, jerked stops near free fall, swings of 5 to 50 cm at 0.5 to 3 Hz."""
    rng = np.random.default_rng(seed)
    t = np.arange(round(duration * RATE)) / RATE
    kind = np.arange(n) % 3
    up_s, stop_s = rng.uniform(0.2, 0.5, (n, 1)), rng.uniform(0.12, 0.45, (n, 1))
    speed, decay = rng.uniform(1.0, 3.2, (n, 1)), rng.uniform(-16.0, -6.0, (n, 1))
    start = rng.uniform(0.05, 0.1, (n, 1))
    rise, run = 0.45 * speed * up_s, 0.5 * speed * stop_s
    going = quintic(np.clip(t - start, 0.0, up_s), up_s, (0.0, 0.0, 0.0), (rise, speed, decay))
    stopping = quintic(np.clip(t - start - up_s, 0.0, stop_s), stop_s, (0.0, speed, decay), (run, 0.0, 0.0))
    jerked = going + stopping
    far, long_s = rng.uniform(0.4, 1.3, (n, 1)), rng.uniform(0.45, 0.95, (n, 1))
    lifted = quintic(np.clip(t - start, 0.0, long_s), long_s, (0.0, 0.0, 0.0), (far, 0.0, 0.0))
    size, omega = rng.uniform(0.05, 0.5, (n, 1)), 2 * np.pi * rng.uniform(0.5, 3.0, (n, 1))
    omega = np.minimum(omega, np.sqrt(40.0 / size))
    swung = size * np.sin(omega * t + rng.uniform(0, 6.3, (n, 1)))
    z = np.where(kind[:, None] == 0, jerked, np.where(kind[:, None] == 1, lifted, swung))
    lean = rng.uniform(-0.3, 0.3, (n, 1, 3)) * np.array([1.0, 1.0, 0.0])
    lean[:, :, 2] = 1.0
    still = rng.uniform(size=(n, 1, 1)) < 0.4  # 40 % straight up, with hardly a turn: the hardest ones
    lean = np.where(still, np.array([0.02, 0.0, 1.0]), lean)
    pos = np.array([0.0, 0.0, 1.0]) + lean * z[:, :, None] + tremor(rng, n, t, 0.001)
    turn = np.where(still, 0.05, 0.5) * z[:, :, None] * rng.uniform(-1, 1, (n, 1, 3)) + tremor(rng, n, t, 0.005)
    nan = np.full((n, len(t), 3), np.nan)
    return Motions(t, pos, exp(turn), nan, nan, np.full(n, np.inf), np.zeros(n, bool))


@dataclass(frozen=True)
class Faults:
    """Shares of frames that are spoilt."""

    dropout: float = 0.02
    outlier: float = 0.0
    flip: float = 0.0
    sign: float = 0.5


def frames(motions, index, rng, faults, t0=100.0, clock=1234.5, drift=40e-6):
    """Frames of one motion in order of arrival: noise, latency of 3 to 8 ms, a clock that drifts, spoilt ones."""
    pos = motions.pos[index] + POS_STD * rng.standard_normal(motions.pos[index].shape)
    quat = multiply(motions.quat[index], exp(ATT_STD * rng.standard_normal((len(motions.t), 3))))
    t = t0 + motions.t
    latency = np.minimum(0.003 + rng.exponential(0.0008, len(t)), 0.008)
    arrival = np.maximum.accumulate(t + latency + rng.uniform(0.0001, 0.0003, len(t)))
    u = rng.uniform(size=(4, len(t)))
    pos[u[0] < faults.outlier] += rng.uniform(-0.05, 0.05, 3)
    about = np.eye(4)[rng.integers(0, 3, len(t))]
    quat = np.where((u[1] < faults.flip)[:, None], multiply(quat, about), quat)
    quat = np.where((u[2] < faults.sign)[:, None], -quat, quat)
    out = []
    for i in np.nonzero(u[3] >= faults.dropout)[0]:
        source = clock + (1.0 + drift) * t[i]
        out.append((i, Frame("cf1", int(i), source, float(arrival[i]), pos[i], quat[i], True, 2e-4, float(latency[i]))))
    return out


def truth(motions, index, t):
    """Position, attitude, velocity and body rate of one motion at time ``t`` of its own, by the nearest frames."""
    i = int(np.clip(np.searchsorted(motions.t, t), 1, len(motions.t) - 1))
    step = motions.t[i] - motions.t[i - 1]
    w = (t - motions.t[i - 1]) / step
    pos, vel, rate = (
        column[index, i - 1] * (1 - w) + column[index, i] * w for column in (motions.pos, motions.vel, motions.ang_vel)
    )
    return pos, multiply(motions.quat[index, i - 1], exp(w * step * motions.ang_vel[index, i - 1])), vel, rate


def track(name="cf21B_500", *, rot_damping=0.0, source=SOURCE, throw=None, space=None):
    """A track that is armed for a throw."""
    drone = Drone(type=name, rot_damping=rot_damping)
    airframe = airframes.load(name, rot_damping)
    state = tracker.init(drone, airframe, source, throw or Throw(activate_ms=350.0), space or Space())
    return tracker.arm(state, math.inf, 0.0)[0]


def run(motions, index, seed, faults=None, state=None, until=math.inf, on=lambda i, now, track, messages: None):
    """One motion, up to time ``until`` of its own, through clock sync and tracker in simulated time; what it gave."""
    rng = np.random.default_rng(seed)
    state = state or track()
    clock, said = sync.Sync(), []
    for i, frame in frames(motions, index, rng, faults or Faults()):
        if motions.t[i] > until:
            break
        clock = sync.observe(clock, frame.t_source, frame.t_arrival - (frame.latency_s or 0.0))
        state, messages = tracker.observe(state, frame, sync.to_host(clock, frame.t_source), frame.t_arrival)
        said += messages
        on(i, frame.t_arrival, state, messages)
    return state, said
