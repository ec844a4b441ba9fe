"""Drives one simulator of the `Sim` face for a bench: a request per line on stdin, an answer per line on stdout, JSON.

    python tools/sim_worker.py crazyflow|sim.sim

The same code drives both, in an environment of its own each; it is told which by name and imports nothing else of
either. It times and it records; it judges nothing.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, TextIO

import jax
import jax.numpy as jnp
import numpy as np

VARIANTS = 4
"""Sets of parameters, disturbances, states and commands that calls go through in turn."""
GRADIENT_STEPS = 10
Spec = dict[str, Any]


def weight(params: Any) -> float:
    """Of a drone with nominal parameters, N."""
    return float(np.asarray(params.mass).reshape(-1)[0]) * 9.81


def hover_rpm(params: Any) -> float:
    """Speed of four equal rotors that carry the drone."""
    c0, c1, c2 = np.asarray(params.rpm2thrust, float).reshape(-1, 3)[0]
    return float((-c1 + np.sqrt(c1 * c1 - 4.0 * c2 * (c0 - weight(params) / 4.0))) / (2.0 * c2))


def gradient(sim: Any) -> Callable[..., Any]:
    """Compiled ``(commands (T, worlds, drones, 4), data) -> gradient`` of a cost of the last state."""
    step = sim.build_step_fn()

    def advance(data: Any, command: Any) -> tuple[Any, None]:
        return step(data.replace(controls=data.controls.replace(rotor_vel=command)), 1), None

    def cost(commands: Any, data: Any) -> Any:
        return _cost(jax.lax.scan(advance, data, commands)[0].states)

    return jax.jit(jax.grad(cost))


def _cost(states: Any) -> Any:
    return jnp.sum(states.pos**2) + jnp.sum(states.vel**2) + jnp.sum(states.ang_vel**2) + jnp.sum(states.quat[..., 0])


class Subject:
    """One simulation and the sets of inputs that its calls go through."""

    def __init__(self, make: Callable[..., Any], spec: Spec) -> None:
        self.spec = spec
        chosen = {key: spec[key] for key in ("drone", "dynamics", "control", "integrator", "device") if key in spec}
        self.sim = make(n_worlds=spec["worlds"], n_drones=spec["drones"], **chosen)
        self.shape = (spec["worlds"], spec["drones"])
        self.calls = 0
        self.function: Callable[..., Any] | None = None
        drawn = [self._drawn(seed) for seed in range(spec.get("variants", VARIANTS))]
        self.variants = [(self._put(values), values["command"]) for values in drawn]

    def _drawn(self, seed: int) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        params = self.sim.data.params
        mass, inertia = weight(params) / 9.81, np.asarray(params.J).reshape(-1, 3, 3)[0]

        def off(*shape: int) -> np.ndarray:
            return rng.uniform(0.9, 1.1, (*self.shape, *shape))

        drawn = {
            "mass": mass * off(1),
            "inertia": inertia * off(3, 1) * np.eye(3),
            "force": rng.uniform(-0.05, 0.05, (*self.shape, 3)),
            **states(rng, self.shape, self.spec["dynamics"], params),
        }
        steps = GRADIENT_STEPS if self.spec.get("gradient") else 1
        if self.spec["control"] == "rotor_vel":
            # Beside the hover speed by a share that does not tumble a drone at once.
            drawn["command"] = hover_rpm(params) * rng.uniform(0.9, 1.1, (steps, *self.shape, 4))
        else:
            base = {"force": weight(params), "pos": drawn["pos"]}
            drawn["command"] = commands(rng, self.shape, self.spec["control"], base, 1)
        drawn["inverse"] = np.linalg.inv(drawn["inertia"])
        return {key: jnp.asarray(value, jnp.zeros(()).dtype) for key, value in drawn.items()}

    def _put(self, values: dict[str, Any]) -> Any:
        """The simulation's data with these values in it."""
        data = self.sim.data
        fresh = {key: values[key] for key in ("pos", "quat", "vel", "ang_vel", "rotor_vel", "force")}
        params = data.params.replace(mass=values["mass"], J=values["inertia"], J_inv=values["inverse"])
        self.sim.data = data.replace(params=params, states=data.states.replace(**fresh))
        if not self.spec.get("gradient"):
            getattr(self.sim, f"{self.spec['control']}_control")(values["command"][0])
        jax.block_until_ready(self.sim.data)
        return self.sim.data

    def call(self, steps: int) -> float:
        """Seconds that one call took, from entering it to having the result; on the next variant."""
        data, commands = self.variants[self.calls % len(self.variants)]
        self.calls += 1
        if self.spec.get("gradient"):
            if self.function is None:
                self.function = gradient(self.sim)
            begin = time.perf_counter()
            jax.block_until_ready(self.function(commands, data))
            return time.perf_counter() - begin
        self.sim.data = data
        begin = time.perf_counter()
        self.sim.step(steps)
        # What one program computes is there all at once, and walking a whole tree costs as much as a small call.
        self.sim.data.states.pos.block_until_ready()
        return time.perf_counter() - begin


