"""The cameras: rate, order, stamps and noise of the frames that leave, on a clock turned by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from station import config
from station.lab.cameras import Cameras
from station.lab.sensors import Mocap

POS, QUAT = np.array([0.1, 0.2, 1.5]), np.array([0.0, 0.0, 0.0, 1.0])


class Wire:
    """Takes the place of the server: keeps what would be sent."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, float, float, dict[str, Any]]] = []

    def send(self, seq: int, t_source: float, bodies: dict[str, Any], *, t_transmit: float) -> None:
        self.frames.append((seq, t_source, t_transmit, bodies))


def film(seed: int, ticks: int, rate_hz: float = 200.0) -> tuple[Wire, Mocap]:
    lab = config.LabConfig(mocap_rate_hz=rate_hz)
    wire, mocap = Wire(), Mocap(lab, np.random.default_rng(seed), 100.0)
    cameras = Cameras(lab, wire)  # type: ignore[arg-type]
    cameras.restart(100.0)
    for k in range(ticks):
        t = 100.0 + k * 1e-3
        cameras.expose(t, mocap, POS, QUAT, tracked=k >= 400)
        while cameras.due <= t + 1e-3:
            cameras.send(cameras.due)
    return wire, mocap


@pytest.mark.parametrize("rate_hz", [200.0, 120.0, 50.0])
def test_frames_leave_at_the_rate(rate_hz: float) -> None:
    wire, _ = film(0, 10_000, rate_hz)
    assert len(wire.frames) == pytest.approx(10 * rate_hz, rel=0.01)


def test_frames_keep_their_order_and_number() -> None:
    for seed in range(5):
        frames = film(seed, 5000)[0].frames
        assert [seq for seq, *_ in frames] == list(range(1, len(frames) + 1))
        assert (np.diff([stamp for _, stamp, _, _ in frames]) > 0.0).all()
        assert (np.diff([sent for _, _, sent, _ in frames]) >= 0.0).all()


def test_stamps_are_the_source_clocks_and_show_the_latency() -> None:
    wire, mocap = film(3, 5000)
    exposures = np.array([stamp for _, stamp, _, _ in wire.frames])
    np.testing.assert_allclose(exposures[0], mocap.clock.at(100.0), atol=1e-9)
    np.testing.assert_allclose(np.diff(exposures), 0.005, atol=1e-6)
    latency = np.array([sent - stamp for _, stamp, sent, _ in wire.frames])
    assert 0.003 - 1e-6 <= latency.min() < latency.max() <= 0.008 + 1e-6


def test_untracked_body_is_said_to_be() -> None:
    bodies = [frame[3]["cf1"] for frame in film(0, 1000)[0].frames]
    assert [tracked for _, _, tracked in bodies] == [False] * 80 + [True] * (len(bodies) - 80)
    poses = np.array([pos for pos, _, tracked in bodies if tracked])
    assert 0.0 < np.abs(poses - POS).max() < 0.002
