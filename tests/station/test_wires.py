"""The sockets between processes: newest state wins, queues are bounded, nobody waits."""

from __future__ import annotations

import pytest
import zmq

from station import wires
from station.messages import ArmThrow, Event, Health

PATIENCE_MS = 20_000
"""Bound of waits that succeed in milliseconds."""


class Bench:
    """Wires of one run directory, all closed at the end."""

    def __init__(self, run_dir):
        self.run_dir, self.context, self.sockets = run_dir, zmq.Context(), []

    def __getattr__(self, kind):
        def build(name, **options):
            socket = getattr(wires, kind)(self.context, self.run_dir, name, **options)
            self.sockets.append(socket)
            return socket

        return build

    def close(self):
        for socket in self.sockets:
            socket.close(linger=0)
        self.context.term()


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def health(seq):
    return Health(t=float(seq), seq=seq, process="test")


def awaited(socket):
    assert socket.poll(PATIENCE_MS), "nothing came"
    return wires.receive(socket)


def joined(publisher, *subscribers):
    """Publish until every subscriber hears: subscriptions travel on their own."""
    for subscriber in subscribers:
        for _ in range(PATIENCE_MS // 10):
            wires.send(publisher, health(-1))
            if subscriber.poll(10):
                break
        else:
            pytest.fail("never joined")
    for subscriber in subscribers:
        while subscriber.poll(50):
            wires.receive(subscriber)


def test_endpoint_lies_in_the_run_directory(bench):
    bench.inbox("ingest")
    assert wires.endpoint(bench.run_dir, "ingest") == f"ipc://{bench.run_dir}/ingest"
    assert (bench.run_dir / "ingest").is_socket()


def test_nothing_to_receive_is_none_at_once(bench):
    assert wires.receive(bench.inbox("ingest")) is None


def test_latest_wins_and_never_goes_back(bench):
    publisher = bench.publisher("estimate")
    latest = bench.subscriber("estimate", latest=True)
    witness = bench.subscriber("estimate")
    joined(publisher, latest, witness)
    count = 200
    for seq in range(count):
        assert wires.send(publisher, health(seq))
    assert [awaited(witness).seq for _ in range(count)] == list(range(count))
    seen = []
    while not seen or seen[-1] < count - 1:
        seen.append(awaited(latest).seq)
    assert seen == sorted(set(seen))
    assert len(seen) < count / 2
    assert wires.receive(latest) is None


def test_events_come_complete_and_in_order(bench):
    publisher = bench.publisher("events")
    subscribers = [bench.subscriber("events") for _ in range(2)]
    joined(publisher, *subscribers)
    for seq in range(wires.QUEUE // 2):
        wires.send(publisher, Event(t=0.0, seq=seq, name="tick"))
    for subscriber in subscribers:
        assert [awaited(subscriber).seq for _ in range(wires.QUEUE // 2)] == list(range(wires.QUEUE // 2))


def test_full_inbox_drops_at_the_sender_and_says_so(bench):
    inbox = bench.inbox("guardian")
    outbox = bench.outbox("guardian")
    accepted, refused = 0, 0
    while refused < 10:
        if wires.send(outbox, health(accepted)):
            accepted += 1
        else:
            refused += 1
        assert accepted <= 100 * wires.QUEUE, "the queue has no bound"
    assert accepted >= wires.QUEUE
    assert [awaited(inbox).seq for _ in range(wires.QUEUE)] == list(range(wires.QUEUE))


def test_orders_wait_for_a_process_that_is_still_starting(bench):
    outbox = bench.outbox("ingest")
    assert wires.send(outbox, ArmThrow(t=1.0, drone="cf1", until=21.0))
    inbox = bench.inbox("ingest")
    assert awaited(inbox) == ArmThrow(t=1.0, drone="cf1", until=21.0)


def test_slow_subscriber_does_not_hold_up_the_publisher(bench):
    publisher = bench.publisher("events")
    slow = bench.subscriber("events")
    joined(publisher, slow)
    for seq in range(20 * wires.QUEUE):
        wires.send(publisher, health(seq))
    received = []
    while slow.poll(200):
        received.append(wires.receive(slow).seq)
    assert 0 < len(received) < 20 * wires.QUEUE
    assert received == sorted(set(received))


def test_several_senders_reach_one_inbox(bench):
    inbox = bench.inbox("guardian")
    outboxes = [bench.outbox("guardian") for _ in range(3)]
    for number, outbox in enumerate(outboxes):
        wires.send(outbox, health(number))
    assert {awaited(inbox).seq for _ in outboxes} == {0, 1, 2}
