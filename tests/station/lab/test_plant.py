"""The plant: what is drawn, the start delay, free fall, damping, and a floor that ends nothing in NaN."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np
import pytest

from sim.errors import ConfigError
from station import config
from station.lab import plant as plants

OFF = (0.0, 0.0, 0.0, 0.0)
LAB = config.LabConfig()


@pytest.fixture(scope="module")
def plant() -> Iterator[plants.Plant]:
    with jax.enable_x64(True):
        yield plants.Plant("cf21B_500", LAB.start_delay_s)


@pytest.fixture
def fresh(plant: plants.Plant) -> plants.Plant:
    plant.reset(plant.nominal)
    plant.state[2] = 2.0
    return plant


def fly(plant: plants.Plant, steps: int, command: tuple[float, ...] = OFF) -> np.ndarray:
    rows = []
    for _ in range(steps):
        plant.step(command)
        rows.append(plant.state.copy())
    return np.array(rows)


def test_parameters_are_drawn_within_the_mismatch_and_fill_it(plant: plants.Plant) -> None:
    drawn = [plants.draw(plant.nominal, LAB, np.random.default_rng(seed)) for seed in range(200)]
    for name in drawn[0].factors:
        low, high = (0.2, 1.0) if name == "rot_damping" else (0.95, 1.05)
        values = np.array([d.factors[name] for d in drawn])
        assert low <= values.min() < values.max() <= high, name
        assert np.ptp(values) > 0.7 * (high - low), name
    nominal, other = plant.nominal, drawn[7]
    assert other.params.mass == pytest.approx(nominal.mass * other.factors["mass"])
    assert other.params.inertia[1, 1] == pytest.approx(nominal.inertia[1, 1] * other.factors["inertia_y"])
    assert other.params.drag[2, 2] == pytest.approx(nominal.drag[2, 2] * other.factors["drag_z"])
    np.testing.assert_allclose(other.params.rpm2thrust, nominal.rpm2thrust * other.factors["thrust_curve"])
    np.testing.assert_allclose(other.params.rpm2torque, nominal.rpm2torque * other.factors["torque_curve"])
    np.testing.assert_allclose(other.params.rotor_coef * other.factors["rotor_lag"], nominal.rotor_coef)


def test_inertia_stays_that_of_a_rigid_body_at_any_mismatch(plant: plants.Plant) -> None:
    wide = config.LabConfig(mismatch=0.5)
    for seed in range(100):
        moments = np.diagonal(plants.draw(plant.nominal, wide, np.random.default_rng(seed)).params.inertia)
        assert 2 * moments.max() <= moments.sum()


def test_no_mismatch_is_the_nominal_drone_but_for_damping(plant: plants.Plant) -> None:
    exact = plants.draw(plant.nominal, config.LabConfig(mismatch=0.0), np.random.default_rng(0))
    assert {value for name, value in exact.factors.items() if name != "rot_damping"} == {1.0}


def test_same_seed_same_plant(plant: plants.Plant) -> None:
    one, same, other = (plants.draw(plant.nominal, LAB, np.random.default_rng(s)).factors for s in (5, 5, 6))
    assert one == same != other


def test_rotors_start_60_ms_after_the_command(fresh: plants.Plant) -> None:
    rpm = fly(fresh, 80, (12000.0,) * 4)[:, 13:17]
    assert not rpm[:60].any()
    assert (rpm[60:] > 0.0).all()


def test_spinning_rotor_follows_without_delay(fresh: plants.Plant) -> None:
    fly(fresh, 400, (9000.0,) * 4)
    before = fresh.state[13:17].copy()
    fresh.step((14000.0,) * 4)
    assert (fresh.state[13:17] > before + 20.0).all()


def test_interrupted_start_begins_again(fresh: plants.Plant) -> None:
    fly(fresh, 50, (12000.0,) * 4)
    fly(fresh, 1)
    assert not fly(fresh, 59, (12000.0,) * 4)[:, 13:17].any()


def test_each_motor_waits_for_itself(fresh: plants.Plant) -> None:
    fly(fresh, 40, (8000.0, 0.0, 0.0, 0.0))
    rpm = fly(fresh, 61, (8000.0,) * 4)[:, 13:17]
    assert rpm[25, 0] > 0.0 and not rpm[25, 1:].any()
    assert (rpm[-1, 1:] > 0.0).all()


def test_unpowered_drone_falls_by_gravity_and_drag(fresh: plants.Plant) -> None:
    fresh.state[7:10] = (0.0, 0.0, 3.0)
    rows = fly(fresh, 400)
    # m dv/dt = -m g - c v, solved: v = (v0 + m g / c) exp(-c t / m) - m g / c.
    m, g, c = float(fresh.nominal.mass), 9.81, -float(fresh.nominal.drag[2, 2])
    t = plants.DT * np.arange(1, 401)
    np.testing.assert_allclose(rows[:, 9], (3.0 + m * g / c) * np.exp(-c * t / m) - m * g / c, atol=1e-9)
    # An ideal accelerometer feels drag alone.
    np.testing.assert_allclose(rows[:, 23], -c / m * rows[:, 9], atol=0.01)


def test_damping_takes_spin_away(plant: plants.Plant) -> None:
    drawn = plants.draw(plant.nominal, LAB, np.random.default_rng(2))
    plant.reset(drawn.params)
    plant.state[2] = 50.0
    plant.state[10:13] = (0.0, 0.0, 4.0)
    rows = fly(plant, 1000)
    assert rows[-1, 12] == pytest.approx(4.0 * np.exp(-drawn.factors["rot_damping"]), rel=1e-6)


def test_release_acceleration_is_what_the_first_free_step_does(fresh: plants.Plant) -> None:
    pos, quat = np.array([0.1, 0.2, 1.5]), np.array([0.1, -0.2, 0.3, 0.0])
    quat[3] = np.sqrt(1.0 - quat[:3] @ quat[:3])
    vel, ang_vel = np.array([0.5, -0.3, 3.0]), np.array([1.0, -2.0, 3.0])
    free = fresh.free_acceleration(pos, quat, vel, ang_vel)
    fresh.hold(pos, quat, vel, ang_vel, free[:3])
    held = fresh.state[plants.FORCE].copy()
    fresh.step(OFF)
    np.testing.assert_allclose((fresh.state[7:10] - vel) / plants.DT, free[:3], atol=1e-9)
    np.testing.assert_allclose((fresh.state[10:13] - ang_vel) / plants.DT, free[3:], atol=1e-9)
    np.testing.assert_allclose(fresh.state[plants.FORCE], held, atol=0.01)


def test_held_level_at_rest_the_accelerometer_feels_one_g(fresh: plants.Plant) -> None:
    level = np.array([0.0, 0.0, 0.0, 1.0])
    fresh.hold(np.array([0.0, 0.0, 1.0]), level, np.zeros(3), np.zeros(3), np.zeros(3))
    np.testing.assert_allclose(fresh.state[plants.FORCE], (0.0, 0.0, 9.81))


def test_floor_stops_the_drone_and_lets_it_lie(fresh: plants.Plant) -> None:
    fresh.state[7:13] = (1.0, 0.0, -5.0, 10.0, 8.0, 6.0)
    rows = fly(fresh, 3000)
    assert np.isfinite(rows).all()
    assert rows[:, 2].min() == 0.0
    np.testing.assert_array_equal(rows[-1, 7:13], 0.0)
    np.testing.assert_allclose(np.linalg.norm(rows[-1, plants.FORCE]), 9.81, atol=1e-9)


def test_drone_takes_off_from_the_floor(fresh: plants.Plant) -> None:
    fresh.state[2] = 0.0
    rows = fly(fresh, 1000, (19000.0,) * 4)
    assert rows[-1, 2] > 0.3
    assert rows[:, 2].min() >= 0.0


def test_unknown_drone_is_named() -> None:
    with pytest.raises(ConfigError, match="cf99"):
        plants.Plant("cf99", 0.06)
