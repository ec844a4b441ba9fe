"""A whole upload through the real cflib, the soft radio and the onboard C, over a clean and over lossy air."""

import subprocess
import time
from collections import deque
from pathlib import Path

import numpy as np
import pytest

from firmware_patches.host.onboard import Airframe, Onboard
from hardware import weights
from hardware.crtp import WEIGHTS
from hardware.radio import Kind

BUILD = Path(__file__).parents[2] / "firmware_patches" / "build.sh"

SIZES = ((20, 8), (8, 8), (8, 4))
CANNED = np.array([0.1 * (i % 7) - 0.3 for i in range(20)])
AIRFRAME = Airframe(
    mass_kg=0.0393,
    inertia=(2.3e-5, 2.6e-5, 3.9e-5),
    arm_length_m=0.035,
    rpm2thrust=(0.0, -3.1e-7, 4.4e-10),
    rpm2torque=(0.0, 0.0, 1.8e-12),
    thrust_min_N=0.0193,
    thrust_max_N=0.193,
    mixing=((-1, -1, 1, 1), (-1, 1, 1, -1), (-1, 1, -1, 1)),
    idle_rpm=7000.0,
)


def network(seed):
    """Flat half-precision image and its outputs on the canned observation."""
    rng = np.random.default_rng(seed)
    flat, x = [], CANNED
    for layer, (fan_in, fan_out) in enumerate(SIZES):
        w, b = rng.normal(0, 0.4, (fan_in, fan_out)).astype(np.float16), rng.normal(0, 0.1, fan_out).astype(np.float16)
        flat += [w.ravel(), b]
        x = x @ w.astype(float) + b.astype(float)
        x = np.maximum(x, 0.0) if layer < 2 else np.tanh(x)
    return np.concatenate(flat).tobytes(), tuple(float(v) for v in x)


@pytest.fixture(scope="module", autouse=True)
def compiled():
    built = subprocess.run([str(BUILD)], capture_output=True, text=True, timeout=120, check=False)
    assert built.returncode == 0, built.stderr


def slow_now():
    """A clock of which a loaded machine cannot use up the 150 ms of an upload."""
    return 0.05 * time.monotonic()


def upload_once(link, reports, taken, until, image, expected, xfer, policy):
    """Drive one upload as the guardian does; the final state."""
    upload, packets = weights.start(image, 1, policy, expected, 0.02, xfer, slow_now())
    for packet in packets:
        link.post(Kind.UPLOAD, packet)

    def step():
        nonlocal upload
        now, more = slow_now(), []
        while taken:
            upload = weights.on_sent(upload, taken.popleft(), now)
        while reports:
            upload, again = weights.on_status(upload, weights.decode(reports.popleft().data), now)
            more += again
        upload, again = weights.on_tick(upload, now)
        for packet in more + again:
            link.post(Kind.UPLOAD, packet)
        return upload.outcome != "SENDING"

    assert until(step)
    return upload


@pytest.mark.parametrize("loss", [0.0, 0.02, 0.3])
def test_networks_reach_the_bank_of_the_onboard_c(loss, make_lab, connect, until):
    onboard = Onboard(AIRFRAME)
    lab = make_lab(loss=loss, onboard=onboard, step=lambda: onboard.tick((0, 0, 0), (0, 0, 9.81), 4.1))
    reports, taken = deque(), deque()
    link = connect(
        lab,
        on_sent=taken.append,
        on_packet=lambda p: reports.append(p) if p.port == WEIGHTS and p.channel == 3 else None,
    )
    uploads = []
    for xfer in range(1, 11):
        image, expected = network(xfer)
        taken.clear()
        uploads.append(upload_once(link, reports, taken, until, image, expected, xfer, 1000 + xfer))
    link.close()
    assert [upload.outcome for upload in uploads] == ["READY"] * 10, [upload.reason for upload in uploads]
    assert weights.READY in (onboard.snapshot().bank0, onboard.snapshot().bank1)
    assert loss or all(upload.packets == 22 for upload in uploads)


def test_a_network_whose_outputs_differ_is_refused_on_board(make_lab, connect, until):
    onboard = Onboard(AIRFRAME)
    lab = make_lab(onboard=onboard, step=lambda: onboard.tick((0, 0, 0), (0, 0, 9.81), 4.1))
    reports, taken = deque(), deque()
    link = connect(
        lab,
        on_sent=taken.append,
        on_packet=lambda p: reports.append(p) if p.port == WEIGHTS and p.channel == 3 else None,
    )
    image, expected = network(1)
    upload = upload_once(link, reports, taken, until, image, tuple(-x for x in expected), 1, 5)
    link.close()
    assert (upload.outcome, upload.reason) == ("FAILED", weights.ERRORS[8])
