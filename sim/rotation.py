"""Rotations as component tuples: quaternions xyzw, body to world. Every function is smooth where it matters.

No square root, arc cosine or division by an angle is taken at zero, so gradients are finite at rest and at zero rate.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

Vec3 = tuple[Any, Any, Any]
Quat = tuple[Any, Any, Any, Any]
Matrix = tuple[Any, Any, Any, Any, Any, Any, Any, Any, Any]
"""Row-major 3 x 3."""

_HALF_TURN = (0.5 * math.pi) ** 2
_COS = tuple((-1.0) ** n / math.factorial(2 * n) for n in range(11))
_SINC = tuple((-1.0) ** n / math.factorial(2 * n + 1) for n in range(11))


def matrix(q: Quat) -> Matrix:
    """Rotation matrix (body to world) of a unit quaternion."""
    x, y, z, w = q
    x2, y2, z2 = x + x, y + y, z + z
    xx, yy, zz = x * x2, y * y2, z * z2
    xy, xz, yz = x * y2, x * z2, y * z2
    wx, wy, wz = w * x2, w * y2, w * z2
    return (
        1.0 - (yy + zz), xy - wz, xz + wy,
        xy + wz, 1.0 - (xx + zz), yz - wx,
        xz - wy, yz + wx, 1.0 - (xx + yy),
    )  # fmt: skip


def rotate(R: Matrix, v: Vec3) -> Vec3:
    """R v: from body to world."""
    return (
        R[0] * v[0] + R[1] * v[1] + R[2] * v[2],
        R[3] * v[0] + R[4] * v[1] + R[5] * v[2],
        R[6] * v[0] + R[7] * v[1] + R[8] * v[2],
    )


def rotate_back(R: Matrix, v: Vec3) -> Vec3:
    """R^T v: from world to body."""
    return (
        R[0] * v[0] + R[3] * v[1] + R[6] * v[2],
        R[1] * v[0] + R[4] * v[1] + R[7] * v[2],
        R[2] * v[0] + R[5] * v[1] + R[8] * v[2],
    )


def cross(a: Vec3, b: Vec3) -> Vec3:
    """Vector product a x b."""
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])


def multiply(a: Quat, b: Quat) -> Quat:
    """Hamilton product: first b, then a."""
    ax, ay, az, aw = a
    bx, by, bz, bw = b
    return (
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
        aw * bw - ax * bx - ay * by - az * bz,
    )


def normalize(q: Quat) -> Quat:
    """The unit quaternion along ``q``."""
    x, y, z, w = q
    scale = 1.0 / jnp.sqrt(x * x + y * y + z * z + w * w)
    return (x * scale, y * scale, z * scale, w * scale)


def exp(v: Vec3) -> Quat:
    """Unit quaternion of the rotation vector ``v`` (rad).

    cos and sinc of the half angle are evaluated as power series in its square: no square root, no branch, all
    derivatives finite at zero, exact to rounding in the dtype up to half a turn. Beyond half a turn (1,570 rad/s at
    500 Hz, where a sampled rotation is ambiguous anyway) the angle is held there, so the result stays a rotation.
    """
    hx, hy, hz = 0.5 * v[0], 0.5 * v[1], 0.5 * v[2]
    u = jnp.minimum(hx * hx + hy * hy + hz * hz, _HALF_TURN)
    terms = 11 if jnp.result_type(u) == jnp.float64 else 7
    cos, sinc = _COS[terms - 1], _SINC[terms - 1]
    for a, b in zip(_COS[terms - 2 :: -1], _SINC[terms - 2 :: -1], strict=True):
        cos, sinc = cos * u + a, sinc * u + b
    return (hx * sinc, hy * sinc, hz * sinc, cos)


def turn(q: Quat, v: Vec3) -> Quat:
    """``q`` turned by the body-frame rotation vector ``v`` (rad), renormalised."""
    return normalize(multiply(q, exp(v)))


_ATAN = (
    0.999999986, -0.333330939, 0.199930538, -0.142071315, 0.106546688, -0.075336574, 0.0430391445, -0.0162828691,
    0.00290351747,
)  # fmt: skip
"""atan(t) / t on 0..1 in t^2, lowest first; a fit of least greatest error."""
_TINY = 1e-30  # kept under roots and divisors, so that a gradient is finite where an angle is not defined


def sqrt(v: Any) -> Any:
    """Square root that has a finite (zero) slope at zero and below."""
    safe = v > _TINY
    return jnp.where(safe, jnp.sqrt(jnp.where(safe, v, 1.0)), 0.0)


def direction(c: Any, s: Any) -> tuple[Any, Any]:
    """Cosine and sine of the angle of (c, s); (1, 0) where both are zero."""
    n = c * c + s * s
    known = n > _TINY
    scale = 1.0 / jnp.sqrt(jnp.where(known, n, 1.0))
    return jnp.where(known, c * scale, 1.0), jnp.where(known, s * scale, 0.0)


def angle(s: Any, c: Any) -> Any:
    """atan2(s, c); zero with zero slope where both are zero.

    In float32 a polynomial in the smaller over the greater of both (error below 2e-7): XLA on the CPU calls a library
    for each single arc tangent, which takes longer than all the rest of a step of the so_rpy family.
    """
    known = c * c + s * s > _TINY
    s, c = jnp.where(known, s, 0.0), jnp.where(known, c, 1.0)
    if jnp.result_type(s) != jnp.float32:
        return jnp.arctan2(s, c)
    steep = s * s > c * c
    t = jnp.where(steep, c, s) / jnp.where(steep, s, c)
    u, p = t * t, _ATAN[-1]
    for a in _ATAN[-2::-1]:
        p = p * u + a
    p = p * t
    behind = jnp.where(s < 0.0, -math.pi, math.pi)
    return jnp.where(steep, 0.5 * behind - p, jnp.where(c < 0.0, p + behind, p))


def half(c: Any, s: Any) -> tuple[Any, Any]:
    """Cosine and sine of half the angle whose cosine and sine are given, both up to one common sign."""
    big = jnp.sqrt(0.5 + 0.5 * jnp.abs(c))
    small = 0.5 * s / big
    front = c >= 0.0
    return jnp.where(front, big, small), jnp.where(front, small, big)


def euler(q: Quat) -> Vec3:
    """Roll, pitch, yaw (rad) about the fixed axes x, y, z in this order."""
    R = matrix(q)
    return (
        angle(R[7], R[8]),
        angle(-R[6], sqrt(R[7] * R[7] + R[8] * R[8])),
        angle(R[3], R[0]),
    )


def from_euler(rpy: Vec3) -> Quat:
    """Quaternion of roll, pitch, yaw (rad): yaw after pitch after roll."""
    (cr, sr), (cp, sp), (cy, sy) = ((jnp.cos(0.5 * a), jnp.sin(0.5 * a)) for a in rpy)
    return (
        sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy,
        cr * cp * sy - sr * sp * cy,
        cr * cp * cy + sr * sp * sy,
    )
