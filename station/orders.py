"""Requests to the onboard app that are repeated until it answers. Pure: bytes and times in, bytes and outcomes out.

Every request of the wire is idempotent, so repeating one is safe (`firmware_patches/src/wire.h`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hardware.crtp import Packet

REPEAT_S = 0.012
"""Two packet times and the answer's way through the app task."""
TRIES = 12


@dataclass(frozen=True)
class Order:
    """A request on its way."""

    command: int
    packet: Packet
    due: float
    tries: int = 1


@dataclass(frozen=True)
class Orders:
    """All requests without an answer; at most one of a command, the newest."""

    waiting: tuple[Order, ...] = ()


def send(orders: Orders, command: int, packet: Packet, now: float) -> tuple[Orders, list[Packet]]:
    """Take a new request; it replaces an older one of its command."""
    others = tuple(order for order in orders.waiting if order.command != command)
    return Orders((*others, Order(command, packet, now + REPEAT_S))), [packet]


def answered(orders: Orders, command: int) -> Orders:
    """A STATUS for ``command`` has come."""
    return Orders(tuple(order for order in orders.waiting if order.command != command))


def tick(orders: Orders, now: float) -> tuple[Orders, list[Packet], list[int]]:
    """Repeat what is due.

    Returns:
        The new state, packets to send, and the commands given up after `TRIES`.
    """
    kept, packets, lost = [], [], []
    for order in orders.waiting:
        if now < order.due:
            kept.append(order)
        elif order.tries >= TRIES:
            lost.append(order.command)
        else:
            kept.append(replace(order, due=now + REPEAT_S, tries=order.tries + 1))
            packets.append(order.packet)
    return Orders(tuple(kept)), packets, lost
