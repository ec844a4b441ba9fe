"""The README's figures come from a result file, and only from it."""

import importlib.util
from pathlib import Path

import pytest

from station import result

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("readme_tool", ROOT / "tools" / "readme.py")
readme = importlib.util.module_from_spec(spec)
spec.loader.exec_module(readme)


def mission(caught, runs, rate=1.0):
    made = tuple(
        result.Run(
            seed=i,
            caught=i < caught,
            budgets_ok=True,
            events_s=result.Events(release=0.0, confirmed=0.1 + 0.001 * i, activated=0.2),
            train=result.Train(wall_s=0.1),
            prediction_error=result.PredictionError(pos_m=0.002, vel_mps=0.01, att_deg=0.5, rate_rps=0.1),
        )
        for i in range(runs)
    )
    return result.Result(
        mission="throw", seed=1, rate=rate, drone="cf21B_500", loss=0.02, mismatch=0.05,
        thrown=runs, caught=caught, refused=0, runs=made,
    )  # fmt: skip


def test_the_table_says_what_was_measured():
    text = readme.table(mission(19, 20))
    assert "caught **19 of 20**" in text
    assert "simulated, not flown" in text
    assert "| confirmed | 110 | 119 | 150 |" in text
    assert "not real time" not in text


def test_a_slowed_run_is_marked():
    assert "not real time" in readme.table(mission(1, 1, rate=0.5))


def test_wilson_interval_against_published_values():
    low, high = readme.wilson(17, 20)
    assert (round(low, 2), round(high, 2)) == (0.64, 0.95)
    assert readme.wilson(20, 20)[1] == pytest.approx(1.0)


def test_replace_changes_the_block_only():
    text = f"a\n{readme.BEGIN}\nold\n{readme.END}\nb\n"
    assert readme.replace(text, "new") == f"a\n{readme.BEGIN}\nnew\n{readme.END}\nb\n"
    with pytest.raises(ValueError, match="no block"):
        readme.replace("nothing", "new")


def test_the_readme_has_its_block():
    assert readme.replace((ROOT / "README.md").read_text(), "x").count(readme.BEGIN) == 1
