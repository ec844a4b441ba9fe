"""The trainer as the station uses it: a warm compiled program; a takeover in, an image for the drone out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from controllers import bptt, compiled, policy, tasks
from sim import drones
from station import config as cfg
from station import messages as m
from station import programs

TOLERANCE = 0.02
"""Of the canned outputs: the drone's float32 and ours differ in rounding, a transposed layer by tenths."""


def recipe(train: cfg.Train) -> bptt.Recipe:
    """The training run that a configuration describes; its steps divide into windows of all environments."""
    return bptt.Recipe(
        envs=train.envs,
        window=train.window,
        updates=train.env_steps // (train.envs * train.window),
        episode=train.episode,
        rate=train.learning_rate,
        spread=tasks.Spread(predicted_share=train.predicted_share),
    )


class Trainer:
    """One drone type's training program, compiled for this machine."""

    def __init__(self, config: cfg.StationConfig, cache: Path, say: Callable[[str], None]) -> None:
        self.target_m = config.throw.target_m
        self.recipe = recipe(config.train)
        self.params = {drone.name: drones.load(drone.type, np.float32) for drone in config.drones}
        drone = next(iter(self.params.values()))
        rest = np.array([0, 0, 1.5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0])
        example = bptt.arguments(0, rest, np.eye(12) * 1e-4, drone, self.target_m)
        self.program = programs.ready(
            cache, "throw", bptt.build(self.recipe), example, bptt.RESULT, self.recipe, bptt.COMPILER_OPTIONS, say
        )
        jax.block_until_ready(self.program(*example))
        self.compilations = compiled.Compilations()

    def train(self, request: m.TrainRequest) -> dict[str, Any]:
        """A network trained from scratch for one takeover; the fields of a `PolicyImage` but its stamps.

        Raises:
            ValueError: the prediction is not finite, or the network is not.
        """
        before = self.compilations.count
        p = request.takeover
        arguments = bptt.arguments(
            request.seed, (*p.pos, *p.quat, *p.vel, *p.ang_vel), p.cov, self.params[request.drone], self.target_m
        )
        out = jax.tree.map(np.asarray, self.program(*arguments))
        halves = policy.to_halves(out.flat)
        digest = hashlib.sha256(halves).digest()
        layers = policy.unflatten(out.initial)
        return {
            "policy": int.from_bytes(digest[:4], "little") or 1,
            "arch": policy.RECOVERY.id,
            "halves": halves,
            "crc": policy.crc(halves),
            "expected": policy.expected_outputs(halves),
            "tolerance": TOLERANCE,
            "target_m": self.target_m,
            "success": float(out.predicted_success),
            "initial_success": float(out.initial_success),
            "initial_sha256": hashlib.sha256(out.initial.tobytes()).hexdigest(),
            "initial_std": tuple(float(np.std(w)) for w in layers.weights),
            "curve": tuple(float(c) for c in out.curve),
            "env_steps": self.recipe.env_steps,
            "envs": self.recipe.envs,
            "parameters": policy.RECOVERY.parameters,
            "compiled_in_flight": self.compilations.count > before,
            "sha256": digest.hex(),
        }
