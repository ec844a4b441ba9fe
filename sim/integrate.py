"""Integrators on positions, velocities and rotations: the attitude stays a unit quaternion. Know no forces.

Each takes ``f(x) -> tangent``, the 17 components ``x`` and the step ``dt`` in seconds, and returns the next 17. A
tangent is 16 components: vel 3, ang_vel 3 (body), acc 3, ang_acc 3 (body), rotor acceleration 4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sim import rotation
from sim.state import ANG_VEL, POS, QUAT, ROTOR, VEL, Components

Tangent = tuple[Any, ...]
Field = Callable[[Components], Tangent]


def _moved(x: Components, vel: tuple, turned: tuple, rates: tuple, dt: float) -> Components:
    pos = tuple(p + dt * v for p, v in zip(x[POS], vel, strict=True))
    quat = rotation.turn(x[QUAT], tuple(dt * w for w in turned))
    return (*pos, *quat, *(a + dt * b for a, b in zip(x[VEL] + x[ANG_VEL] + x[ROTOR], rates, strict=True)))


def euler(f: Field, x: Components, dt: float) -> Components:
    """Explicit Euler: everything moves at old rates, the attitude by the exact exponential. Order 1."""
    d = f(x)
    return _moved(x, d[0:3], d[3:6], d[6:16], dt)


def symplectic_euler(f: Field, x: Components, dt: float) -> Components:
    """Semi-implicit Euler: velocities first, then position and attitude with the new ones. Order 1."""
    d = f(x)
    vel = tuple(v + dt * a for v, a in zip(x[VEL], d[6:9], strict=True))
    ang_vel = tuple(w + dt * a for w, a in zip(x[ANG_VEL], d[9:12], strict=True))
    return _moved(x, vel, ang_vel, d[6:16], dt)


def _rotvec_rate(v: tuple, w: tuple) -> tuple:
    # Rate of the rotation vector v whose exponential turns at body rate w: dexp^-1 as far as order 4 needs it.
    a = rotation.cross(v, w)
    b = rotation.cross(v, a)
    return tuple(w + 0.5 * a + b / 12.0 for w, a, b in zip(w, a, b, strict=True))


def rk4(f: Field, x: Components, dt: float) -> Components:
    """Classical Runge-Kutta, the body rates averaged as they are, as the peer does; the command is held.

    Order 4 in what does not turn. Rates about axes that change in a step do not add up to its rotation: order 2 in the
    attitude of a tumbling drone, which `rkmk4` cures.
    """
    k1 = f(x)
    k2 = f(_moved(x, k1[0:3], k1[3:6], k1[6:16], 0.5 * dt))
    k3 = f(_moved(x, k2[0:3], k2[3:6], k2[6:16], 0.5 * dt))
    k4 = f(_moved(x, k3[0:3], k3[3:6], k3[6:16], dt))
    mean = tuple((a + 2.0 * (b + c) + d) / 6.0 for a, b, c, d in zip(k1, k2, k3, k4, strict=True))
    return _moved(x, mean[0:3], mean[3:6], mean[6:16], dt)


def rkmk4(f: Field, x: Components, dt: float) -> Components:
    """Runge-Kutta-Munthe-Kaas, order 4 while no rotor switches between rise and fall; the command is held."""
    k1 = f(x)
    k2 = f(_moved(x, k1[0:3], k1[3:6], k1[6:16], 0.5 * dt))
    turn2 = tuple(0.5 * dt * w for w in k1[3:6])
    w2 = _rotvec_rate(turn2, k2[3:6])
    k3 = f(_moved(x, k2[0:3], w2, k2[6:16], 0.5 * dt))
    w3 = _rotvec_rate(tuple(0.5 * dt * w for w in w2), k3[3:6])
    k4 = f(_moved(x, k3[0:3], w3, k3[6:16], dt))
    w4 = _rotvec_rate(tuple(dt * w for w in w3), k4[3:6])
    slopes = zip(k1, *(k[0:3] + w + k[6:16] for k, w in ((k2, w2), (k3, w3), (k4, w4))), strict=True)
    mean = tuple((a + 2.0 * (b + c) + d) / 6.0 for a, b, c, d in slopes)
    return _moved(x, mean[0:3], mean[3:6], mean[6:16], dt)


INTEGRATORS = {"euler": euler, "symplectic_euler": symplectic_euler, "rk4": rk4, "rkmk4": rkmk4}
