"""The living training process: requests in, images out, bad requests told, a clean end."""

import math
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import zmq

from station import config as cfg
from station import messages as m
from station import process, wires

PATIENCE_S = 280.0
"""The program may have to be compiled first."""


class Asker:
    """The daemon's side of the process."""

    def __init__(self, run_dir):
        cfg.write(cfg.StationConfig(), run_dir / "station.json")
        self.context = zmq.Context()
        self.events = wires.subscriber(self.context, run_dir, "compute.events")
        self.requests = wires.outbox(self.context, run_dir, "compute")
        self.child = process.start("station.compute", run_dir, stderr=subprocess.PIPE)
        self.said = []

    def ask(self, job, **fields):
        takeover = m.Takeover(
            t=1.0, drone="cf1", stage="SPECULATE", t_release=0.9, t_at=1.2, pos=(0.0, 0.0, 1.8),
            quat=(0.1, 0.0, 0.0, 0.995), vel=(0.4, -0.3, 0.6), ang_vel=(2.0, -1.0, 1.0),
            cov=tuple(1e-3 * (i % 13 == 0) for i in range(144)),
        )  # fmt: skip
        drone = fields.pop("drone", "cf1")
        takeover = msgspec.structs.replace(takeover, **fields)
        wires.send(self.requests, m.TrainRequest(t=1.0, drone=drone, job=job, seed=7, deadline=2.0, takeover=takeover))

    def heard(self, kind, **fields):
        assert self.child.poll() is None, self.child.stderr.read()
        while (message := wires.receive(self.events)) is not None:
            self.said.append(message)
        return next(
            (
                each
                for each in self.said
                if isinstance(each, kind) and all(getattr(each, k) == v for k, v in fields.items())
            ),
            None,
        )

    def close(self):
        process.end([self.child], 10.0)
        self.child.stderr.close()
        self.context.destroy(linger=0)


@pytest.fixture
def asker(run_dir):
    asker = Asker(run_dir)
    yield asker
    asker.close()


def test_requests_become_images_and_bad_ones_are_told(asker, until):
    asker.ask(1)
    assert until(lambda: asker.heard(m.PolicyImage, job=1), PATIENCE_S)
    image = asker.heard(m.PolicyImage, job=1)
    assert (image.drone, image.env_steps, image.parameters, image.compiled_in_flight) == ("cf1", 180_000, 276, False)
    assert image.wall_s > 0.0 and len(image.halves) == 552
    asker.ask(2, pos=(math.nan, 0.0, 1.0))
    assert until(lambda: asker.heard(m.Event, name="training_failed"))
    assert asker.heard(m.Event, name="training_failed").drone == "cf1"
    asker.ask(3, drone="cf9")
    assert until(lambda: asker.heard(m.Event, name="training_failed", drone="cf9"))
    asker.requests.send(b"\xc1 no message")
    wires.send(asker.requests, m.Health(t=0.0, process="daemon"))
    asker.ask(4)
    assert until(lambda: asker.heard(m.PolicyImage, job=4))
    again = asker.heard(m.PolicyImage, job=4)
    assert (again.halves, again.compiled_in_flight) == (image.halves, False), "same seed, same prediction, same bytes"
    assert until(lambda: asker.heard(m.Health, figures={"trained": 2.0}))
    if sys.platform == "linux":
        assert "jaxlib" in Path(f"/proc/{asker.child.pid}/maps").read_text(), "here JAX belongs"
    asker.child.terminate()
    assert asker.child.wait(30.0) == 0
    assert asker.child.stderr.read() == b""


@pytest.mark.parametrize(
    ("text", "word"), [(None, "station.json"), (b"{", "station.json"), (b'{"train": {"env_steps": 180001}}', "180000")]
)
def test_a_config_that_cannot_be_used_is_one_line_and_status_2(run_dir, text, word):
    if text is not None:
        (run_dir / "station.json").write_bytes(text)
    child = process.start("station.compute", run_dir, stderr=subprocess.PIPE)
    _, errors = child.communicate(timeout=120.0)
    assert child.returncode == 2, errors.decode()
    assert errors.count(b"\n") == 1 and word in errors.decode()
