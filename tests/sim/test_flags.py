"""XLA flags: merged without harm, accepted by the XLA in use, and honest when too late."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from sim import flags

CHECKOUT = Path(__file__).parent.parent.parent


def run(code, **environ):
    env = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"} | environ
    return subprocess.run(
        [sys.executable, "-W", "always", "-c", code], cwd=CHECKOUT, env=env, capture_output=True, text=True, check=False
    )


def test_installing_again_changes_nothing():
    environ = {}
    assert flags.merged(flags.merged("")) == flags.merged("")
    first = flags.merged("")
    environ["XLA_FLAGS"] = first
    assert flags.install(environ)
    assert environ["XLA_FLAGS"] == first


@pytest.mark.parametrize(
    "present",
    [
        "--xla_cpu_multi_thread_eigen=true",
        "--xla_dump_to=x",
        "--xla_backend_extra_options=a=1",
        f"--xla_backend_extra_options={flags.EXTRA}0",
    ],
)
def test_what_the_user_set_stays(present):
    merged = flags.merged(present)
    assert present in merged
    assert merged.count("xla_backend_extra_options") == 1
    assert merged.count("xla_cpu_multi_thread_eigen") == 1
    assert merged.count(flags.EXTRA.partition("=")[0]) == 1


def test_switching_off_leaves_xla_alone():
    environ = {"MIDAIR_XLA_FLAGS": "off"}
    assert not flags.install(environ)
    assert "XLA_FLAGS" not in environ


def test_xla_accepts_the_flags():
    # An unknown flag would end the process, so this must be a process of its own.
    done = run("import sim, jax; print(jax.jit(lambda x: x + 1)(1))", JAX_PLATFORMS="cpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "2"
    assert "RuntimeWarning" not in done.stderr
    assert jax.__version__.startswith(flags.TRIED)


def test_late_import_warns_and_early_import_after_jax_does_not():
    late = run("import jax; jax.devices(); import sim", JAX_PLATFORMS="cpu")
    assert late.returncode == 0, late.stderr
    assert "import sim first" in late.stderr
    early = run("import jax, sim; jax.devices()", JAX_PLATFORMS="cpu")
    assert early.returncode == 0, early.stderr
    assert "RuntimeWarning" not in early.stderr


def test_importing_sim_does_not_import_jax():
    done = run("import sim, sys; print('jax' in sys.modules)")
    assert done.stdout.strip() == "False", done.stderr


def test_another_profile_takes_the_place_of_the_first():
    assert flags.merged("", flags.FLIGHT) != flags.merged("")
    assert flags.without(flags.merged("--xla_dump_to=x"), flags.TRAINING).count("extra_options") == 0
    done = run(
        "import sim, os; from sim import flags; flags.install(profile=flags.FLIGHT); "
        "first = os.environ['XLA_FLAGS']; flags.install(); flags.install(profile=flags.FLIGHT); "
        "assert os.environ['XLA_FLAGS'] == first == flags.merged('--xla_dump_to=', flags.FLIGHT), first; "
        "import jax; print(jax.jit(lambda x: x + 1)(1)); print(flags.install(), os.environ['XLA_FLAGS'] == first)",
        JAX_PLATFORMS="cpu",
        XLA_FLAGS="--xla_dump_to=",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2", "False", "True"]


def test_a_profile_of_the_user_stays():
    mine = "--xla_backend_extra_options=xla_cpu_use_multi_output_fusion=false"
    assert mine in flags.merged(mine, flags.FLIGHT)
    assert flags.merged(mine, flags.FLIGHT).count("multi_output") == 1
