"""One run: a drone just switched on, the hand that throws it, the record of both. Owns no socket and no clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hardware.virtual.nrf import Nrf
from sim.state import ANG_VEL, POS, QUAT, SIZE, VEL
from station import config
from station.judge import tilt_deg
from station.lab import hand
from station.lab import motion as motions
from station.lab import plant as plants
from station.lab.drone import ACTIVE, Drone
from station.lab.sensors import Imu, Mocap
from station.lab.truth import BEFORE_S, RATE_HZ, Recorder, Truth

UNTRACKED_S = 0.4
"""The body is not in the cameras' sight for this long while it is put into the hand."""
_BLOCK = 32
_EVERY = round(1.0 / (plants.DT * RATE_HZ))

News = tuple[str, dict[str, Any]]


class Streams:
    """Independent random generators of one seed, so that no part's draws depend on another's or on timing."""

    def __init__(self, seed: int) -> None:
        plant, throw, imu, mocap, air = np.random.SeedSequence(seed).spawn(5)
        self.plant, self.hand = np.random.default_rng(plant), np.random.default_rng(throw)
        self.imu, self.mocap = np.random.default_rng(imu), np.random.default_rng(mocap)
        self.air_seed = int(air.generate_state(1)[0])


class Flight:
    """A run, ticked once a millisecond.

    Args:
        lab: The lab.
        seed: Of the run, for the record.
        streams: Of that seed.
        plant: Compiled; it is given the drawn drone.
        radio: The drone's, fresh.
        now: Host time of tick 0.
    """

    def __init__(
        self, lab: config.LabConfig, seed: int, streams: Streams, plant: plants.Plant, radio: Nrf, now: float
    ) -> None:
        self.seed = seed
        self.mocap = Mocap(lab, streams.mocap, now)
        self._lags = np.zeros(round(BEFORE_S / plants.DT))  # a ring until the release
        self._lag_max_s = 0.0
        self._drawn = plants.draw(plant.nominal, lab, streams.plant)
        self._script = hand.draw(lab.hand, streams.hand)
        self._imu = Imu(lab, streams.imu)
        self._drone = Drone(plant.nominal, radio)
        self._plant = plant
        plant.reset(self._drawn.params)
        release = self._script.release
        self._free_acc = plant.free_acceleration(release.pos, release.quat, release.vel, release.ang_vel)
        self._motion = hand.carry(self._script)
        self._block: tuple[Any, ...] = ()
        self._block_start = 0
        self._command: Sequence[float] = (0.0, 0.0, 0.0, 0.0)
        self._k = -1
        self._held = True
        self._opened = False
        self._given_up = False
        self._moments: dict[str, float] = {}
        self._recorder = Recorder()

    @property
    def pose(self) -> tuple[Any, Any]:
        """Position (3,) and attitude (4,) now; views into the plant."""
        return self._plant.state[POS], self._plant.state[QUAT]

    @property
    def tracked(self) -> bool:
        """Whether the cameras see the body."""
        return self._k * plants.DT >= UNTRACKED_S

    @property
    def thrown(self) -> bool:
        """Whether the hand has let go."""
        return not self._held

    @property
    def lag_max_s(self) -> float:
        """The plant's greatest lag behind the host from 1 s before the release until the drone is on the floor."""
        return max(self._lag_max_s, float(self._lags.max()))

    def tick(self, due: float, now: Callable[[], float]) -> list[News]:
        """One millisecond: body, instruments, drone, record.

        Args:
            due: Host time that this tick stands for.
            now: The host's clock; what it is later than ``due`` is the plant's lag.

        Returns:
            What happened: "released", "activated", "touchdown", each once at most.
        """
        news: list[News] = []
        self._k += 1
        t, state = self._k * plants.DT, self._plant.state
        if self._held:
            self._watch_window(t)
            self._carry(t)
            if t >= self._motion.t_release - 0.5 * plants.DT:
                self._held = False
        else:
            before = state[:SIZE].copy() if state[2] < 0.05 and "touchdown" not in self._moments else None
            self._plant.step(self._command)
            if before is not None and state[2] <= 0.0:
                news.append(self._touchdown(before))
        read = self._imu.measure(state[ANG_VEL].tolist() + state[plants.FORCE].tolist())
        self._command = self._drone.tick(read[:3], read[3:])
        if not self._held and "activation" not in self._moments and self._drone.lights.control == ACTIVE:
            news.append(("activated", {}))

        t_host = now()
        if self._held:
            self._lags[self._k % len(self._lags)] = t_host - due
        elif "touchdown" not in self._moments:
            self._lag_max_s = max(self._lag_max_s, t_host - due)
        if not self._held and "release" not in self._moments:
            news.insert(0, ("released", {}))
        for index, (name, data) in enumerate(news):
            moment = {"released": "release", "activated": "activation"}.get(name, name)
            self._moments[moment] = t_host
            self._moments[f"{moment}_plant"] = t
            news[index] = (name, {"t_host": t_host, **data})
        if self._k % _EVERY == 0 or news:
            self._recorder.add(t, t_host, state[:SIZE])
        if news and news[0][0] == "released":
            self._recorder.release()
        return news

    def _watch_window(self, t: float) -> None:
        """The hand sees the drone's light: on while its throw window is open."""
        is_open = self._drone.lights.window_open
        if is_open and not self._opened:
            self._opened = True
            self._motion = hand.throw(self._script, self._motion, t, self._free_acc)
        elif self._opened and not is_open and not self._given_up:
            self._given_up = True
            self._motion = hand.stop(self._script, self._motion, t)
        else:
            return
        self._block = ()

    def _carry(self, t: float) -> None:
        self._plant.step(self._command)  # the rotors are free to turn in a hand
        if not self._block or self._k >= self._block_start + _BLOCK:
            self._block_start = self._k
            self._block = motions.evaluate(self._motion, t + plants.DT * np.arange(_BLOCK))
        i = self._k - self._block_start
        self._plant.hold(*(x[i] for x in self._block))

    def _touchdown(self, before: Any) -> News:
        speed, tilt = float(np.linalg.norm(before[VEL])), float(tilt_deg(before[None, QUAT])[0])
        self._moments["touchdown_mps"], self._moments["touchdown_tilt_deg"] = speed, tilt
        return "touchdown", {"speed_mps": speed, "tilt_deg": tilt}

    def truth(self) -> Truth:
        """What happened so far, times from the release (from tick 0 when there was none)."""
        zero_plant, zero_host = self._moments.get("release_plant", 0.0), self._moments.get("release", 0.0)
        scalars: dict[str, float] = {"seed": float(self.seed), "plant_lag_max_s": self.lag_max_s}
        for name in ("release", "activation", "touchdown"):
            scalars[f"{name}_s"] = self._moments.get(name, math.nan) - zero_host
            scalars[f"{name}_plant_s"] = self._moments.get(f"{name}_plant", math.nan) - zero_plant
        scalars["release_s"] = self._moments.get("release", math.nan)
        for name in ("touchdown_mps", "touchdown_tilt_deg"):
            scalars[name] = self._moments.get(name, math.nan)
        scalars |= {f"factor_{name}": value for name, value in self._drawn.factors.items()}
        return self._recorder.truth(zero_plant, zero_host, scalars)
