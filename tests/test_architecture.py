"""The one-way rule and its companions, read from the syntax trees of all files. Imports nothing of what it checks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parent.parent
MAY_IMPORT = {
    "sim": set(),
    "hardware": set(),
    "firmware_patches": set(),
    "controllers": {"sim"},
    "station": {"controllers", "sim", "hardware", "firmware_patches"},
    "tools": {"station", "controllers", "sim", "hardware", "firmware_patches"},
    "benchmarks": {"station", "controllers", "sim", "hardware", "firmware_patches"},
}
"""station -> controllers -> sim; station -> hardware; station -> firmware_patches."""
ONLY_IMPORTER = {
    "cflib": {"hardware/radio.py"},
    "yaml": {"station/config.py"},
    "motioncapture": {"hardware/mocap.py"},
    "pymavlink": {"hardware/mavlink.py", "hardware/virtual/vehicle.py"},
}
JAX = {"jax", "jaxlib", "optax"}
WITHOUT_JAX = ("station.daemon", "station.ingest", "station.guardian")
OUTSIDE_WORLD = {
    "socket",
    "select",
    "selectors",
    "asyncio",
    "threading",
    "multiprocessing",
    "subprocess",
    "time",
    "zmq",
}
"""Sockets, threads, processes, clocks: not in sim and controllers."""
READS_A_CLOCK = {
    ("time", name + ending)
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time")
    for ending in ("", "_ns")
} | {("datetime", "now"), ("datetime", "utcnow"), ("date", "today")}
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "manager", "managers", "common", "misc"}
MAX_LINES = 400


def listed() -> list[Path]:
    """Files of the checkout, less what is hidden, built or recorded."""
    inside = (path for path in CHECKOUT.rglob("*") if path.is_file())
    skipped = {"build", "__pycache__", "data", "run"}
    return sorted(
        path
        for path in inside
        if not any(part.startswith(".") or part in skipped for part in path.relative_to(CHECKOUT).parts)
    )


FILES = listed()
CODE = [path for path in FILES if path.suffix == ".py" and path.relative_to(CHECKOUT).parts[0] in MAY_IMPORT]
TREES = {path: ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in CODE}


def name(path: Path) -> str:
    return path.relative_to(CHECKOUT).as_posix()


def module(path: Path) -> str:
    return name(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


MODULES = {module(path): path for path in CODE}


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node that can run: what stands under ``if TYPE_CHECKING`` cannot."""
    for child in ast.iter_child_nodes(tree):
        yield child
        if is_type_checking(child):
            for branch in child.orelse:
                yield from nodes(branch)
        else:
            yield from nodes(child)


def imported(path: Path) -> set[str]:
    """Dotted names that a file imports anywhere in it; ``from a import b`` gives ``a`` and ``a.b``."""
    found = set()
    for node in nodes(TREES[path]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module(path).split(".") if path.name == "__init__.py" else module(path).split(".")[:-1]
                base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return found


def roots(path: Path) -> set[str]:
    return {dotted.split(".")[0] for dotted in imported(path)}


def reached(start: str) -> dict[str, str]:
    """Modules of ours that importing ``start`` can load, each with the module that brings it in."""
    seen, waiting = {start: ""}, [start]
    while waiting:
        here = waiting.pop()
        for dotted in imported(MODULES[here]):
            parts = dotted.split(".")
            for depth in range(1, len(parts) + 1):  # a package's __init__ runs before its module
                there = ".".join(parts[:depth])
                if there in MODULES and there not in seen:
                    seen[there] = here
                    waiting.append(there)
    return seen


def test_there_is_something_to_check() -> None:
    assert {path.relative_to(CHECKOUT).parts[0] for path in CODE} >= {"station", "sim", "hardware", "controllers"}


@pytest.mark.parametrize("path", CODE, ids=name)
def test_imports_point_one_way(path: Path) -> None:
    here = path.relative_to(CHECKOUT).parts[0]
    wrong = (roots(path) & (set(MAY_IMPORT) | {"tests"})) - MAY_IMPORT[here] - {here}
    assert not wrong, (
        f"{name(path)} imports {sorted(wrong)}; {here} may import {sorted(MAY_IMPORT[here]) or 'none of ours'}"
    )


@pytest.mark.parametrize("library", ONLY_IMPORTER)
def test_one_library_has_one_importer(library: str) -> None:
    importers = {name(path) for path in CODE if library in roots(path)}
    assert importers <= ONLY_IMPORTER[library]


@pytest.mark.parametrize("process", WITHOUT_JAX)
def test_no_jax_in_the_processes_that_must_not_wait(process: str) -> None:
    assert process in MODULES
    seen = reached(process)
    guilty = {m: sorted(roots(MODULES[m]) & JAX) for m in seen if roots(MODULES[m]) & JAX}
    ways = []
    for end in guilty:
        way = [end]
        while seen[way[0]]:
            way.insert(0, seen[way[0]])
        ways.append(" -> ".join([*way, guilty[end][0]]))
    assert not ways


def test_the_walk_finds_jax_where_it_is() -> None:
    assert any(roots(MODULES[there]) & JAX for there in reached("sim.pipeline"))


@pytest.mark.parametrize("package", ["hardware", "firmware_patches"])
def test_the_edges_know_no_jax(package: str) -> None:
    assert not [name(path) for path in CODE if name(path).startswith(f"{package}/") and roots(path) & JAX]


@pytest.mark.parametrize("package", ["sim", "controllers"])
def test_physics_and_control_know_no_sockets_files_or_clocks(package: str) -> None:
    for path in CODE:
        if not name(path).startswith(f"{package}/"):
            continue
        assert not roots(path) & OUTSIDE_WORLD, name(path)
        opened = [
            node.lineno
            for node in nodes(TREES[path])
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "open"
        ]
        assert not opened, f"{name(path)} opens a file in line {opened[0]}"


@pytest.mark.parametrize("path", [path for path in CODE if name(path) != "station/clock.py"], ids=name)
def test_only_the_clock_reads_the_time(path: Path) -> None:
    """The waits of hardware get their clock as an argument, so a call is what is looked for, and a bare import."""
    if name(path).startswith(("tools/", "benchmarks/")):
        pytest.skip("not below the clock")
    for node in nodes(TREES[path]):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value).split(".")[-1]
            assert (owner, node.func.attr) not in READS_A_CLOCK, f"{name(path)}:{node.lineno} reads the time"
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            taken = {alias.name for alias in node.names} & {call for _, call in READS_A_CLOCK}
            assert not taken, f"{name(path)}:{node.lineno} takes {sorted(taken)} from time"


def test_no_file_has_a_name_that_says_nothing() -> None:
    vague = [
        name(path) for path in FILES if VAGUE_NAMES & {part.split(".")[0] for part in path.relative_to(CHECKOUT).parts}
    ]
    assert not vague


def test_every_file_is_short_enough_to_be_one_noun() -> None:
    sources = [path for path in FILES if path.suffix in (".py", ".c", ".h", ".html", ".sh") or path.name == "midair"]
    lengths = {name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in sources}
    long = {file: count for file, count in lengths.items() if count > MAX_LINES and not file.startswith("tests/")}
    assert not long


@pytest.mark.parametrize("path", CODE, ids=name)
def test_every_file_says_first_what_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not text or ast.get_docstring(TREES[path]), f"{name(path)} has no docstring"
