"""The trainer: what a configuration asks for, what comes back for a takeover, from scratch and without compiling."""

import hashlib
import math
import zlib

import jax
import msgspec
import numpy as np
import pytest

from controllers import bptt
from station import config as cfg
from station import messages as m
from station import process, trainer

CONFIG = cfg.StationConfig()
COV = tuple(np.diag(np.repeat([0.02, 0.05, 0.1, 0.3], 3) ** 2).ravel().tolist())


def request(seed=7, tilt=0.4, **fields):
    takeover = m.Takeover(
        t=1.0, drone="cf1", stage="SPECULATE", t_release=0.9, t_at=1.2, pos=(0.0, 0.0, 1.8),
        quat=(math.sin(tilt / 2), 0.0, 0.0, math.cos(tilt / 2)), vel=(0.4, -0.3, 0.6), ang_vel=(2.0, -1.0, 1.0),
        cov=COV,
    )  # fmt: skip
    takeover = msgspec.structs.replace(takeover, **fields)
    return m.TrainRequest(t=1.0, drone="cf1", job=1, seed=seed, deadline=2.0, takeover=takeover)


@pytest.fixture(scope="module")
def trained():
    """The station's own trainer, its program kept where the station keeps it, and one network of it."""
    assert not jax.config.jax_enable_x64
    warm = trainer.Trainer(CONFIG, process.ROOT / ".cache" / "programs", lambda text: None)
    return warm, warm.train(request())


def twin(halves, inputs):
    """The network of these bytes in plain numpy, written out."""
    flat, at, x = np.frombuffer(halves, "<f2").astype(np.float32), 0, np.asarray(inputs, np.float32)
    for n_in, n_out in ((20, 8), (8, 8), (8, 4)):
        weight = flat[at : at + n_in * n_out].reshape(n_in, n_out)
        bias = flat[at + n_in * n_out : at + (n_in + 1) * n_out]
        at += (n_in + 1) * n_out
        x = x @ weight + bias
        x = np.tanh(x) if n_out == 4 else np.maximum(x, 0.0)
    assert at == flat.size == 276
    return x


def test_a_configuration_is_this_recipe():
    settings = cfg.Train(env_steps=16 * 20 * 7, envs=16, window=20, episode=3, learning_rate=0.01, predicted_share=0.5)
    recipe = trainer.recipe(settings)
    assert (recipe.envs, recipe.window, recipe.updates, recipe.episode) == (16, 20, 7, 3)
    assert (recipe.rate, recipe.spread.predicted_share, recipe.env_steps) == (0.01, 0.5, 2240)
    standard = trainer.recipe(cfg.Train())
    assert (standard.envs, standard.env_steps) == (32, 180_000)


def test_steps_that_do_not_divide_are_refused_with_a_number_that_works():
    with pytest.raises(cfg.ConfigError, match=r"env_steps.* 180000"):
        trainer.recipe(cfg.parse("train: {env_steps: 180001}", cfg.StationConfig, "x.yaml").train)


def test_an_image_is_of_one_piece(trained):
    _, fields = trained
    image = m.PolicyImage(t=1.0, drone="cf1", job=1, wall_s=0.1, **fields)
    assert m.decode(m.encode(image)) == image, "what numpy leaves in must not reach the wire"
    assert len(image.halves) == 552 and (image.parameters, image.arch) == (276, 1)
    assert (image.env_steps, image.envs, image.target_m) == (180_000, 32, CONFIG.throw.target_m)
    assert image.crc == zlib.crc32(image.halves)
    assert image.sha256 == hashlib.sha256(image.halves).hexdigest()
    assert 0 < image.policy < 2**32
    canned = 0.1 * (np.arange(20) % 7) - 0.3
    np.testing.assert_allclose(image.expected, twin(image.halves, canned), atol=1e-6)
    assert 0.0 < image.tolerance < 0.1


def test_it_learns_from_scratch(trained):
    _, fields = trained
    assert fields["initial_success"] <= 0.05
    assert fields["success"] >= CONFIG.train.least_success
    curve = np.array(fields["curve"])
    assert curve.shape == (125,) and np.isfinite(curve).all()
    assert curve[-20:].mean() < 0.5 * curve[:20].mean()
    # Weights before the first update: N(0, 1/in), the last layer a tenth of that.
    assert np.array(fields["initial_std"]) == pytest.approx([20**-0.5, 8**-0.5, 0.1 * 8**-0.5], rel=0.35)
    assert int(fields["initial_sha256"], 16) and fields["initial_sha256"] != fields["sha256"]


def test_nothing_compiles_however_the_predictions_differ(trained):
    warm, _ = trained
    requests = [
        request(8, tilt=0.0),
        request(9, tilt=0.7, vel=(-1.0, 0.5, -0.5), pos=(1.0, 2.0, 1.2)),
        request(10, cov=tuple(3.0 * c for c in COV), ang_vel=(0.0, 0.0, 0.0)),
    ]
    images = [warm.train(each) for each in requests]
    assert [image["compiled_in_flight"] for image in images] == [False] * 3
    assert len({image["sha256"] for image in images}) == len({image["initial_sha256"] for image in images}) == 3


def test_a_compilation_in_flight_would_be_told(trained, monkeypatch):
    warm, _ = trained
    program = warm.program

    def compiles(*arguments):
        jax.jit(lambda x: x * 3.0 + 11.0)(np.arange(17.0, dtype=np.float32))
        return program(*arguments)

    monkeypatch.setattr(warm, "program", compiles)
    assert warm.train(request())["compiled_in_flight"] is True


def test_same_seed_same_bytes(trained):
    warm, fields = trained
    assert warm.train(request()) == fields


@pytest.mark.parametrize(
    "bad",
    [
        {"pos": (math.nan, 0.0, 1.0)},
        {"vel": (0.0, math.inf, 0.0)},
        {"quat": (0.0, 0.0, 0.0, math.nan)},
        {"quat": (0.0, 0.0, 0.0, 0.0)},
        {"ang_vel": (0.0, 0.0, -math.inf)},
        {"cov": (math.nan,) * 144},
        {"cov": (0.0,) * 9},
    ],
    ids=str,
)
def test_a_prediction_that_is_none_is_refused(trained, bad):
    with pytest.raises(ValueError, match=r"."):
        trained[0].train(request(**bad))


def test_the_shipped_configuration_trains_by_the_tuned_recipe():
    """The figures stand in the configuration, for users to change, and in the recipe, where they were found."""
    shipped = cfg.load(process.ROOT / "configs" / "sim_throw.yaml", cfg.StationConfig).train
    assert shipped == cfg.Train()
    assert trainer.recipe(shipped) == bptt.Recipe()
