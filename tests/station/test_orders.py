"""Requests are repeated until answered, and given up in bounded time."""

from hardware.crtp import Packet
from station import orders

PACKET = Packet(port=10, channel=0, data=b"\x08")


def test_a_request_is_repeated_until_its_answer():
    state, out = orders.send(orders.Orders(), 8, PACKET, 0.0)
    assert out == [PACKET]
    state, out, lost = orders.tick(state, 0.001)
    assert out == [] and lost == []
    state, out, lost = orders.tick(state, 0.02)
    assert out == [PACKET]
    state = orders.answered(state, 8)
    assert orders.tick(state, 1.0) == (orders.Orders(), [], [])


def test_a_newer_request_of_the_same_command_replaces_the_older():
    newer = Packet(port=10, channel=0, data=b"\x03new")
    state, _ = orders.send(orders.Orders(), 3, PACKET, 0.0)
    state, _ = orders.send(state, 3, newer, 0.0)
    _, out, _ = orders.tick(state, 0.02)
    assert out == [newer]


def test_an_answer_to_another_command_changes_nothing():
    state, _ = orders.send(orders.Orders(), 3, PACKET, 0.0)
    assert orders.answered(state, 4) == state


def test_it_gives_up_and_says_which():
    state, _ = orders.send(orders.Orders(), 3, PACKET, 0.0)
    now, sent = 0.0, 1
    for _ in range(1000):
        now += 0.005
        state, out, lost = orders.tick(state, now)
        sent += len(out)
        if lost:
            break
    assert lost == [3]
    assert sent == orders.TRIES
    assert now < 0.5
