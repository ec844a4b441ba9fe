"""Physics is tested strictly: no silent promotion of ranks or dtypes. 64-bit mode is a fixture, not the default."""

import jax
import pytest


@pytest.fixture(autouse=True)
def strict_promotion():
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture
def float64(strict_promotion):
    with jax.enable_x64(True):
        yield