def states(rng: Any, shape: tuple[int, ...], dynamics: str, params: Any) -> dict[str, np.ndarray]:
    """States of drones in slow flight 20 m up."""
    quat = np.concatenate([rng.uniform(-0.3, 0.3, (*shape, 3)), np.ones((*shape, 1))], -1)
    drawn = {
        "pos": np.concatenate([rng.uniform(-0.5, 0.5, (*shape, 2)), rng.uniform(19.5, 20.5, (*shape, 1))], -1),
        "quat": quat / np.linalg.norm(quat, axis=-1, keepdims=True),
        "vel": rng.uniform(-1.0, 1.0, (*shape, 3)),
        "ang_vel": rng.uniform(-3.0, 3.0, (*shape, 3)),
    }
    if dynamics == "first_principles":
        drawn["rotor_vel"] = hover_rpm(params) * rng.uniform(0.7, 1.3, (*shape, 4))
    elif dynamics == "so_rpy":
        drawn["rotor_vel"] = np.zeros((*shape, 4))
    else:  # the thrust of the whole drone stands in each entry
        drawn["rotor_vel"] = weight(params) * np.repeat(rng.uniform(0.8, 1.2, (*shape, 1)), 4, -1)
    return drawn


def commands(rng: Any, shape: tuple[int, ...], control: str, base: dict[str, Any], count: int) -> np.ndarray:
    """Smooth random commands (count, *shape, k) about slow flight, of a level above the rotors.

    Args:
        rng: of NumPy.
        shape: worlds, drones.
        control: level.
        base: ``force``: weight in N; ``pos``: where the drones start; ``rpm``: hover speed (rotor level only).
        count: commands, one every 10 ms.
    """
    t = 0.01 * np.arange(count)[:, None, None, None]

    def wave(size: int, amplitude: Any) -> np.ndarray:
        rate, phase = rng.uniform(0.3, 1.5, (*shape, size)), rng.uniform(0.0, 2.0 * np.pi, (*shape, size))
        return np.asarray(amplitude) * rng.uniform(0.5, 1.0, (*shape, size)) * np.sin(2.0 * np.pi * rate * t + phase)

    weight = base["force"]
    if control == "rotor_vel":
        return base["rpm"] * (1.0 + wave(4, 0.2))
    if control == "force_torque":
        return np.concatenate([weight * (1.0 + wave(1, 0.2)), weight * wave(3, (4e-4, 4e-4, 1e-4))], -1)
    if control == "body_rate":
        return np.concatenate([wave(3, (2.0, 2.0, 1.0)), weight * (1.0 + wave(1, 0.2))], -1)
    if control == "attitude":
        return np.concatenate([wave(3, (0.4, 0.4, 0.5)), weight * (1.0 + wave(1, 0.2))], -1)
    if control != "state":
        raise ValueError(f"unknown control level {control!r}")
    half_yaw = wave(1, 0.2)
    flat = np.zeros_like(half_yaw)
    quat = np.concatenate([flat, flat, np.sin(half_yaw), np.cos(half_yaw)], -1)
    near = np.asarray(base["pos"]) + wave(3, 0.3)
    return np.concatenate([near, wave(3, 0.3), wave(3, 0.3), quat, wave(3, 0.2)], -1)


