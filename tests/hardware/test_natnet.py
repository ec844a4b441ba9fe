"""NatNet client and virtual server end to end on loopback: connecting, failing clearly, surviving restarts."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time

import numpy as np
import pytest

from hardware import natnet_packets as packets
from hardware.errors import SourceError
from hardware.natnet import NatNetSource
from hardware.virtual.natnet import NatNetServer, encode_definitions, encode_frame, encode_server_info

UPRIGHT = (0.0, 0.0, 0.0, 1.0)
SOON_S = 0.3
"""Deadline of connections that must fail: long for loopback, short for a test."""


class Lab:
    """A server with its loop: serviced every 2 ms, a frame each time while `streams`."""

    def __init__(self, port=0, version=(4, 0), bodies=("cf1",), streams=True):
        self.server = NatNetServer("127.0.0.1", port, list(bodies), version)
        self.streams, self.seq = streams, 0
        self.poses = {body: ((0.1, 0.2, 1.0), UPRIGHT, True) for body in bodies}

    async def run(self):
        while True:
            self.step()
            await asyncio.sleep(0.002)

    def step(self):
        self.server.service(time.monotonic())
        if self.streams:
            self.seq += 1
            self.server.send(self.seq, self.seq * 0.005, self.poses, t_transmit=self.seq * 0.005 + 0.004)

    @contextlib.asynccontextmanager
    async def running(self):
        self.server.start()
        task = asyncio.get_running_loop().create_task(self.run())
        try:
            yield self
        finally:
            task.cancel()
            self.server.close()


async def until(condition, limit_s=20.0):
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.005)


def source_for(port, frames, events=None, host="127.0.0.1"):
    told = (lambda name, text: events.append((name, text))) if events is not None else None
    return NatNetSource(host, port, frames.append, time.monotonic, told)


@contextlib.contextmanager
def mute_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


@pytest.mark.parametrize("version", [(3, 0), (4, 0), (4, 1), (4, 2)])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_poses_arrive(version, host):
    async def fly():
        frames = []
        async with Lab(version=version, bodies=("cf1", "cf2")).running() as lab:
            source = source_for(lab.server.port, frames, host=host)
            await source.open()
            assert source.names == ("cf1", "cf2")
            assert source.version == version
            await until(lambda: len(frames) >= 40)
            source.close()
            source.close()
            await until(lambda: not lab.server.clients)
        return frames

    frames = asyncio.run(fly())
    assert {frame.body for frame in frames} == {"cf1", "cf2"}
    first = [frame for frame in frames if frame.body == "cf1"]
    assert all(later.seq > earlier.seq for earlier, later in zip(first, first[1:], strict=False))
    assert all(later.t_arrival >= earlier.t_arrival for earlier, later in zip(first, first[1:], strict=False))
    for frame in frames:
        np.testing.assert_allclose(frame.pos, (0.1, 0.2, 1.0), rtol=1e-6)
        assert frame.t_source == pytest.approx(frame.seq * 0.005, abs=1e-7)
        assert frame.latency_s == pytest.approx(0.004, abs=1e-6)


def test_arrival_is_read_from_the_given_clock_once_a_datagram():
    async def fly():
        stamps = iter(float(tick) for tick in range(10**6))
        frames = []
        async with Lab(bodies=("cf1", "cf2")).running() as lab:
            source = NatNetSource("127.0.0.1", lab.server.port, frames.append, lambda: next(stamps))
            await source.open()
            await until(lambda: len(frames) >= 20)
            source.close()
        return frames

    by_seq = {}
    for frame in asyncio.run(fly()):
        by_seq.setdefault(frame.seq, set()).add(frame.t_arrival)
    assert all(len(stamps) == 1 for stamps in by_seq.values())
    assert len(set.union(*by_seq.values())) == len(by_seq)


def failure(port, host="127.0.0.1"):
    async def fail():
        source = source_for(port, [], host=host)
        with pytest.raises(SourceError) as error:
            await source.open(deadline_s=SOON_S)
        source.close()
        return str(error.value)

    text = asyncio.run(fail())
    assert "\n" not in text
    return text


def test_mute_server_is_named_with_the_cure():
    with mute_port() as port:
        text = failure(port)
    assert f"127.0.0.1:{port} does not answer within 0.3 s" in text
    assert "source.host and source.command_port" in text


def test_absent_server_is_named_with_the_cure():
    with mute_port() as port:
        pass
    assert f"127.0.0.1:{port} does not answer" in failure(port)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "300.1.1.1", "bad host", "x" * 80])
def test_unknown_host_is_named(host):
    async def fail():
        with pytest.raises(SourceError, match=r"no such host; set source\.host") as error:
            await source_for(15100, [], host=host).open()
        return str(error.value)

    assert host in asyncio.run(fail())


def test_unusable_address_is_named():
    assert "255.255.255.255:15100" in failure(15100, host="255.255.255.255")


async def fail_against(lab):
    async with lab.running():
        with pytest.raises(SourceError) as error:
            await source_for(lab.server.port, []).open(deadline_s=SOON_S)
    return str(error.value)


@pytest.mark.parametrize("version", [(2, 9), (4, 3), (5, 0)])
def test_wrong_version_is_told_with_what_can_be_read(version):
    text = asyncio.run(fail_against(Lab(version=version, streams=False)))
    assert f"speaks NatNet {version[0]}.{version[1]}, and 3.0 to 4.2 can be read" in text


def test_silent_stream_is_told_apart_from_a_mute_server():
    text = asyncio.run(fail_against(Lab(streams=False)))
    assert "'Midair lab'" in text
    assert "answers but streams no frames" in text
    assert "start its stream" in text


def test_garbled_definitions_are_named():
    class Garbled(Lab):
        def step(self):
            super().step()
            self.server.transmit(encode_definitions({"cf1": 1})[:-3])

    lab = Garbled(streams=False)
    lab.server.define({"a": 1, "b": 1})
    text = asyncio.run(fail_against(lab))
    assert "does not describe its rigid bodies" in text
    assert "duplicate-id" in text
    assert "truncated" in text


def test_cancelled_open_gives_back_its_socket():
    async def cancel():
        with mute_port() as port:
            source = source_for(port, [])
            task = asyncio.create_task(source.open(deadline_s=60.0))
            await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(cancel())  # a socket that stays open is a ResourceWarning, which is an error here


def test_restarted_server_is_found_again_with_its_new_ids():
    async def fly():
        frames, events = [], []
        async with Lab(bodies=("cf1", "wand")).running() as lab:
            port = lab.server.port
            lab.seq = 500
            source = source_for(port, frames, events)
            await source.open()
            await until(lambda: len(frames) >= 10)
        before = len(frames)
        async with Lab(port=port, bodies=("wand", "cf1"), version=(4, 1)).running() as lab:
            lab.poses["cf1"] = ((1.0, 1.0, 1.0), UPRIGHT, True)
            await until(lambda: len(frames) >= before + 10)
            assert source.version == (4, 1)
            assert source.counts["restarts"] == 1
            source.close()
        return frames[before:], [name for name, _ in events]

    frames, events = asyncio.run(fly())
    assert {(frame.body, float(frame.pos[0]) == 1.0) for frame in frames} == {("cf1", True), ("wand", False)}
    assert events.index("silent") < events.index("restarted") < events.index("resumed")


def test_foreign_sender_and_garbage_do_not_disturb_the_stream():
    async def fly():
        frames = []
        async with Lab().running() as lab:
            source = source_for(lab.server.port, frames)
            await source.open()
            (client,) = lab.server.clients
            evil = encode_frame(10**6, [(1, (9.0, 9.0, 9.0), UPRIGHT, True)], (1.0, 1.0, 1.0))
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                for datagram in (evil, b"", b"\x07", b"\xff" * 1400, encode_server_info("Evil", (2, 0), 1)):
                    stranger.sendto(datagram, client)
            for datagram in (b"", b"\x07\x00", b"\xff" * 1400, evil[:-1]):
                lab.server.transmit(datagram)
            await until(lambda: source.rejects["foreign"] == 5 and source.rejects["truncated"] == 4)
            before = len(frames)
            await until(lambda: len(frames) >= before + 10)
            source.close()
        return frames

    frames = asyncio.run(fly())
    assert all(frame.pos[0] < 1.0 for frame in frames)


def test_occlusion_nan_and_recovery_in_one_stream():
    async def fly():
        frames = []
        async with Lab().running() as lab:
            source = source_for(lab.server.port, frames)
            await source.open()
            lab.poses["cf1"] = ((0.1, 0.2, 1.0), UPRIGHT, False)
            await until(lambda: not frames[-1].tracked)
            lab.poses["cf1"] = ((float("nan"),) * 3, UPRIGHT, True)
            await until(lambda: source.rejects["pose-not-finite"] >= 3)
            lab.poses["cf1"] = ((0.3, 0.2, 1.0), UPRIGHT, True)
            await until(lambda: frames and frames[-1].tracked and frames[-1].pos[0] > 0.2)
            source.close()
        return frames

    for frame in asyncio.run(fly()):
        assert np.isfinite(frame.pos).all() == frame.tracked


def test_receiver_may_close_the_source_from_a_frame():
    async def fly():
        async with Lab().running() as lab:
            seen = []
            source = None

            def stop(frame):
                seen.append(frame)
                source.close()

            source = NatNetSource("127.0.0.1", lab.server.port, stop, time.monotonic)
            faults = []
            asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
            await source.open()
            for _ in range(5):
                lab.step()
            await asyncio.sleep(0.25)  # past the first look at the stream, which must not come any more
            return seen, faults

    seen, faults = asyncio.run(fly())
    assert len(seen) == 1
    assert faults == []


def test_stream_outlives_a_client_that_died_without_goodbye():
    async def fly():
        frames = []
        async with Lab().running() as lab:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as dead:
                dead.sendto(packets.HEADER.pack(packets.CONNECT, 0), ("127.0.0.1", lab.server.port))
                await until(lambda: lab.server.clients)
            source = source_for(lab.server.port, frames)
            await source.open()
            await until(lambda: len(frames) >= 10)
            source.close()

    asyncio.run(fly())
