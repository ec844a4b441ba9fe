"""The onboard network: what it sees, its layers, its order in memory, its half-precision bytes. Trains nothing.

`firmware_patches/src/policy.c` is the same network in C; the tests hold both to the same figures. Observations are
free of heading (only the world's up axis enters), because a net this small wastes its width on learning that yaw
does not matter. Components have the batch in the LAST axis; ``xp`` is the array library (`jax.numpy` inside
programs, `numpy` for checks).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sim import rotation

Array = Any
"""An array of ``xp``, or a float where a single drone is meant."""
Four = tuple[Array, Array, Array, Array]
Three = tuple[Array, Array, Array]


@dataclass(frozen=True)
class Architecture:
    """One row of the wire's table of networks: ReLU in hidden layers, tanh at the output."""

    id: int
    sizes: tuple[int, ...]

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """(in, out) of each layer."""
        return tuple(zip(self.sizes[:-1], self.sizes[1:], strict=True))

    @property
    def parameters(self) -> int:
        """Number of weights and biases."""
        return sum((n_in + 1) * n_out for n_in, n_out in self.shapes)


ARCHITECTURES = {
    1: Architecture(1, (20, 8, 8, 4)),
    2: Architecture(2, (20, 16, 16, 4)),
    3: Architecture(3, (36, 16, 16, 4)),
}
RECOVERY = ARCHITECTURES[1]
"""The network of a throw."""

VELOCITY_SCALE, RATE_SCALE, CLIMB_SCALE = 0.6, 0.15, 0.5
IDLE_ACTION = -1.0
"""What "previous action" means at a policy's first tick: all rotors at minimum thrust."""
CONTROL_HZ = 500.0


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Network:
    """Weights W[i] (in, out) and biases b[i] (out,)."""

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]


def features(up: Three, body_vel: Three, climb: Array, ang_vel: Three, error: Array, previous: Four) -> tuple:
    """The 20 inputs in their order, from quantities that are already in the body frame.

    Args:
        up: world's up axis in the body frame.
        body_vel: velocity in the body frame, m/s.
        climb: vertical world velocity, m/s.
        ang_vel: body rate, rad/s.
        error: tanh(height - target height).
        previous: action of the tick before, [-1, 1].
    """
    gx, gy, gz = up
    vx, vy, vz = (VELOCITY_SCALE * v for v in body_vel)
    wx, wy, wz = (RATE_SCALE * w for w in ang_vel)
    products = (gx * gz, gy * gz, error * gz, vx * gz, vy * gz)
    return (gx, gy, gz, vx, vy, vz, wx, wy, wz, error, CLIMB_SCALE * climb, *previous, *products)


def observe(
    height: Array, quat: Four, vel: Three, ang_vel: Three, previous: Four, target: Array, xp: ModuleType = jnp
) -> tuple:
    """The 20 inputs from components of a state.

    Args:
        height: z of the centre of mass, world, m.
        quat: xyzw, body to world, unit.
        vel: world, m/s.
        ang_vel: body, rad/s.
        previous: action of the tick before, rotors 0..3.
        target: height to recover to, m.
        xp: array library.
    """
    R = rotation.matrix(quat)
    return features(R[6:9], rotation.rotate_back(R, vel), vel[2], ang_vel, xp.tanh(height - target), previous)


def init(key: Array, arch: Architecture = RECOVERY) -> Network:
    """Untrained network: W ~ N(0, 1/in), the last layer a tenth of that, so that it starts near half thrust."""
    keys = jax.random.split(key, len(arch.shapes))
    last = len(arch.shapes) - 1
    weights = tuple(
        jax.random.normal(keys[i], shape) * (n_in**-0.5 * (0.1 if i == last else 1.0))
        for i, (shape, n_in) in enumerate(zip(arch.shapes, arch.sizes, strict=False))
    )
    return Network(weights, tuple(jnp.zeros(n_out) for _, n_out in arch.shapes))


def _affine(weight: Array, bias: Array, columns: Any) -> Array:
    # A sum of outer products, one per input: XLA fuses these on the CPU, where a dot of this size costs twice as much.
    total = bias[:, None]
    for i in range(weight.shape[0]):
        total = total + weight[i][:, None] * columns[i][None, :]
    return total


def _layers(network: Network, inputs: tuple) -> list[Array]:
    # Outputs of each layer, (out, batch).
    last = len(network.weights) - 1
    outputs: list[Array] = []
    for layer, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        total = _affine(weight, bias, outputs[-1] if outputs else inputs)
        outputs.append(jnp.tanh(total) if layer == last else jnp.maximum(total, 0.0))
    return outputs


@jax.custom_vjp
def forward(network: Network, inputs: tuple) -> Array:
    """Actions (4, batch) in [-1, 1] of inputs given as a tuple of (batch,) arrays.

    Its derivative is written out: the transpose of the unrolled sums runs no faster but takes JAX and XLA three times
    as long to compile (40 s against 15 s for a training).
    """
    return _layers(network, inputs)[-1]


