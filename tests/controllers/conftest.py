"""One trained policy for all tests here: the compiled program, the prediction it was given and what came out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest

from controllers import bptt, compiled
from sim import drones


@pytest.fixture(autouse=True)
def strict_promotion():
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        yield


@dataclass(frozen=True)
class Trained:
    recipe: bptt.Recipe
    program: Any
    drone: Any
    arguments: tuple
    outcome: bptt.Outcome
    compilations: compiled.Compilations


def prediction(tilt=0.52, vel=(0.5, -0.3, 0.5), ang_vel=(3.0, -3.0, 2.0), height=1.8):
    quat = (0.8 * np.sin(tilt / 2), 0.6 * np.sin(tilt / 2), 0.0, np.cos(tilt / 2))
    cov = np.diag(np.repeat([0.02, 0.05, 0.1, 0.3], 3) ** 2)
    return np.array([0.0, 0.0, height, *quat, *vel, *ang_vel]), cov


@pytest.fixture(scope="session")
def trained():
    recipe, drone = bptt.Recipe(), drones.load("cf21B_500")
    arguments = bptt.arguments(7, *prediction(), drone, 1.2)
    # Compiled ahead, as the station does; dtypes are not strict here because optax counts its updates in integers.
    program = bptt.program(recipe).lower(*arguments).compile()
    outcome = jax.block_until_ready(program(*arguments))
    return Trained(recipe, program, drone, arguments, outcome, compiled.Compilations())
