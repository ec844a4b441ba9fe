"""The command: what it offers, and that every wrong use ends with status 2, a plain text and nothing started."""

import pytest
from typer.testing import CliRunner

from station import cli, process

DEMO = ("demo", "throw")


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch):
    def start(module, *_, **__):
        raise AssertionError(f"{module} was started")

    monkeypatch.setattr(process, "start", start)


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")


def run(*arguments):
    return CliRunner().invoke(cli.app, list(map(str, arguments)), prog_name="./midair")


def test_help_names_what_there_is():
    for arguments, words in (
        (("--help",), ("demo",)),
        (("demo", "--help"), ("throw",)),
        ((*DEMO, "--help"), "runs seed rate loss mismatch drone json report record config lab".split()),
    ):
        done = run(*arguments)
        assert done.exit_code == 0
        for word in words:
            assert word in done.output


@pytest.mark.parametrize("arguments", [(), ("demo",)])
def test_without_a_command_the_help_is_shown(arguments):
    done = run(*arguments)
    assert done.exit_code == 2
    assert "Usage" in done.output


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("dance",), "dance"),
        (("demo", "dance"), "dance"),
        ((*DEMO, "--speed", 3), "--speed"),
        ((*DEMO, "--runs", 0), "--runs"),
        ((*DEMO, "--runs", "many"), "--runs"),
        ((*DEMO, "--seed", -1), "--seed"),
        ((*DEMO, "--rate", 2), "--rate"),
        ((*DEMO, "--rate", 0), "--rate"),
        ((*DEMO, "--loss", 1.5), "--loss"),
        ((*DEMO, "--mismatch", 0.9), "--mismatch"),
        ((*DEMO, "--json"), "--json"),
        ((*DEMO, "throw"), "throw"),
        ((*DEMO, "--drone", "cf99"), "cf99"),
        ((*DEMO, "--config", "nowhere.yaml"), "nowhere.yaml"),
        ((*DEMO, "--lab", "nowhere.yaml"), "nowhere.yaml"),
        ((*DEMO, "--json", "/nowhere/x.json"), "/nowhere"),
        ((*DEMO, "--report", "/nowhere/x.html"), "/nowhere"),
        ((*DEMO, "--record", "/nowhere/x.mcap"), "/nowhere"),
    ],
    ids=str,
)
def test_wrong_use_is_status_2_and_named(arguments, word):
    done = run(*arguments)
    assert done.exit_code == 2, done.output
    assert word in done.output + done.stderr
    assert "Traceback" not in done.output + done.stderr


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("option", ["--rate", "--loss", "--mismatch"])
def test_numbers_that_are_none_are_refused(option, number):
    done = run(*DEMO, f"{option}={number}")
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output + done.stderr


@pytest.mark.parametrize("key", ["throww: {}", "rate: 1e-3", "throw: {window_s: .nan}", "- a", "{"])
def test_a_config_that_cannot_be_used_is_status_2_with_its_file(tmp_path, key):
    path = tmp_path / "mine.yaml"
    path.write_text(key)
    for option in ("--config", "--lab"):
        done = run(*DEMO, option, path)
        assert done.exit_code == 2, done.output
        assert "mine.yaml" in done.output + done.stderr


def test_the_defaults_are_those_of_the_checkout_wherever_one_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(*DEMO, "--drone", "cf99")
    assert done.exit_code == 2
    assert "cf99" in done.output + done.stderr, "the configuration of the checkout was not found"
