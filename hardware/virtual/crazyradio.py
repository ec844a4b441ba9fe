"""The soft Crazyradio: `SoftCrazyradio` in place of cflib's USB dongle, `Air` the lab's side of it. No radio physics.

    cflib RadioDriver -> SoftCrazyradio --UDP--> Air -> Nrf -> drone        one datagram and its answer an attempt

    request  'Mr' | seq u32 | attempt u8 | channel u8 | datarate u8 | address 5 | packet 1..32
    answer   'Ma' | seq u32 | attempt u8 | acked u8 | acknowledgement payload 0..32

The air loses packets and acknowledgements independently, each attempt anew; the dongle retries like the real one (ARC)
and takes as long: 780 us a packet with its acknowledgement over USB, 800 us more for each retry. An air on which nobody
answers is an air without a drone.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hardware.errors import PortInUse
from hardware.tuning import Tuning, parse_uri
from hardware.virtual.nrf import Nrf

REQUEST = struct.Struct("<2sIBBB5s")
ANSWER = struct.Struct("<2sIBB")
RETRY_S = 800e-6
"""130 us of settling, 164 us for 41 bytes at 2 Mbit/s, 500 us of retransmit delay for 32-byte acknowledgements."""
SPIN_S = 80e-6
"""The end of a wait is spun through: a sleep alone is late by about this much."""
ANSWER_WAIT_S = 0.02
"""Host seconds that the lab may take for an answer; later ones count as lost."""


@dataclass(frozen=True, slots=True)
class Ack:
    """What a dongle knows after sending; the names are cflib's."""

    ack: bool
    retry: int
    data: bytes
    powerDet: bool = False  # noqa: N815


class SoftCrazyradio:
    """Stands in for `cflib.drivers.crazyradio.Crazyradio`: the same face, but the packets go to an `Air`.

    Args:
        air: host and UDP port of the lab's air.
        packet_s: seconds that an acknowledged packet takes.
        now: the station's clock, seconds.
        sleep_until: blocks until a time of the same clock.

    """

    DR_250KPS, DR_1MPS, DR_2MPS = 0, 1, 2
    version = 0.54

    def __init__(
        self,
        air: tuple[str, int],
        packet_s: float,
        now: Callable[[], float],
        sleep_until: Callable[[float], None],
    ) -> None:
        self.arc = 3
        self._now, self._sleep_until = now, sleep_until
        self._packet_s = packet_s
        self._tuning = Tuning(2, self.DR_2MPS, b"\xe7" * 5)
        self._seq = int.from_bytes(os.urandom(4), "little")
        self._late = 0.0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.connect(air)
        self._socket.settimeout(ANSWER_WAIT_S)

    def set_channel(self, channel: int) -> None:
        """Tune to a channel, 0..125."""
        self._tuning = self._tuning._replace(channel=channel)

    def set_address(self, address: Sequence[int]) -> None:
        """Talk to a drone of this 5-byte address."""
        self._tuning = self._tuning._replace(address=bytes(address))

    def set_data_rate(self, datarate: int) -> None:
        """Choose a data rate by cflib's number."""
        self._tuning = self._tuning._replace(datarate=datarate)

    def set_arc(self, arc: int) -> None:
        """Retries of an attempt that was not acknowledged."""
        self.arc = arc

    def set_power(self, power: int) -> None:
        """The air has no distances: nothing changes."""

    def set_ard_time(self, us: int) -> None:
        """The delay of a retry is fixed."""

    def set_ard_bytes(self, nbytes: int) -> None:
        """The delay of a retry is fixed."""

    def set_ack_enable(self, enable: bool) -> None:
        """Acknowledgements are always on."""

    def set_cont_carrier(self, active: bool) -> None:
        """There is no carrier."""

    def close(self) -> None:
        """Free the socket."""
        self._socket.close()

    def send_packet(self, data_out: Sequence[int]) -> Ack:
        """Send one packet with its retries and wait for as long as the real dongle would. Never raises."""
        raw = bytes(data_out)
        start = self._now()
        self._seq = self._seq + 1 & 0xFFFFFFFF
        for attempt in range(self.arc + 1):
            if attempt:
                self._wait(start + attempt * RETRY_S)
            answer = self._exchange(attempt, raw)
            if answer is None:
                break
            if answer[0]:
                self._finish(start + self._packet_s + attempt * RETRY_S)
                return Ack(True, attempt, answer[1])
        self._finish(start + self._packet_s + self.arc * RETRY_S)
        return Ack(False, self.arc, b"")

    def _exchange(self, attempt: int, raw: bytes) -> tuple[bool, bytes] | None:
        """Whether this attempt was acknowledged, and the payload; None when the lab does not answer."""
        try:
            self._socket.send(REQUEST.pack(b"Mr", self._seq, attempt, *self._tuning) + raw)
            while True:
                data = self._socket.recv(64)
                if len(data) < ANSWER.size:
                    continue
                magic, seq, number, acked = ANSWER.unpack_from(data)
                if magic == b"Ma" and seq == self._seq and number == attempt:
                    return bool(acked), data[ANSWER.size :]
        except OSError:  # no lab on the port (ICMP), a lab that hangs, a socket closed under us: nobody is on the air
            return None

    def _finish(self, deadline: float) -> None:
        """Wait, and let the next packet make up for a late wake-up, so that the average holds."""
        due = deadline - self._late
        self._wait(due)
        self._late = min(max(self._now() - due, 0.0), self._packet_s / 4)

    def _wait(self, deadline: float) -> None:
        self._sleep_until(deadline - SPIN_S)
        while self._now() < deadline:
            pass


