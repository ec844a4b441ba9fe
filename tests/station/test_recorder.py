"""Records: what goes in comes out, also when the writer was killed or the file is not one."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap.reader import make_reader

from station import messages, recorder
from station.config import StationConfig
from station.recorder import Recorder, RecordError

CHECKOUT = Path(__file__).parents[2]


def estimate(i: int, drone: str = "cf1") -> messages.Estimate:
    return messages.Estimate(
        t=100.0 + 0.005 * i,
        seq=i,
        drone=drone,
        t_meas=99.99 + 0.005 * i,
        pos=(0.1 * i, math.pi, -1.0),
        quat=(0.0, 0.0, 0.0, 1.0),
        vel=(0.0, 0.0, 3.0),
        ang_vel=(1e-9, -4.0, 0.0),
        std=(0.001, 0.01, 0.05, 0.2),
        mode="BALLISTIC",
        flags=("late",),
    )


def some() -> list[messages.Message]:
    return [
        messages.ArmThrow(t=99.0, drone="cf1", until=119.0),
        estimate(0),
        estimate(1, "cf2"),
        messages.Event(t=100.07, name="speculated", drone="cf1", data={"t_release": 100.0, "note": None}),
        messages.Health(t=100.1, process="guardian", figures={"queue": 3.0}),
        messages.Verb(t=101.0, name="throw", values={"seed": 7.0}),
    ]


def test_messages_come_back_in_order_under_their_topics(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    with Recorder(path, StationConfig()) as record:
        for message in some():
            record.write(message)
    back = list(recorder.read(path))
    assert [message for _, message in back] == some()
    assert [topic for topic, _ in back] == [
        "cf1/ArmThrow",
        "cf1/Estimate",
        "cf2/Estimate",
        "cf1/Event",
        "/Health",
        "/Verb",
    ]


def test_any_mcap_reader_finds_schemas_times_and_index(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    with Recorder(path, StationConfig()) as record:
        for message in some():
            record.write(message)
    with path.open("rb") as file:
        reader = make_reader(file)
        summary = reader.get_summary()
        rows = list(reader.iter_messages())
    assert summary.statistics.message_count == len(some()) and summary.statistics.channel_count == 6
    schema, channel, message = rows[1]
    assert (schema.name, schema.encoding, channel.message_encoding) == ("Estimate", "jsonschema", "msgpack")
    assert "t_meas" in msgspec.json.decode(schema.data)["$defs"]["Estimate"]["properties"]
    assert message.log_time == 100_000_000_000
    assert msgspec.msgpack.decode(message.data)["type"] == "Estimate"


def test_config_and_versions_lie_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    Recorder(path, StationConfig()).close()
    found = recorder.attachments(path)
    assert msgspec.convert(found["config.json"], StationConfig) == StationConfig()
    assert found["versions.json"]["msgspec"] == msgspec.__version__ and "python" in found["versions.json"]
    with Recorder(path, StationConfig(), {"seed": "7"}):
        pass
    assert recorder.attachments(path)["versions.json"] == {"seed": "7"}


@settings(max_examples=30)
@given(
    name=st.text(max_size=20),
    t=st.floats(0, 1e9),
    data=st.dictionaries(st.text(max_size=8), st.floats(allow_nan=False) | st.booleans() | st.none(), max_size=4),
)
def test_any_event_survives(tmp_path_factory, name: str, t: float, data: dict) -> None:
    path = tmp_path_factory.mktemp("record") / "a.mcap"
    event = messages.Event(t=t, name=name, drone="cf1", data=data)
    with Recorder(path, StationConfig()) as record:
        record.write(event)
    assert list(recorder.read(path)) == [("cf1/Event", event)]


def test_a_killed_writer_loses_no_more_than_its_last_chunk(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    script = f"""
import os, signal, sys
sys.path.insert(0, {str(CHECKOUT)!r})
from pathlib import Path
from station import messages
from station.config import StationConfig
from station.recorder import Recorder
record = Recorder(Path({str(path)!r}), StationConfig())
for i in range(5000):
    record.write(messages.Event(t=float(i), seq=i, name=os.urandom(40).hex()))
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
    numbers = [message.seq for _, message in recorder.read(path)]
    assert numbers == list(range(len(numbers)))
    assert 5000 - len(numbers) <= 2 * recorder.CHUNK_BYTES / 80
    assert "rate" in recorder.attachments(path)["config.json"]


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 0.999])
def test_a_truncated_file_gives_its_whole_chunks(tmp_path: Path, share: float) -> None:
    path = tmp_path / "a.mcap"
    with Recorder(path, StationConfig()) as record:
        for i in range(3000):
            record.write(messages.Event(t=float(i), seq=i, name=os.urandom(40).hex()))
    os.truncate(path, int(share * path.stat().st_size))
    numbers = [message.seq for _, message in recorder.read(path)]
    assert numbers == list(range(len(numbers))) and len(numbers) > (share - 0.3) * 3000


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    with Recorder(path, StationConfig()) as record:
        for i in range(100):
            record.write(estimate(i))
    data = bytearray(path.read_bytes())
    data[data.index(b"zstd") + 200] ^= 0x10
    path.write_bytes(data)
    with pytest.raises(RecordError, match="a.mcap: not an intact MCAP file"):
        list(recorder.read(path))


@pytest.mark.parametrize("content", [b"", b"hello", b"hello, this is a text file and no record at all"])
def test_what_is_not_a_record_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(RecordError, match="notes.txt"):
        list(recorder.read(path))


def test_a_missing_file_and_a_missing_folder_are_told_by_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(recorder.read(tmp_path / "none.mcap"))
    with pytest.raises(FileNotFoundError):
        Recorder(tmp_path / "none" / "a.mcap", StationConfig())


def test_a_closed_record_takes_no_more_and_closes_twice(tmp_path: Path) -> None:
    record = Recorder(tmp_path / "a.mcap", StationConfig())
    record.close()
    record.close()
    with pytest.raises(ValueError, match="closed"):
        record.write(estimate(0))