def _forward(network: Network, inputs: tuple) -> tuple[Array, tuple]:
    outputs = _layers(network, inputs)
    return outputs[-1], (network, jnp.stack(inputs), outputs)


def _backward(kept: tuple, slope: Array) -> tuple[Network, tuple]:
    network, inputs, outputs = kept
    delta = slope * (1.0 - outputs[-1] * outputs[-1])
    weights: list[Array] = []
    biases: list[Array] = []
    for layer in reversed(range(len(outputs))):
        below = outputs[layer - 1] if layer else inputs
        weights.insert(0, (below[:, None, :] * delta[None, :, :]).sum(-1))
        biases.insert(0, delta.sum(-1))
        weight = network.weights[layer].T
        slope = _affine(weight, jnp.zeros(weight.shape[1]), delta)
        delta = jnp.where(below > 0.0, slope, 0.0)
    return Network(tuple(weights), tuple(biases)), tuple(slope[i] for i in range(inputs.shape[0]))


forward.defvjp(_forward, _backward)


def act(network: Network, inputs: Array) -> Array:
    """Actions (..., 4) of observations (..., in): the plain reading of the network, in numpy and float32."""
    x = np.asarray(inputs, np.float32)
    last = len(network.weights) - 1
    for layer, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        x = x @ np.asarray(weight, np.float32) + np.asarray(bias, np.float32)
        x = np.tanh(x) if layer == last else np.maximum(x, np.float32(0.0))
    return x


def flatten(network: Network, xp: ModuleType = jnp) -> Array:
    """(parameters,) in the wire's order: W0 row-major [in][out], b0, W1, b1, W2, b2."""
    parts = [part.reshape(-1) for pair in zip(network.weights, network.biases, strict=True) for part in pair]
    return xp.concatenate(parts)


def unflatten(flat: Array, arch: Architecture = RECOVERY) -> Network:
    """Inverse of `flatten`; raises ValueError for another number of parameters than the architecture's."""
    if flat.shape != (arch.parameters,):
        raise ValueError(f"{flat.shape} parameters for architecture {arch.id}, which has ({arch.parameters},)")
    weights, biases, at = [], [], 0
    for n_in, n_out in arch.shapes:
        weights.append(flat[at : at + n_in * n_out].reshape(n_in, n_out))
        at += n_in * n_out
        biases.append(flat[at : at + n_out])
        at += n_out
    return Network(tuple(weights), tuple(biases))


def to_halves(flat: Array) -> bytes:
    """Parameters as the image that flies: fp16, little endian. Raises ValueError if one is not finite or > 64."""
    flat = np.asarray(flat)
    if not np.all(np.abs(flat) <= 64.0):
        raise ValueError(f"a parameter is {flat[np.argmin(np.abs(flat) <= 64.0)]}, the drone takes finite up to 64")
    return flat.astype("<f2").tobytes()


def from_halves(image: bytes, arch: Architecture = RECOVERY) -> Network:
    """The network as the drone computes it: half-precision parameters, in numpy float32."""
    return unflatten(np.frombuffer(image, "<f2").astype(np.float32), arch)


def crc(image: bytes) -> int:
    """CRC32 of zlib over the image."""
    return zlib.crc32(image) & 0xFFFFFFFF


def canned_observation(arch: Architecture = RECOVERY) -> np.ndarray:
    """(in,) the fixed input on which drone and ground compare a network after an upload: 0.1 (i mod 7) - 0.3."""
    return (0.1 * (np.arange(arch.sizes[0]) % 7) - 0.3).astype(np.float32)


def expected_outputs(image: bytes, arch: Architecture = RECOVERY) -> tuple[float, float, float, float]:
    """Actions of the half-precision network on the canned observation, computed in float32."""
    a0, a1, a2, a3 = (float(a) for a in act(from_halves(image, arch), canned_observation(arch)))
    return a0, a1, a2, a3


def rotor_rpm(action: Array, thrust_range: tuple[Array, Array], rpm2thrust: Array, xp: ModuleType = jnp) -> Array:
    """Rotor speed of an action: linear in thrust between minimum and maximum, then the inverse thrust curve.

    f = fmin + (a + 1)/2 (fmax - fmin);  rpm = (-k1 + √(k1² - 4 k2 (k0 - f))) / (2 k2), f in N per rotor.
    """
    k0, k1, k2 = rpm2thrust[0], rpm2thrust[1], rpm2thrust[2]
    low, high = thrust_range
    thrust = low + 0.5 * (action + 1.0) * (high - low)
    return (xp.sqrt(k1 * k1 - 4.0 * k2 * (k0 - thrust)) - k1) / (2.0 * k2)


def action_of_thrust(thrust: Array, thrust_range: tuple[Array, Array]) -> Array:
    """Action whose rotor thrust (N) is this; inverse of the first half of `rotor_rpm`."""
    low, high = thrust_range
    return 2.0 * (thrust - low) / (high - low) - 1.0
