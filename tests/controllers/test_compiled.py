import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from controllers import bptt, compiled

CHECKOUT = Path(__file__).parents[2]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Pair:
    total: jax.Array
    rest: tuple


def function(a, pair):
    return Pair(a + pair.total, (a * 2.0, pair.rest[0]))


EXAMPLE = (np.float32(1.0), Pair(np.zeros(3, np.float32), (np.zeros(2, np.float32),)))


def test_a_program_comes_back_from_its_bytes_and_runs_without_compiling():
    image = compiled.build(function, EXAMPLE, {"xla_backend_optimization_level": 1})
    run = compiled.load(image, Pair(0, (0, 0)))
    counter = compiled.Compilations()
    out = run(np.float32(2.0), Pair(np.ones(3, np.float32), (np.full(2, 5.0, np.float32),)))
    assert counter.count == 0
    out = jax.tree.map(np.asarray, out)
    assert np.array_equal(out.total, [3.0, 3.0, 3.0]) and out.rest[0] == 4.0
    assert np.array_equal(out.rest[1], [5.0, 5.0])


def test_the_training_runs_from_bytes_in_a_process_that_never_traced_it(trained, tmp_path):
    recipe = bptt.Recipe(updates=1, trials=2, initial_trials=1, window=2)
    with jax.numpy_dtype_promotion("standard"):  # optax counts its updates in integers
        image = compiled.build(bptt.build(recipe), trained.arguments, bptt.COMPILER_OPTIONS)
    (tmp_path / "program").write_bytes(image)
    arguments = [np.asarray(leaf) for leaf in jax.tree.leaves(trained.arguments)]
    (tmp_path / "arguments").write_bytes(pickle.dumps(arguments))
    text = (
        "import pickle, sys, pathlib; import sim; from controllers import bptt, compiled\n"
        "here = pathlib.Path(sys.argv[1])\n"
        "run = compiled.load((here / 'program').read_bytes(), bptt.RESULT)\n"
        "counter = compiled.Compilations()\n"
        "out = run(*pickle.loads((here / 'arguments').read_bytes()))\n"
        "print(out.flat.shape, counter.count)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text, str(tmp_path)], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "(276,) 0\n"), done.stderr


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[:-9], lambda b: b"junk" + b, lambda b: b[:200]])
def test_damaged_bytes_are_told_from_a_program(damage):
    with pytest.raises(compiled.StaleProgram, match="build it again"):
        compiled.load(damage(compiled.build(function, EXAMPLE)), Pair(0, (0, 0)))


def test_every_compilation_counts():
    counter = compiled.Compilations()
    program = jax.jit(lambda x: x * 3.25 + 1.125)
    program(jnp.zeros(5))
    first = counter.count
    assert first >= 1
    program(jnp.zeros(5))
    assert counter.count == first
    program(jnp.zeros(6))
    assert counter.count > first


def test_fingerprint_changes_with_all_it_depends_on():
    prints = {
        compiled.fingerprint("zen4 avx512f", (1, 2.0), (b"a", b"b")),
        compiled.fingerprint("zen3", (1, 2.0), (b"a", b"b")),
        compiled.fingerprint("zen4 avx512f", (1, 2.5), (b"a", b"b")),
        compiled.fingerprint("zen4 avx512f", (1, 2.0), (b"ab",)),
    }
    assert len(prints) == 4
    assert compiled.fingerprint("zen3", (), ()) == compiled.fingerprint("zen3", (), ())