class Air:
    """The lab's air: takes attempts, loses some, hands the rest to the radios that listen. Owns a UDP socket, a thread.

    Args:
        host: address to bind.
        port: UDP port; 0 takes a free one (see `port`).
        loss: probability that a packet, and independently its acknowledgement, is lost.
        seed: of the losses.

    Raises:
        PortInUse: another process holds the port.

    """

    def __init__(self, host: str, port: int, *, loss: float = 0.0, seed: int = 0) -> None:
        self.loss = loss
        self.attempts = self.lost_up = self.lost_down = self.foreign = 0
        self._random = random.Random(seed)
        self._radios: dict[Tuning, Nrf] = {}
        self._closing = False
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.bind((host, port))
        except OSError as error:
            self._socket.close()
            raise PortInUse(
                f"air on {host}:{port}: {error.strerror or error}; end the other lab or choose another `air_port`"
            ) from None
        self.host, self.port = self._socket.getsockname()
        self._thread = threading.Thread(target=self._run, name="air", daemon=True)

    def listen(self, uri: str) -> Nrf:
        """A drone's radio, tuned to `uri`."""
        _, tuning = parse_uri(uri)
        return self._radios.setdefault(tuning, Nrf())

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering and free the port."""
        self._closing = True
        if self._thread.is_alive():
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waker:
                waker.sendto(b"", ("127.0.0.1" if self.host == "0.0.0.0" else self.host, self.port))
            self._thread.join(1.0)
        self._socket.close()

    def _run(self) -> None:
        receive, answer = self._socket.recvfrom, self._socket.sendto
        while True:
            try:
                data, sender = receive(64)
                if self._closing:
                    return
                reply = self.attempt(data)
                if reply:
                    answer(reply, sender)
            except OSError:  # the dongle went away before its answer came (ICMP), or our socket was closed
                if self._closing:
                    return

    def attempt(self, data: bytes) -> bytes | None:
        """One attempt on the air: the answer to a request datagram, None for a foreign one."""
        if not REQUEST.size < len(data) <= REQUEST.size + 32 or data[:2] != b"Mr":
            self.foreign += 1
            return None
        _, seq, number, channel, datarate, address = REQUEST.unpack_from(data)
        self.attempts += 1
        radio = self._radios.get(Tuning(channel, datarate, address))
        if radio is None:
            return ANSWER.pack(b"Ma", seq, number, 0)
        if self._random.random() < self.loss:
            self.lost_up += 1
            return ANSWER.pack(b"Ma", seq, number, 0)
        payload = radio.receive(seq & 3, data[REQUEST.size :])
        if self._random.random() < self.loss:
            self.lost_down += 1
            return ANSWER.pack(b"Ma", seq, number, 0)
        return ANSWER.pack(b"Ma", seq, number, 1) + payload
