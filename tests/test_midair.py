"""The set-up script against a machine of stubs: a PATH in which Python, pip and the compiler are what a test says."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parent.parent
TOOLS = (
    "sh cat cksum dirname readlink find head tail grep date mkdir mkfifo rm mv cp sleep awk df touch env chmod".split()
)

# Answers as the Python that $VERSION names; `-m pip` follows the script in the file pip.sh beside the checkout.
PYTHON = """#!/bin/sh
here='{lab}'
[ "$1" = -I ] && shift
case "$*" in
    "-S -c "*) echo {version} ;;
    -c\\ *) echo '{answer}' ;;
    "-m venv "*) rm -rf "$4" && mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
    "-m pip "*) echo "$*" >>"$here/pip.calls"; if [ -f "$here/pip.sh" ]; then . "$here/pip.sh"; fi ;;
    "-m station.cli "*) shift 2; echo "cli [$*] path=$PYTHONPATH cwd=$(pwd -P)"; exit 3 ;;
    "-m ruff "*) echo "$*"; [ ! -f "$here/ruff.fails" ] ;;
    "-m pytest"*) echo "$*"; exit "$(cat "$here/pytest.status" || echo 0)" ;;
    *) echo "not expected: $*" >&2; exit 99 ;;
esac
"""

COMPILER = """#!/bin/sh
[ -f '{lab}/cc.fails' ] && {{ echo "math.h: No such file or directory" >&2; exit 1; }}
while [ $# -gt 1 ]; do [ "$1" = -o ] && touch "$2"; shift; done
"""

BUILD = """#!/bin/sh
echo build >>'{lab}/build.calls'
[ ! -f '{lab}/build.fails' ] || {{ echo "policy.c:7: error: expected ;" >&2; exit 1; }}
mkdir -p '{lab}/checkout/firmware_patches/build' && touch '{lab}/checkout/firmware_patches/build/libonboard.so'
"""


@dataclass(frozen=True)
class Machine:
    """A folder with a checkout, a home and a bin of stubs."""

    lab: Path

    @property
    def checkout(self) -> Path:
        return self.lab / "checkout"

    def stub(self, name: str, text: str, **values: str) -> None:
        path = self.lab / "bin" / name
        path.unlink(missing_ok=True)
        path.write_text(text.format(lab=self.lab, **values) if values or "{lab}" in text else text)
        path.chmod(0o755)

    def python(self, name: str, version: str, answer: str = "ok") -> None:
        self.stub(name, PYTHON, version=version, answer=answer)

    def environment(self, **extra: str) -> dict[str, str]:
        return {"PATH": str(self.lab / "bin"), "HOME": str(self.lab / "home")} | extra

    def run(
        self, *args: str, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess:
        return subprocess.run(
            [self.checkout / "midair", *args],
            check=False,
            cwd=cwd or self.checkout,
            env=self.environment() if env is None else env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def calls(self, name: str) -> list[str]:
        path = self.lab / f"{name}.calls"
        return path.read_text().splitlines() if path.exists() else []

    def say(self, name: str, text: str = "") -> None:
        (self.lab / name).write_text(text)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine on which everything needed is there."""
    machine = Machine(tmp_path / "a machine")  # a space in the path must do no harm
    for folder in ("bin", "home", "checkout/firmware_patches/src"):
        (machine.lab / folder).mkdir(parents=True)
    for tool in [*TOOLS, "flock"]:
        found = shutil.which(tool)
        if found:
            (machine.lab / "bin" / tool).symlink_to(found)
    shutil.copy2(CHECKOUT / "midair", machine.checkout / "midair")
    shutil.copytree(CHECKOUT / "requirements", machine.checkout / "requirements")
    machine.python("python3.12", "3.12")
    machine.stub("cc", COMPILER)
    build = machine.checkout / "firmware_patches/build.sh"
    build.write_text(BUILD.format(lab=machine.lab))
    return machine


def test_first_use_installs_and_second_use_does_not(machine: Machine) -> None:
    first = machine.run("demo", "throw", "--seed", "7")
    assert first.returncode == 3, first.stderr  # the status of the command itself
    assert first.stdout.startswith(f"cli [demo throw --seed 7] path={machine.checkout} ")
    assert "36 pinned packages" in first.stderr and "compiling the onboard C" in first.stderr
    assert [call.split()[2] for call in machine.calls("pip")] == ["install", "install"]
    assert "-r" in machine.calls("pip")[1] and "--no-deps" in machine.calls("pip")[1]
    second = machine.run("demo", "throw")
    assert second.returncode == 3 and second.stderr == ""
    assert len(machine.calls("pip")) == 2 and len(machine.calls("build")) == 1
    assert not (machine.checkout / ".cache/tmp").exists()
    assert list((machine.lab / "home").iterdir()) == []


def test_arguments_reach_the_command_unchanged_from_any_folder_and_through_a_link(machine: Machine) -> None:
    link = machine.lab / "home" / "midair"
    link.symlink_to("../checkout/midair")
    result = subprocess.run(
        [link, "report", "a b", "", "$x"],
        check=False,
        cwd=machine.lab,
        env=machine.environment(),
        capture_output=True,
        text=True,
    )
    assert f"cli [report a b  $x] path={machine.checkout} cwd={machine.lab.resolve()}" in result.stdout


def test_the_callers_python_path_is_not_inherited_and_home_is_not_needed(machine: Machine) -> None:
    result = machine.run("x", env={"PATH": str(machine.lab / "bin"), "PYTHONPATH": "/elsewhere"})
    assert result.returncode == 3 and f"path={machine.checkout} " in result.stdout
    assert all("--no-cache-dir" in call for call in machine.calls("pip"))


def test_a_usable_home_keeps_pips_download_cache(machine: Machine) -> None:
    machine.run("x")
    assert not any("--no-cache-dir" in call for call in machine.calls("pip"))


@pytest.mark.parametrize(
    ("version", "answer", "words"),
    [
        ("3.10", "is Python 3.10", "found: python3 is Python 3.10"),
        ("3.14", "is Python 3.14", "found: python3 is Python 3.14"),
        ("3.11", "is Python 3.11 without venv", "apt install python3-venv"),
        ("3.13", "is a free-threaded build", "python3 is a free-threaded build"),
        ("3.13", "Segmentation fault", "python3 does not run"),
    ],
)
def test_an_unfit_python_is_named_with_its_cure(machine: Machine, version: str, answer: str, words: str) -> None:
    (machine.lab / "bin/python3.12").unlink()
    machine.python("python3", version, answer)
    result = machine.run("demo", "throw")
    assert result.returncode == 2 and words in result.stderr and result.stdout == ""
    assert "MIDAIR_PYTHON=" in result.stderr
    assert not (machine.checkout / ".venv").exists()


def test_no_python_at_all(machine: Machine) -> None:
    (machine.lab / "bin/python3.12").unlink()
    result = machine.run("demo", "throw")
    assert result.returncode == 2
    assert "Python 3.11, 3.12 or 3.13 is needed; found: none" in result.stderr


def test_an_unfit_python_is_passed_over_for_a_fit_one(machine: Machine) -> None:
    machine.python("python3.13", "3.13", "is Python 3.13 without venv")
    assert "from python3.12" in machine.run("x").stderr


def test_midair_python_is_obeyed_or_refused_but_never_replaced(machine: Machine) -> None:
    refused = machine.run("x", env=machine.environment(MIDAIR_PYTHON="/nowhere/python3"))
    assert refused.returncode == 2 and "/nowhere/python3 (MIDAIR_PYTHON) is not there" in refused.stderr
    machine.run("x")
    machine.python("other", "3.11")
    again = machine.run("x", env=machine.environment(MIDAIR_PYTHON=str(machine.lab / "bin/other")))
    assert again.returncode == 3 and "installing" in again.stderr


def test_no_compiler(machine: Machine) -> None:
    (machine.lab / "bin/cc").unlink()
    result = machine.run("demo", "throw")
    assert result.returncode == 2
    assert "none of cc, gcc, clang is there" in result.stderr and "apt install gcc" in result.stderr
    assert machine.calls("pip") == []  # said before minutes of installing, not after


def test_a_compiler_without_headers(machine: Machine) -> None:
    machine.say("cc.fails")
    result = machine.run("demo", "throw")
    assert result.returncode == 2 and "libc6-dev" in result.stderr
    assert "math.h: No such file" in (machine.checkout / ".cache/setup.log").read_text()


def test_c_that_does_not_compile_shows_the_compilers_words(machine: Machine) -> None:
    machine.say("build.fails")
    result = machine.run("demo", "throw")
    assert result.returncode == 2 and "policy.c:7: error: expected ;" in result.stderr


def test_newer_c_is_compiled_again(machine: Machine) -> None:
    machine.run("x")
    source = machine.checkout / "firmware_patches/src/policy.c"
    source.touch()
    os.utime(source, (time.time() + 5, time.time() + 5))
    machine.run("x")
    assert len(machine.calls("build")) == 2 and len(machine.calls("pip")) == 2


@pytest.mark.parametrize(
    ("pip_says", "words"),
    [
        ("ERROR: Failed to establish a new connection: [Errno -3] Temporary failure in name resolution", "HTTPS_PROXY"),
        ("ERROR: Could not install packages: [Errno 28] No space left on device", "the disk is full"),
        ("ERROR: No matching distribution found for jaxlib==0.10.2", "no wheel for this machine"),
        ("ERROR: something nobody thought of", "something nobody thought of"),
    ],
)
def test_a_failing_pip_names_the_cure_and_the_next_try_starts_over(machine: Machine, pip_says: str, words: str) -> None:
    machine.say("pip.sh", f"echo 'Collecting jax'; echo '{pip_says}' >&2; exit 1")
    result = machine.run("demo", "throw")
    assert result.returncode == 2 and words in result.stderr
    assert pip_says in (machine.checkout / ".cache/setup.log").read_text()
    assert not list((machine.checkout / ".venv").glob("*.stamp"))
    (machine.lab / "pip.sh").unlink()
    assert machine.run("demo", "throw").returncode == 3


def test_too_little_disk(machine: Machine) -> None:
    machine.stub("df", "#!/bin/sh\necho header; echo '/dev/x 9 9 524288 9% /'\n")
    result = machine.run("demo", "throw")
    assert result.returncode == 2 and "1500 MB" in result.stderr and "512 MB free" in result.stderr


def test_a_checkout_that_cannot_be_written(machine: Machine) -> None:
    (machine.checkout / ".cache").write_text("a file where the folder goes: unwritable even for root")
    result = machine.run("demo", "throw")
    assert result.returncode == 2 and f"cannot write in this checkout: {machine.checkout}" in result.stderr


def test_new_pins_rebuild_the_environment(machine: Machine) -> None:
    machine.run("x")
    left_over = machine.checkout / ".venv/bin/left"
    left_over.touch()
    with (machine.checkout / "requirements/base.txt").open("a") as pins:
        pins.write("attrs==1.0\n")
    assert "37 pinned packages" in machine.run("x").stderr
    assert not left_over.exists()


def test_a_python_that_went_away_rebuilds_the_environment(machine: Machine) -> None:
    machine.run("x")
    python = machine.checkout / ".venv/bin/python"
    python.unlink()
    python.symlink_to("/nowhere/python3")
    assert machine.run("x").returncode == 3
    assert len(machine.calls("pip")) == 4


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_an_interrupted_set_up_ends_at_once_and_starts_over(machine: Machine, number: int) -> None:
    machine.say("pip.sh", 'echo "Collecting jax"; echo $$ >"$here/pip.pid"; exec sleep 60')
    child = subprocess.Popen(
        [machine.checkout / "midair", "x"], env=machine.environment(), stderr=subprocess.PIPE, text=True
    )
    pid_file = machine.lab / "pip.pid"
    while not (pid_file.exists() and pid_file.read_text()):
        assert child.poll() is None
        time.sleep(0.01)
    child.send_signal(number)
    _, words = child.communicate(timeout=10)
    assert child.returncode == 130 and "interrupted" in words
    with pytest.raises(ProcessLookupError):
        for _ in range(500):
            os.kill(int(pid_file.read_text()), 0)
            time.sleep(0.01)
    assert not list((machine.checkout / ".venv").glob("*.stamp"))
    (machine.lab / "pip.sh").unlink()
    assert machine.run("x").returncode == 3


@pytest.mark.parametrize("flock", [True, False])
def test_two_at_once_install_once(machine: Machine, flock: bool) -> None:
    if not flock:
        (machine.lab / "bin/flock").unlink(missing_ok=True)
    machine.say("pip.sh", "sleep 0.3")
    both = [
        subprocess.Popen(
            [machine.checkout / "midair", "x"],
            env=machine.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    words = [child.communicate(timeout=60)[1] for child in both]
    assert [child.returncode for child in both] == [3, 3], words
    assert len(machine.calls("pip")) == 2 and len(machine.calls("build")) == 1
    assert sum("waiting for it" in text for text in words) == 1


def test_the_lock_of_a_dead_set_up_is_broken(machine: Machine) -> None:
    (machine.lab / "bin/flock").unlink(missing_ok=True)
    gone = subprocess.Popen(["sleep", "0"])
    gone.wait()
    (machine.checkout / ".cache/setup.lock.d").mkdir(parents=True)
    (machine.checkout / ".cache/setup.lock.d/pid").write_text(f"{gone.pid}\n")
    assert machine.run("x").returncode == 3
    assert not (machine.checkout / ".cache/setup.lock.d").exists()


def test_test_runs_every_check_and_passes_arguments_to_pytest(machine: Machine) -> None:
    machine.say("pytest.status", "0")
    result = machine.run("test", "-k", "throw or catch", cwd=machine.lab)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "-m ruff check .",
        "-m ruff format --check --quiet .",
        "-m pytest -k throw or catch",
    ]
    assert "requirements/test.txt" in machine.calls("pip")[-1]
    assert len(machine.calls("build")) == 1
    machine.run("test")
    assert len(machine.calls("pip")) == 3


@pytest.mark.parametrize(("pytest_status", "expected"), [("1", 1), ("5", 1), ("4", 2)])
def test_failing_tests_fall_short(machine: Machine, pytest_status: str, expected: int) -> None:
    machine.say("pytest.status", pytest_status)
    assert machine.run("test").returncode == expected


def test_a_failing_format_check_falls_short_even_when_the_tests_pass(machine: Machine) -> None:
    machine.say("pytest.status", "0")
    machine.say("ruff.fails")
    result = machine.run("test")
    assert result.returncode == 1 and "fell short: ruff-check ruff-format" in result.stderr
    assert "-m pytest" in result.stdout


def test_every_pin_is_exact_and_none_is_asked_for_twice() -> None:
    lines = [
        line.strip()
        for name in ("base.txt", "test.txt")
        for line in (CHECKOUT / "requirements" / name).read_text().splitlines()
        if line.strip() and not line.startswith("#")
    ]
    assert all(line.count("==") == 1 and "*" not in line for line in lines)
    names = [line.split("==")[0] for line in lines]
    assert len(names) == len(set(names)) and not {"flax", "orbax-checkpoint", "tensorstore"} & set(names)