def flight(make: Callable[..., Any], spec: Spec, source: str | None, target: str, seed: int) -> None:
    """Record a flight of 400 steps, a command every 5: drawn from ``seed``, or the one in the file ``source``.

    The file is that of the reference trajectories, with the state after every command.
    """
    chosen = {key: spec[key] for key in ("drone", "dynamics", "control", "integrator")}
    shape = (spec["worlds"], spec["drones"])
    sim = make(n_worlds=shape[0], n_drones=shape[1], **chosen)
    if source is None:
        rng = np.random.default_rng(seed)
        params = sim.data.params
        start = states(rng, shape, spec["dynamics"], params)
        base = {"force": weight(params), "pos": start["pos"]}
        if spec["control"] == "rotor_vel":
            base["rpm"] = hover_rpm(params)
        given = {f"init_{key}": value for key, value in start.items()}
        given["cmd"] = commands(rng, shape, spec["control"], base, 80)
    else:
        with np.load(source) as file:
            given = {key: file[key] for key in file.files if key == "cmd" or key.startswith("init_")}
    names = [key.removeprefix("init_") for key in given if key != "cmd"]
    fresh = {key: jnp.asarray(given[f"init_{key}"]) for key in names}
    sim.data = sim.data.replace(states=sim.data.states.replace(**fresh))
    flown: dict[str, list[np.ndarray]] = {key: [] for key in names}
    for command in given["cmd"]:
        getattr(sim, f"{spec['control']}_control")(jnp.asarray(command))
        sim.step(5)
        for key in names:
            flown[key].append(np.asarray(getattr(sim.data.states, key)))
    np.savez(target, **given, **{key: np.stack(value) for key, value in flown.items()})


def _peak_bytes() -> int:
    """Greatest resident size since the last `_forget_peak`."""
    with contextlib.suppress(OSError), open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _forget_peak() -> None:
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


class Bench:
    """Answers requests about subjects that it keeps by key."""

    def __init__(self, name: str) -> None:
        module = importlib.import_module(name)
        self.name = name.partition(".")[0]
        self.version = getattr(module, "__version__", "")
        self.make = module.Sim
        self.subjects: dict[str, Subject] = {}

    def about(self) -> dict[str, Any]:
        """Versions, flags and where it runs."""
        return {
            "simulator": f"{self.name} {self.version}".strip(),
            "jax": jax.__version__,
            "flags": os.environ.get("XLA_FLAGS", ""),
            "devices": [device.device_kind for device in jax.devices()],
            "platform": jax.default_backend(),
        }

    def prepare(self, key: str, spec: Spec, steps: int) -> dict[str, Any]:
        """Build a subject and call it for the first time, which compiles it."""
        begin = time.perf_counter()
        subject = Subject(self.make, spec)
        built = time.perf_counter() - begin
        first = subject.call(steps)
        subject.call(steps)
        self.subjects[key] = subject
        return {"build_s": built, "first_s": first}

    def time(self, key: str, steps: int, budget_s: float, least: int) -> dict[str, Any]:
        """Seconds of calls: as many as fit the budget, at least ``least``, after one that does not count."""
        subject = self.subjects[key]
        gc.collect()
        subject.call(steps)
        end = time.perf_counter() + budget_s
        taken: list[float] = []
        while len(taken) < least or time.perf_counter() < end:
            taken.append(subject.call(steps))
        return {"seconds": taken}

    def forget(self, key: str) -> dict[str, Any]:
        """Free a subject."""
        self.subjects.pop(key, None)
        gc.collect()
        return {}

    def memory(self, spec: Spec, steps: int) -> dict[str, Any]:
        """Greatest resident bytes while calling, compilation left out."""
        subject = Subject(self.make, dict(spec, variants=1))
        subject.call(steps)
        gc.collect()
        _forget_peak()
        for _ in range(3):
            subject.call(steps)
        return {"bytes": _peak_bytes()}

    def flight(self, spec: Spec, source: str | None, target: str, seed: int) -> dict[str, Any]:
        """Record a flight in a file."""
        flight(self.make, spec, source, target, seed)
        return {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request; an error as text, so that the bench goes on."""
        arguments = {key: value for key, value in request.items() if key != "verb"}
        try:
            return dict(getattr(self, request["verb"])(**arguments))
        except Exception as error:
            traceback.print_exc()
            return {"error": f"{type(error).__name__}: {error}"}


def main(name: str, requests: TextIO, answers: TextIO) -> None:
    """Serve until stdin ends."""
    bench = Bench(name)
    answers.write(json.dumps(bench.about()) + "\n")
    answers.flush()
    for line in requests:
        answers.write(json.dumps(bench.answer(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    # Libraries print; only answers may reach the pipe.
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main(sys.argv[1], sys.stdin, pipe)
