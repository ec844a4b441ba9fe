"""Attitude algebra on plain floats for one body at frame rate. Not for batches: numpy and JAX have their own.

Quaternions are xyzw tuples, body to world. A tuple of floats costs a tenth of a small numpy array here.
"""

from __future__ import annotations

import math

Vec3 = tuple[float, float, float]
Quat = tuple[float, float, float, float]
Mat3 = tuple[Vec3, Vec3, Vec3]

IDENTITY: Quat = (0.0, 0.0, 0.0, 1.0)


def multiply(a: Quat, b: Quat) -> Quat:
    """Hamilton product: rotate by ``b``, then by ``a``."""
    ax, ay, az, aw = a
    bx, by, bz, bw = b
    return (
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
        aw * bw - ax * bx - ay * by - az * bz,
    )


def conjugate(q: Quat) -> Quat:
    """The inverse of a unit quaternion."""
    return (-q[0], -q[1], -q[2], q[3])


def normalize(q: Quat) -> Quat:
    """The unit quaternion along ``q``, which must not be zero."""
    x, y, z, w = q
    n = 1.0 / math.sqrt(x * x + y * y + z * z + w * w)
    return (x * n, y * n, z * n, w * n)


def exp(v: Vec3) -> Quat:
    """Rotation vector (rad) to quaternion."""
    x, y, z = v
    angle2 = x * x + y * y + z * z
    if angle2 < 1e-8:
        s = 0.5 - angle2 / 48.0
        return (x * s, y * s, z * s, 1.0 - angle2 / 8.0)
    angle = math.sqrt(angle2)
    s = math.sin(0.5 * angle) / angle
    return (x * s, y * s, z * s, math.cos(0.5 * angle))


def log(q: Quat) -> Vec3:
    """Rotation vector (rad) of the shorter arc; ``q`` and ``-q`` give the same."""
    x, y, z, w = q
    if w < 0.0:
        x, y, z, w = -x, -y, -z, -w
    s2 = x * x + y * y + z * z
    if s2 < 1e-12:
        return (2.0 * x, 2.0 * y, 2.0 * z)
    s = math.sqrt(s2)
    k = 2.0 * math.atan2(s, w) / s
    return (x * k, y * k, z * k)


def difference(a: Quat, b: Quat) -> Vec3:
    """Rotation vector, in the frame of ``a``, that turns ``a`` into ``b`` by the shorter arc."""
    return log(multiply(conjugate(a), b))


def matrix(q: Quat) -> Mat3:
    """Rotation matrix, rows first; its columns are the body axes in the world."""
    x, y, z, w = q
    return (
        (1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - z * w), 2.0 * (x * z + y * w)),
        (2.0 * (x * y + z * w), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - x * w)),
        (2.0 * (x * z - y * w), 2.0 * (y * z + x * w), 1.0 - 2.0 * (x * x + y * y)),
    )
