"""The ZeroMQ sockets between processes of one station. Knows messages, not what they mean.

State is latest-wins: a subscriber of `latest` sees the newest message only. Events, commands and uploads go through
bounded queues; a full queue drops at the sender and is counted there, so nobody ever waits for anybody.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import zmq

from station import messages

LONGEST = 107 if sys.platform == "linux" else 103
"""Bytes of a Unix socket's path (sockaddr_un)."""
LONGEST_NAME = len("guardian.events")
"""Bytes that every run directory must have room for, so that one that is too long fails at its first wire."""
QUEUE = 256
"""Bound of every queued socket, in messages."""


class PathTooLong(Exception):
    """A run directory in which no socket can be made; the text names it and the cure."""


def endpoint(run_dir: Path, name: str) -> str:
    """Address of a named wire in the station's private run directory.

    Raises:
        PathTooLong: the system has no room for such a path.
    """
    room = LONGEST - 1 - max(len(name), LONGEST_NAME)
    if len(os.fsencode(run_dir)) > room:
        raise PathTooLong(
            f"{run_dir}: of {len(os.fsencode(run_dir))} bytes, where a socket's directory may have {room}; "
            "set TMPDIR to a shorter one"
        )
    return f"ipc://{run_dir / name}"


def publisher(context: zmq.Context, run_dir: Path, name: str) -> zmq.Socket:
    """A bound PUB socket with a bounded queue."""
    socket = context.socket(zmq.PUB)
    socket.sndhwm = QUEUE
    socket.linger = 0
    socket.bind(endpoint(run_dir, name))
    return socket


def subscriber(
    context: zmq.Context, run_dir: Path, name: str, *, latest: bool = False, queue: int = QUEUE
) -> zmq.Socket:
    """A connected SUB socket; with ``latest`` only the newest message is kept (conflated), else ``queue`` of them."""
    socket = context.socket(zmq.SUB)
    if latest:
        socket.setsockopt(zmq.CONFLATE, 1)
    socket.rcvhwm = queue
    socket.linger = 0
    socket.subscribe(b"")
    socket.connect(endpoint(run_dir, name))
    return socket


def inbox(context: zmq.Context, run_dir: Path, name: str) -> zmq.Socket:
    """A bound PULL socket: orders to one process, from whoever has its address."""
    socket = context.socket(zmq.PULL)
    socket.rcvhwm = QUEUE
    socket.linger = 0
    socket.bind(endpoint(run_dir, name))
    return socket


def outbox(context: zmq.Context, run_dir: Path, name: str) -> zmq.Socket:
    """A connected PUSH socket to a process's inbox."""
    socket = context.socket(zmq.PUSH)
    socket.sndhwm = QUEUE
    socket.linger = 0
    socket.connect(endpoint(run_dir, name))
    return socket


def send(socket: zmq.Socket, message: messages.Message) -> bool:
    """Send without waiting; False when the queue is full and the message was dropped."""
    try:
        socket.send(messages.encode(message), zmq.NOBLOCK)
    except zmq.Again:
        return False
    return True


def receive(socket: zmq.Socket) -> messages.Message | None:
    """The next message, or None when there is none now; bytes that are no message are passed over."""
    while True:
        try:
            return messages.decode(socket.recv(zmq.NOBLOCK))
        except zmq.Again:
            return None
        except msgspec.DecodeError:
            continue
