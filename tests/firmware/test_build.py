"""The build script, and what the chip's files must not contain."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

PATCHES = Path(__file__).parents[2] / "firmware_patches"
CHIP = sorted((PATCHES / "src").glob("*.c"))


@pytest.fixture
def checkout(tmp_path):
    """A copy of the C without its build folder."""
    return Path(shutil.copytree(PATCHES, tmp_path / "patches", ignore=shutil.ignore_patterns("build", "__pycache__")))


def build(checkout, **environment):
    script = str(checkout / "build.sh")
    return subprocess.run([script], check=False, capture_output=True, text=True, env=os.environ | environment)


def test_builds_once_then_only_when_sources_are_newer(checkout):
    library = checkout / "build" / "libonboard.so"
    assert build(checkout).returncode == 0
    os.utime(library, ns=(10**18, 10**18 * 2))  # the year 2033
    assert build(checkout, CC="false").returncode == 0  # nothing to do: the compiler is not asked
    os.utime(library, ns=(10**18, 10**18))
    assert build(checkout, CC="false").returncode != 0
    assert [path.name for path in library.parent.iterdir()] == ["libonboard.so"]


def test_no_compiler_is_one_line_with_the_cure(checkout):
    result = build(checkout, CC="no-such-compiler")
    assert result.returncode == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert "no-such-compiler" in result.stderr and "apt install gcc" in result.stderr


def test_a_failed_build_leaves_the_old_library(checkout):
    assert build(checkout).returncode == 0
    library = checkout / "build" / "libonboard.so"
    before = library.read_bytes()
    (checkout / "src" / "gate.c").write_text("this is no C\n")
    os.utime(library, ns=(10**18, 10**18))
    assert build(checkout).returncode != 0
    assert library.read_bytes() == before


@pytest.mark.parametrize("source", CHIP, ids=lambda path: path.name)
def test_chip_files_have_no_heap_and_no_writable_globals(source, tmp_path, library):
    assert not re.search(r"\b(malloc|calloc|realloc|free)\s*\(", source.read_text())
    compiled = tmp_path / "object.o"
    flags = ["-c", "-O2", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wdouble-promotion", "-Werror"]
    subprocess.run(["cc", *flags, str(source), "-o", str(compiled)], check=True)
    symbols = subprocess.run(["nm", "-P", str(compiled)], check=True, capture_output=True, text=True).stdout
    kinds = {line.split()[1] for line in symbols.splitlines()}
    assert not kinds & set("bBdDcC"), symbols


def test_chip_files_do_not_know_the_host():
    for path in [*CHIP, *(PATCHES / "src").glob("*.h")]:
        assert "host/" not in path.read_text()
