"""Configuration: what is read, and that every kind of mistake names the file, the key and the cure in one line."""

from __future__ import annotations

import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from station.config import ConfigError, LabConfig, Source, StationConfig, Throw, load, parse, read, write


def test_empty_text_is_the_default():
    assert parse("", StationConfig, "lab.yaml") == StationConfig()
    assert parse("# nothing\n", LabConfig, "lab.yaml") == LabConfig()


def test_values_arrive_typed():
    text = "source: {host: mocap.local, command_port: 1510, rate_hz: 100}\n"
    text += "drones:\n- {name: a, body: a, uri: radio://0/1/2M/E7E7E7E701}\n"
    config = parse(text, StationConfig, "lab.yaml")
    assert (config.source.host, config.source.command_port, config.source.rate_hz) == ("mocap.local", 1510, 100.0)
    assert isinstance(config.source.rate_hz, float)
    assert [drone.name for drone in config.drones] == ["a"]


MISTAKES = [
    # text, struct, what the message must contain
    ("sauce: 1", StationConfig, ["unknown key `sauce`", "source"]),
    ("source: {ratehz: 1}", StationConfig, ["source: unknown key `ratehz`", "rate_hz"]),
    ("drones: [{}, {nmae: x}]", StationConfig, ["drones[1]: unknown key `nmae`", "name"]),
    ("rate: 1e-3", StationConfig, ["rate", "'1e-3'", "write 1.0e-3"]),
    ("train: {learning_rate: 3e-2}", StationConfig, ["train.learning_rate", "write 3.0e-2"]),
    ("mocap_rate_hz: 2.0e2", LabConfig, ["mocap_rate_hz", "write 2.0e+2"]),
    ("source: {rate_hz: fast}", StationConfig, ["source.rate_hz", "float", "str"]),
    ("source: {rate_hz: '200'}", StationConfig, ["source.rate_hz", "float", "str"]),
    ("source: {host: 5}", StationConfig, ["source.host", "str", "int"]),
    ("source: 5", StationConfig, ["source", "object", "int"]),
    ("source:", StationConfig, ["source", "object", "null"]),
    ("throw: {lease_ms: 250.5}", StationConfig, ["throw.lease_ms", "int", "float"]),
    ("rate: yes", StationConfig, ["rate", "float", "bool"]),
    ("space: {low: [1, 2]}", StationConfig, ["space.low", "3"]),
    ("space: {low: [a, 2, 3]}", StationConfig, ["space.low[0]", "float"]),
    ("source: {type: vicon}", StationConfig, ["source.type", "vicon"]),
    ("rate: .nan", StationConfig, ["rate is nan", "finite"]),
    ("space: {high: [1, .inf, 2]}", StationConfig, ["space.high[1] is inf", "finite"]),
    ("rate: 0", StationConfig, ["rate", "> 0.0", "got 0"]),
    ("rate: 1.5", StationConfig, ["rate", "<= 1.0", "got 1.5"]),
    ("loss: -0.1", LabConfig, ["loss", ">= 0.0", "got -0.1"]),
    ("source: {command_port: 70000}", StationConfig, ["source.command_port", "<= 65535", "got 70000"]),
    ("drones: [{name: 'a b'}]", StationConfig, ["drones[0].name", "'a b'"]),
    ("train: {cores: [0, -1]}", StationConfig, ["train.cores[1]", "got -1"]),
    ("hand: {carry_s: [2, 1]}", LabConfig, ["hand", "carry_s", "lower value first"]),
    ("mocap_latency_ms: [-3, 8]", LabConfig, ["mocap_latency_ms[0]", "got -3"]),
    ("space: {low: [0, 0, 9]}", StationConfig, ["space", "not below"]),
    ("drones: []", StationConfig, ["drones", "at least one"]),
    ("drones: [{}, {name: b}]", StationConfig, ["same body", "cf1"]),
    ("rate: 0.5\ndongles: [{type: crazyradio}]", StationConfig, ["rate 0.5", "set rate to 1.0"]),
    ("[1, 2]", StationConfig, ["mapping", "list"]),
    ("just words", StationConfig, ["mapping", "str"]),
    ("rate: {", StationConfig, ["not YAML", "line 1"]),
    ("rate: \0", StationConfig, ["not YAML"]),
    ("1: 2", StationConfig, ["the key 1"]),
    ("source: {on: 2}", StationConfig, ["source has the key True"]),
    ("rate: 2020-13-45", StationConfig, ["cannot be read", "month"]),
    ("rate: " + "9" * 5000, StationConfig, ["cannot be read"]),
    ("rate: &again [*again]", StationConfig, ["contains itself"]),
    ("rate: !!python/object:os.system {}", StationConfig, ["not YAML"]),
]


@pytest.mark.parametrize(("text", "struct", "parts"), MISTAKES, ids=[mistake[0][:30] for mistake in MISTAKES])
def test_mistake_is_one_line_that_names_file_key_and_value(tmp_path, text, struct, parts):
    path = tmp_path / "lab.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        load(path, struct)
    message = str(error.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    for part in parts:
        assert part in message


@given(st.from_regex(r"[+-]?[0-9]{1,3}(\.[0-9]{0,3})?[eE][+-]?[0-9]{1,2}", fullmatch=True))
def test_suggested_spelling_is_the_same_number_in_yaml(number):
    if isinstance(yaml.safe_load(f"rate: {number}")["rate"], float):
        return
    with pytest.raises(ConfigError) as error:
        parse(f"rate: {number}", StationConfig, "lab.yaml")
    suggested = str(error.value).partition("write ")[2].partition(" (")[0]
    value = yaml.safe_load(suggested)
    assert isinstance(value, float)
    assert math.isclose(value, float(number))


def test_missing_file_directory_and_binary_are_named(tmp_path):
    binary = tmp_path / "photo.yaml"
    binary.write_bytes(b"\xff\xfe\x00\x80")
    for path, part in ((tmp_path / "none.yaml", "No such file"), (tmp_path, "directory"), (binary, "UTF-8")):
        with pytest.raises(ConfigError) as error:
            load(path, StationConfig)
        assert str(error.value).startswith(f"{path}: ")
        assert part in str(error.value)
        assert "give the path of a YAML file" in str(error.value)


@given(
    st.builds(
        StationConfig,
        rate=st.floats(0.01, 1.0),
        throw=st.builds(Throw, window_s=st.floats(0.1, 30.0), lease_ms=st.integers(100, 1000)),
        source=st.builds(Source, host=st.text(max_size=20), command_port=st.integers(1, 65535)),
    )
)
def test_written_config_reads_back_equal(tmp_path_factory, config):
    path = tmp_path_factory.getbasetemp() / "station.json"
    write(config, path)
    assert read(path, StationConfig) == config


def test_saved_config_that_is_missing_or_broken_is_named(tmp_path):
    path = tmp_path / "station.json"
    with pytest.raises(ConfigError, match="No such file"):
        read(path, StationConfig)
    for text, part in (("{", "truncated"), ('{"rate": 2}', "rate"), ('{"sauce": 1}', "sauce"), ("[]", "object")):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError) as error:
            read(path, StationConfig)
        assert str(path) in str(error.value)
        assert part in str(error.value)


def test_station_and_lab_agree_by_default():
    station, lab = StationConfig(), LabConfig()
    assert station.source.command_port == lab.command_port
    assert station.dongles[0].air_port == lab.air_port
    assert station.source.rate_hz == lab.mocap_rate_hz
    assert (station.drones[0].type, station.drones[0].body, station.drones[0].uri) == (lab.drone, lab.body, lab.uri)
