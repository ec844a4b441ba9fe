"""A Crazyflie on its radio, through cflib: the only file that knows cflib. Decides nothing; bytes in, bytes out.

    post() -> mailbox -> sender thread -> RadioDriver's queue of one -> dongle     on_packet <- cflib's incoming thread

cflib 0.1.34 is unmodified, but three of its habits are kept away from us. Its handler of link errors joins threads
from within themselves and can hold its send lock for ever, so errors come to us and closing is ours, in bounded time.
A full driver queue blocks a caller for two seconds, so the sender thread never waits in it. And closing a link sends
a zero-thrust setpoint, which would drop a flying drone, so that one is not sent.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import stat
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cflib.crtp
from cflib.crazyflie import Crazyflie
from cflib.crazyflie.log import LogConfig
from cflib.crtp import radiodriver
from cflib.crtp.crtpstack import CRTPPacket

from hardware.crtp import LINK, Packet
from hardware.errors import DongleMissing, LinkError, LinkLost
from hardware.mailbox import Kind, Mailbox
from hardware.ports import Clock, DongleConfig, LinkStats
from hardware.tuning import parse_uri
from hardware.virtual.crazyradio import SoftCrazyradio

SILENT_S = 1.0
"""An open link on which nothing has been heard for so long is lost; cflib's pings are echoed at 10 Hz."""
POLL_S = 0.05
"""After an upload packet or a command the downlink is polled at full rate so long: cflib alone waits 10 ms."""
CLOSE_S = 0.7
POLLED = frozenset((Kind.UPLOAD, Kind.COMMAND))
"""Classes that are answered."""


class _Dongles:
    """In the place of cflib's USB class: a soft dongle for the indices that have one, the real class for the others."""

    def __init__(self, real: type) -> None:
        self.real = real
        self.soft: dict[int, Callable[[], Any]] = {}
        self.users: dict[int, int] = {}
        self.lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)  # cflib reads the data rates from the class

    def __call__(self, devid: int = 0) -> Any:
        return self.soft[devid]() if devid in self.soft else self.real(devid=devid)

    def enter(self, index: int, soft: Callable[[], Any] | None) -> None:
        """One more link uses this dongle; the first decides what it is."""
        with self.lock:
            if not self.users.get(index):
                self.soft.pop(index, None)
                if soft is not None:
                    self.soft[index] = soft
            self.users[index] = self.users.get(index, 0) + 1

    def leave(self, index: int) -> None:
        """One link fewer; with the last one cflib's thread of this dongle ends."""
        with self.lock:
            self.users[index] -= 1
            radios = radiodriver.RadioManager._radios
            if self.users[index] or index >= len(radios) or radios[index] is None:
                return
            shared = radios[index]
            radiodriver.RadioManager.remove(index)
            shared._cmd_queue.put(_Leave())
            shared.join(0.3)


def _dongles() -> _Dongles:
    if not isinstance(radiodriver.Crazyradio, _Dongles):
        radiodriver.Crazyradio = _Dongles(radiodriver.Crazyradio)
        radiodriver._SharedRadio = _SharedRadio
        logging.getLogger("cflib").addHandler(logging.NullHandler())
    if not cflib.crtp.CLASSES:
        cflib.crtp.init_drivers()  # only lists the drivers; USB is first touched when a real dongle is made
    return radiodriver.Crazyradio


def _soft(dongles: Sequence[DongleConfig], index: int, clock: Clock) -> Callable[[], SoftCrazyradio] | None:
    if index >= len(dongles) or dongles[index].type != "soft":
        return None
    air = (dongles[index].air_host, dongles[index].air_port)
    return partial(SoftCrazyradio, air, dongles[index].packet_us * 1e-6, clock.now, clock.sleep_until)


class _SharedRadio(radiodriver._SharedRadio):
    """cflib's thread of one dongle, given an end."""

    def run(self) -> None:
        with contextlib.suppress(SystemExit):
            super().run()


class _Leave:
    """A command that ends a `_SharedRadio`: reading it raises."""

    def __getitem__(self, _: int) -> None:
        raise SystemExit


class _Drone(Crazyflie):
    """cflib's object, with link errors reported instead of handled."""

    def __init__(self, cache_dir: Path, on_link_error: Callable[[str], None]) -> None:
        super().__init__(rw_cache=str(cache_dir))
        self._on_link_error = on_link_error

    def _link_error_cb(self, errmsg: str) -> None:
        self._on_link_error(errmsg)


