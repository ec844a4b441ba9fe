"""Messages between processes: every type survives the wire, and nothing else does."""

from __future__ import annotations

import math
from typing import get_args

import msgspec
import pytest

from station import messages
from station.messages import (
    ArmThrow,
    Command,
    Estimate,
    Event,
    Health,
    PolicyImage,
    Reply,
    Takeover,
    TrainRequest,
    Upload,
    UploadStatus,
    Verb,
)

P, Q, V = (1.0, -2.0, 0.5), (0.0, 0.6, 0.0, 0.8), (0.1, 0.2, -9.81)

TAKEOVER = Takeover(
    t=12.5,
    seq=4,
    drone="cf1",
    stage="CONFIRM",
    t_release=12.3,
    t_at=12.7,
    pos=P,
    quat=Q,
    vel=V,
    ang_vel=V,
    cov=tuple(index / 7 for index in range(144)),
)
IMAGE = PolicyImage(
    t=1.0,
    drone="cf1",
    job=3,
    policy=7,
    arch=1,
    halves=bytes(range(256)) + bytes(296),
    crc=0xFFFFFFFF,
    expected=(0.1, 0.2, 0.3, 0.4),
    tolerance=2e-3,
    target_m=1.2,
    success=0.97,
    initial_success=0.0,
    initial_sha256="00" * 32,
    initial_std=(0.3, 0.4, 0.5),
    curve=(3.0, 2.0, 1.0),
    wall_s=0.08,
    env_steps=180_000,
    envs=32,
    parameters=276,
    compiled_in_flight=False,
    sha256="ff" * 32,
)
SAMPLES = [
    Estimate(
        t=math.pi,
        seq=2**40,
        drone="cf1",
        t_meas=3.0,
        pos=P,
        quat=Q,
        vel=V,
        ang_vel=V,
        std=(1e-3, 1e-2, 0.1, 1.0),
        mode="BALLISTIC",
        flags=("FLIP", "LATE"),
    ),
    TAKEOVER,
    ArmThrow(t=1.0, drone="cf1", until=21.0),
    TrainRequest(t=1.0, drone="cf1", job=3, seed=42, deadline=1.3, takeover=TAKEOVER),
    IMAGE,
    Command(t=1.0, drone="cf1", name="window", values={"lease_ms": 250.0}),
    Upload(t=1.0, drone="cf1", image=IMAGE, deadline=2.0),
    UploadStatus(t=1.0, drone="cf1", policy=7, state="FAILED", reason="crc", packets=40, resent=2, wall_s=0.04),
    Event(t=1.0, name="released", drone="cf1", text="détaché", data={"a": 1.5, "b": "x", "c": True, "d": None}),
    Health(t=1.0, process="ingest", figures={"rate_hz": 200.0}),
    Verb(t=1.0, name="goto", drone="cf1", values={"z": 1.0, "frame": "world"}),
    Reply(t=1.0, ok=False, text="no such drone"),
]


def test_there_is_a_sample_of_every_message():
    assert {type(sample) for sample in SAMPLES} == set(messages.Message.__subclasses__())
    assert set(get_args(messages.Any)) == set(messages.Message.__subclasses__())


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_round_trip_keeps_type_and_every_bit(sample):
    again = messages.decode(messages.encode(sample))
    assert type(again) is type(sample)
    assert again == sample


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_strictness(sample):
    fields = msgspec.msgpack.decode(messages.encode(sample))
    tag = fields["type"]
    assert tag == type(sample).__name__

    def refused(changed):
        with pytest.raises(msgspec.ValidationError):
            messages.decode(msgspec.msgpack.encode(changed))

    refused(fields | {"colour": "red"})
    refused(fields | {"t": "12.5"})
    refused(fields | {"type": "Unheard"})
    refused({key: value for key, value in fields.items() if key != "type"})
    for name in type(sample).__struct_fields__:
        if name in {field.name for field in msgspec.structs.fields(sample) if field.required}:
            refused({key: value for key, value in fields.items() if key != name})
        refused(fields | {name: {"not": {"a": "value"}}})


@pytest.mark.parametrize(
    ("sample", "change"),
    [
        (SAMPLES[0], {"pos": (1.0, 2.0)}),
        (SAMPLES[0], {"quat": (0.0, 0.0, 1.0)}),
        (SAMPLES[0], {"mode": "GUESS"}),
        (TAKEOVER, {"stage": "MAYBE"}),
        (SAMPLES[5], {"name": "explode"}),
        (SAMPLES[7], {"state": "FINE"}),
        (IMAGE, {"expected": (0.1, 0.2, 0.3)}),
        (IMAGE, {"crc": 1.5}),
    ],
)
def test_values_outside_their_type_are_refused(sample, change):
    fields = msgspec.msgpack.decode(messages.encode(sample))
    with pytest.raises(msgspec.ValidationError):
        messages.decode(msgspec.msgpack.encode(fields | change))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_truncated_bytes_are_refused(sample):
    data = messages.encode(sample)
    for size in range(0, len(data), max(1, len(data) // 64)):
        with pytest.raises(msgspec.DecodeError):
            messages.decode(data[:size])


def test_messages_cannot_be_changed():
    with pytest.raises(AttributeError):
        TAKEOVER.stage = "ABORT"
