"""A client against a daemon played by hand: asks, waits in bounded time, hears telemetry, survives a dead daemon."""

import threading

import pytest
import zmq

from station import messages as m
from station import wires
from station.client import Client, Silence
from station.clock import Clock


@pytest.fixture
def context():
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


@pytest.fixture
def client(run_dir):
    with Client(run_dir, Clock()) as client:
        yield client


def answering(context, run_dir, replies):
    """A thread that answers one request with each of these; the verbs that came."""
    api = context.socket(zmq.ROUTER)
    api.bind(wires.endpoint(run_dir, "api"))
    verbs = []

    def work():
        for reply in replies:
            who, _, body = api.recv_multipart()
            verbs.append(m.decode(body))
            api.send_multipart([who, b"", reply])
        api.close(linger=1000)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, verbs


def test_a_verb_is_asked_and_its_reply_returned(client, context, run_dir):
    replies = [m.Reply(t=1.0, ok=True), m.Reply(t=2.0, ok=False, text="a mission is running")]
    thread, verbs = answering(context, run_dir, [m.encode(reply) for reply in replies])
    assert client.ask("throw", "cf1", timeout_s=60.0, seed=7.0) == replies[0]
    assert client.ask("ready", timeout_s=60.0) == replies[1]
    thread.join()
    assert (verbs[0].name, verbs[0].drone, verbs[0].values) == ("throw", "cf1", {"seed": 7.0})
    assert (verbs[1].name, verbs[1].drone, verbs[1].values) == ("ready", "", {})


def test_silence_is_an_error_that_names_the_verb_and_the_next_question_is_answered(client, context, run_dir):
    with pytest.raises(Silence, match="'throw' within 0.05 s"):
        client.ask("throw", timeout_s=0.05)
    thread, verbs = answering(context, run_dir, [m.encode(m.Reply(t=1.0, ok=True))])
    assert client.ask("ready", timeout_s=60.0).ok
    thread.join()
    assert [verb.name for verb in verbs] == ["ready"], "a question given up is not asked later"


def test_a_busy_client_misses_nothing_and_hears_in_order(client, context, run_dir, until):
    assert client.next(0.0) is None
    telemetry = context.socket(zmq.PUB)
    telemetry.sndhwm = 0  # what is tested here is the client's own queue
    telemetry.bind(wires.endpoint(run_dir, "telemetry"))

    def joined():
        wires.send(telemetry, m.Event(t=0.0, name="here"))
        return client.next(0.05)

    assert until(joined)
    while client.next(0.2) is not None:
        pass
    count = 40 * wires.QUEUE
    for seq in range(count):
        wires.send(telemetry, m.Event(t=float(seq), seq=seq, name="tick"))
    assert [client.next(60.0).seq for _ in range(count)] == list(range(count))
    assert client.next(0.0) is None
    telemetry.close()


def test_leaving_closes_everything_and_a_second_client_is_welcome(run_dir, context):
    thread, _ = answering(context, run_dir, [m.encode(m.Reply(t=1.0, ok=True))] * 2)
    for _ in range(2):
        with Client(run_dir, Clock()) as client:
            assert client.ask("ready", timeout_s=60.0).ok
        with pytest.raises(zmq.ZMQError):
            client.next(0.0)
    thread.join()