class CrazyflieLink:
    """An open link to one drone; made by `open`. Callbacks run on threads of the link and must not block.

    `on_packet(packet)` gets every packet from the drone, `on_sent(packet)` every posted packet once the driver has
    taken it; `on_lost(reason)` comes once, when an open link breaks: the link is then closed.
    """

    def __init__(
        self,
        uri: str,
        clock: Clock,
        on_packet: Callable[[Packet], None],
        on_sent: Callable[[Packet], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self.uri = uri
        self._index, _ = parse_uri(uri)
        self._now = clock.now
        self._on_packet, self._on_sent, self._on_lost = on_packet, on_sent, on_lost
        self._mailbox = Mailbox()
        self._connected = threading.Event()
        self._settled = threading.Event()
        self._closing = threading.Event()
        self._error = ""
        self._shut_lock = threading.Lock()
        self._sent = self._received = self._callback_errors = 0
        self._heard = clock.now()
        self._drone: _Drone | None = None
        self._sender = threading.Thread(target=self._send_loop, name="link-sender", daemon=True)

    @classmethod
    def open(
        cls,
        uri: str,
        cache_dir: Path,
        *,
        clock: Clock,
        dongles: Sequence[DongleConfig] = (),
        on_packet: Callable[[Packet], None] = lambda packet: None,
        on_sent: Callable[[Packet], None] = lambda packet: None,
        on_lost: Callable[[str], None] = lambda reason: None,
        timeout_s: float = 5.0,
    ) -> CrazyflieLink:
        """Connect: blocks until the drone's tables are known, at most `timeout_s` of the host.

        Args:
            uri: ``radio://DONGLE/CHANNEL/RATE/ADDRESS``.
            cache_dir: private directory for the drone's tables; made with mode 0700 when missing.
            clock: the station's.
            dongles: configuration of the dongles by index; those that it does not name are USB ones.
            on_packet: see the class.
            on_sent: see the class.
            on_lost: see the class.
            timeout_s: host seconds.

        Raises:
            DongleMissing: no dongle of this index.
            LinkError: the drone does not answer or not to the end, the URI or the directory cannot be used.

        """
        link = cls(uri, clock, on_packet, on_sent, on_lost)
        _private(cache_dir)
        link._drone = _Drone(cache_dir, link._link_error)
        _dongles().enter(link._index, _soft(dongles, link._index, clock))
        try:
            link._connect(link._drone, timeout_s)
        except BaseException:
            link._shut()
            raise
        return link

    def _connect(self, drone: _Drone, timeout_s: float) -> None:
        drone.packet_received.add_callback(self._packet)
        drone.connected.add_callback(self._ready)
        drone.connection_failed.add_callback(lambda _, reason: self._link_error(reason))
        drone.open_link(self.uri)
        self._settled.wait(timeout_s)
        if self._connected.is_set():
            self._sender.start()
            return
        if "Cannot find a Crazyradio" in self._error:
            raise DongleMissing(f"no Crazyradio {self._index} on USB: plug it in, or set the dongle's type to soft")
        if "Errno 13" in self._error or "Access denied" in self._error:
            raise DongleMissing(f"Crazyradio {self._index} may not be used by this user: install Bitcraze's udev rule")
        if self._received:
            raise LinkError(f"{self.uri} answers but was not connected within {timeout_s:g} s: move closer, try again")
        why = self._error.strip().splitlines()[0] if self._error else f"silence for {timeout_s:g} s"
        raise LinkError(
            f"{self.uri} does not answer ({why}): switch the drone on, check its channel and address; "
            "with a soft dongle, start the virtual lab on its air port"
        )

    def _ready(self, _: str) -> None:
        self._connected.set()
        self._settled.set()

    def _link_error(self, reason: str) -> None:
        self._error = self._error or str(reason)
        self._settled.set()

    def _packet(self, packet: CRTPPacket) -> None:
        self._heard = self._now()
        self._received += 1
        if packet.port == LINK:
            return
        try:
            self._on_packet(Packet(packet.port, packet.channel, bytes(packet.data)))
        except Exception:  # an error of ours must not end cflib's thread
            self._callback_errors += 1

    def post(self, kind: Kind, packet: Packet) -> bool:
        """Hand a packet to the sender thread; never waits. False when its queue is full or the link closed."""
        return not self._closing.is_set() and self._mailbox.put(kind, packet)

    def drop(self, kind: Kind) -> int:
        """Take back what waits in one class (an upload that is given up); how many packets that were."""
        return self._mailbox.drop(kind)

    def log(
        self, name: str, variables: Mapping[str, str], period_ms: int, on_values: Callable[[int, dict], None]
    ) -> None:
        """Have the drone report variables.

        Args:
            name: of the block.
            variables: names and types as cflib spells them (``"pm.vbat": "float"``); at most 26 bytes together.
            period_ms: a multiple of 10.
            on_values: gets the drone's milliseconds and the values by name, on cflib's thread.

        Raises:
            LinkError: the drone has no such variable, or they do not fit one block.

        """
        drone = self._drone
        if drone is None:
            raise LinkLost(f"{self.uri} is closed: open it again")
        block = LogConfig(name=name, period_in_ms=period_ms)
        for variable, kind in variables.items():
            block.add_variable(variable, kind)
        block.data_received_cb.add_callback(lambda stamp, values, _: on_values(stamp, values))
        try:
            drone.log.add_config(block)
            block.start()
        except (KeyError, AttributeError) as error:
            raise LinkError(f"log block {name} of {self.uri}: {error}; check names against the firmware") from None

    @property
    def connected(self) -> bool:
        """Open and not lost."""
        return self._connected.is_set() and not self._closing.is_set()

    def stats(self) -> LinkStats:
        """Figures so far."""
        box = self._mailbox
        return LinkStats(self._sent, self._received, box.overwritten, box.refused, self._callback_errors, self._heard)

    def close(self) -> None:
        """End the link within a second. May be called again, and from the callbacks."""
        self._closing.set()
        self._mailbox.close()
        if self._sender.is_alive() and threading.current_thread() is not self._sender:
            self._sender.join(0.2)
        self._shut()

    def _send_loop(self) -> None:
        poll_until = 0.0
        while not self._closing.is_set():
            if self._error or self._now() - self._heard > SILENT_S:
                self._lose()
                return
            polling = self._now() < poll_until
            found = self._mailbox.get(0.001 if polling else 0.05)
            if found is None:
                if polling:
                    self._into_driver(CRTPPacket(0xFF))
                continue
            kind, packet = found
            if not self._into_driver(CRTPPacket(packet.port << 4 | packet.channel, packet.data)):
                continue
            self._sent += 1
            if kind in POLLED:
                poll_until = self._now() + POLL_S
            try:
                self._on_sent(packet)
            except Exception:  # as in _packet
                self._callback_errors += 1

    def _into_driver(self, packet: CRTPPacket) -> bool:
        """Wait for the driver's queue of one, but not longer than the link lives."""
        drone = self._drone
        driver = drone.link if drone is not None else None
        while driver is not None and not self._closing.is_set() and not self._error:
            try:
                driver.out_queue.put(packet, timeout=0.05)
                return True
            except queue.Full:
                if self._now() - self._heard > SILENT_S:
                    return False
        return False

    def _lose(self) -> None:
        reason = self._error.strip().splitlines()[0] if self._error else f"nothing heard for {SILENT_S:g} s"
        self._closing.set()
        self._shut()
        try:
            self._on_lost(f"link to {self.uri} lost: {reason}")
        except Exception:  # as in _packet
            self._callback_errors += 1

    def _shut(self) -> None:
        with self._shut_lock:
            drone, self._drone = self._drone, None
            self._closing.set()
            self._mailbox.close()
            if drone is None:
                return
            # cflib joins without bounds; a thread that never ends must not hold us.
            closer = threading.Thread(target=_close, args=(drone, self._index), name="link-closer", daemon=True)
            closer.start()
            closer.join(CLOSE_S)


def _close(drone: _Drone, index: int) -> None:
    """Take cflib's object apart in an order in which no thread is left waiting."""
    driver, updater, incoming = drone.link, drone.param.param_updater, drone.incoming
    incoming.stop()
    if incoming.is_alive() and incoming is not threading.current_thread():
        if driver is not None:
            driver.in_queue.put(CRTPPacket(0xFF))
        incoming.join(0.3)
    for timer in list(drone._answer_patterns.values()):
        timer.cancel()
    drone.link = None
    if driver is not None:
        driver.close()
    drone.close_link()
    if updater is not None:
        updater.request_queue.put(None)  # it may have missed the first one
        updater.join(0.1)
    _dongles().leave(index)


def _private(directory: Path) -> None:
    """Make the cache directory; refuse one that others can write, because cflib evaluates names out of its files."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = directory.stat()
    except OSError as error:
        raise LinkError(f"cache directory {directory}: {error.strerror or error}; choose one you can write") from None
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise LinkError(f"cache directory {directory} can be written by others: chmod 700 it or choose another")
    for path in directory.glob("*.json"):
        with contextlib.suppress(OSError):
            if not _is_table(path.read_bytes()):
                path.unlink()


def _is_table(text: bytes) -> bool:
    """Groups of named elements: of another file cflib's thread would die without a word."""
    try:
        groups = json.loads(text)
    except ValueError:
        return False
    if not isinstance(groups, dict) or not all(isinstance(group, dict) for group in groups.values()):
        return False
    elements = [element for group in groups.values() for element in group.values()]
    return all(isinstance(element, dict) and "__class__" in element for element in elements)
