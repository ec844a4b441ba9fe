"""Compiled programs on disk: stored once, loaded without compiling, rebuilt when stale or damaged, optional at all."""

import os

import jax
import numpy as np
import pytest

from controllers import compiled
from station import programs

EXAMPLE = (np.arange(3, dtype=np.float32), {"gain": np.float32(2.0)})
RESULT = {"sum": 0.0, "scaled": 0.0}


def scale(x, settings):
    return {"sum": x.sum(), "scaled": x * settings["gain"]}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache" / "programs"


@pytest.fixture
def said():
    return []


@pytest.fixture
def ready(folder, said):
    def ready(where=folder, name="scale", settings="v1"):
        return programs.ready(where, name, scale, EXAMPLE, RESULT, settings, {}, said.append)

    return ready


def check(program):
    out = program(np.array([1.0, 2.0, 4.0], np.float32), {"gain": np.float32(3.0)})
    assert float(out["sum"]) == 7.0
    np.testing.assert_array_equal(out["scaled"], [3.0, 6.0, 12.0])


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_it_is_compiled_and_said_once_then_loaded(ready, folder, said):
    check(ready())
    assert len(said) == 1 and "'scale'" in said[0]
    (name,) = files(folder)
    before = (folder / name).read_bytes()
    check(ready())
    assert len(said) == 1
    assert (folder / name).read_bytes() == before


def test_loading_and_calling_compiles_nothing(ready):
    ready()
    compilations = compiled.Compilations()
    check(ready())
    assert compilations.count == 0


@pytest.mark.parametrize(
    "damage",
    [lambda b: b"", lambda b: b"garbage", lambda b: b[: len(b) // 2], lambda b: b[:-1] + bytes([b[-1] ^ 1])],
    ids=["empty", "garbage", "cut", "flipped"],
)
def test_a_damaged_file_is_rebuilt(ready, folder, said, damage):
    check(ready())
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    check(ready())
    assert len(said) == 2
    assert path.read_bytes() != damage(whole)
    check(ready())
    assert len(said) == 2


def test_a_program_of_other_settings_replaces_the_stale_one_and_leaves_others_alone(ready, folder, said):
    ready()
    (first,) = files(folder)
    ready(name="other")
    check(ready(settings="v2"))
    assert len(said) == 3
    names = files(folder)
    assert len(names) == 2 and first not in names
    assert [name.split("-")[0] for name in names] == ["other", "scale"]


def test_the_name_changes_with_flags_machine_and_sources(ready, said, monkeypatch):
    ready()
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", "") + " ")
    ready()
    monkeypatch.setattr(programs, "machine", lambda: "another processor")
    ready()
    monkeypatch.setattr(programs, "SOURCES", ("controllers",))
    ready()
    assert len(said) == 4


def test_the_machine_is_its_processor_and_instruction_sets():
    said = programs.machine()
    assert said == programs.machine() and len(said) > 5
    assert "MHz" not in said, "what changes by the second is no name"


def test_a_folder_that_cannot_be_written_costs_the_next_start_a_compilation_only(ready, tmp_path, said):
    (tmp_path / "file").write_text("in the way")
    check(ready(tmp_path / "file" / "programs"))
    check(ready(tmp_path / "file" / "programs"))
    assert len(said) == 2


def test_stale_files_that_cannot_be_removed_are_left(ready, folder):
    (folder / "scale-0123.bin").mkdir(parents=True)
    check(ready())
    assert len(files(folder)) == 2


def test_a_full_disk_leaves_nothing_half_written(ready, folder, monkeypatch, said):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        check(ready())
    assert files(folder) == []
    check(ready())
    assert len(said) == 2 and len(files(folder)) == 1


def test_a_tree_of_another_structure_is_none_of_ours(ready, folder):
    ready()
    (path,) = folder.iterdir()
    with pytest.raises(Exception, match=r"[Tt]oo few|expected|leaves"):
        jax.block_until_ready(compiled.load(path.read_bytes(), (0.0, 0.0, 0.0))(*EXAMPLE))
