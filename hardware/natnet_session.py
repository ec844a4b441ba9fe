"""What one client knows of one NatNet server, and which of its datagrams it believes. Sans-IO: owns no socket.

Datagrams of strangers, of a wrong layout, duplicate or late frames and impossible poses are counted by reason and go no
further. Nothing that arrives raises.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np

from hardware import natnet_packets as packets
from hardware.errors import DecodeError
from hardware.ports import Frame

SILENCE_S = 0.3
"""Without a new frame for this long the server is greeted again: it may have restarted and forgotten us."""
KEEP_ALIVE_S = 1.0
"""A server forgets a unicast client that it has not heard for a few seconds."""
ASK_AGAIN_S = 0.2
LATE_WINDOW = 1000
"""A frame number this far below the last one is a restarted count, not a late frame."""
MAX_POSITION_M = 50.0
NORM_TOLERANCE = 0.02

_NOWHERE = np.full(3, np.nan)
_NO_ATTITUDE = np.full(4, np.nan)
_NOWHERE.flags.writeable = _NO_ATTITUDE.flags.writeable = False

# Sender's name, its version, its NatNet version; then the options of 4.0 on, all zero: the server's own version.
_SENDER = b"Midair".ljust(256, b"\0") + bytes((0, 1, 0, 0, 4, 1, 0, 0)) + bytes(6)
CONNECT = packets.HEADER.pack(packets.CONNECT, len(_SENDER)) + _SENDER
REQUEST_DEFINITIONS = packets.HEADER.pack(packets.REQUEST_DEFINITIONS, 0)
KEEP_ALIVE = packets.HEADER.pack(packets.KEEP_ALIVE, 0)
DISCONNECT = packets.HEADER.pack(packets.DISCONNECT, 0)


def pose_fault(pos: tuple[float, float, float], quat: tuple[float, float, float, float]) -> str:
    """Why a streamed pose cannot be one, or "".

    Args:
        pos: m. Beyond 50 m it is taken for millimetres.
        quat: xyzw; a norm within 2 % of 1 is rounding, anything else is not an attitude.

    """
    if not math.isfinite(sum(pos) + sum(quat)):
        return "pose-not-finite"
    if math.hypot(*pos) > MAX_POSITION_M:
        return "pose-too-far"
    if abs(math.hypot(*quat) - 1.0) > NORM_TOLERANCE:
        return "quat-not-unit"
    return ""


class Session:
    """One server as its client sees it; `receive` is the road of every datagram.

    ``counts``: datagrams, frames, poses, lost (gaps in the frame numbers), restarts. ``rejects``, by reason: foreign,
    early, undefined, duplicate, late, stamp, unknown-body, and those of `natnet_packets.decode` and `pose_fault`.
    """

    def __init__(
        self,
        server: tuple[str, int],
        send: Callable[[bytes], None],
        on_frame: Callable[[Frame], None],
        on_event: Callable[[str, str], None] | None,
        label: str,
    ) -> None:
        """Know nothing yet.

        Args:
            server: IPv4 address and command port; only it is listened to, on that port and its data port.
            send: puts a request on the wire to the server.
            on_frame: gets every body of every accepted frame.
            on_event: gets names (restarted, silent, resumed, definitions, unknown-body, wrong-version, rejected) with
                a sentence, each name and reason at most once a second.
            label: the address as the user wrote it, for texts.

        """
        self.counts: Counter[str] = Counter()
        self.rejects: Counter[str] = Counter()
        self.info: packets.ServerInfo | None = None
        self.names: dict[int, str] = {}
        self.defined = False
        self.last_frame = -math.inf
        self.last_fault = ""
        self.server, self._send, self._on_frame, self._on_event = server, send, on_frame, on_event
        self._label = label
        self._peers = frozenset((server,))
        self._fresh = self._silent = self._wanted = False
        self._last_seq, self._last_exposure = 0, -1
        self._last_asked = self._last_alive = -math.inf
        self._told: dict[str, float] = {}

    @property
    def readable(self) -> bool:
        """Whether the server has told its version and there is a layout for it."""
        return self.info is not None and packets.OLDEST <= self.info.version <= packets.NEWEST

    @property
    def streaming(self) -> bool:
        """Whether names are known and a frame has ever come."""
        return self.defined and self.last_frame > -math.inf

    def ask(self, now: float) -> None:
        """Request what is missing: an answer, the definitions, or frames."""
        if self.readable and not self.defined:
            self._ask_definitions(now)
        else:
            self._send(CONNECT)

    def tend(self, now: float) -> None:
        """A few times a second: greet a silent server again, keep the stream alive, ask again for what did not come."""
        if now - self.last_frame > SILENCE_S:
            if not self._silent:
                self._silent = True
                self._tell("silent", "sends no frames; greeting it again", now)
            self._send(CONNECT)
        elif now - self._last_alive >= KEEP_ALIVE_S:
            self._last_alive = now
            self._send(KEEP_ALIVE)
        if self.readable and (self._wanted or not self.defined):
            self._ask_definitions(now)

    def receive(self, datagram: bytes, sender: tuple[str, int], now: float) -> None:
        """Judge one datagram that was read at ``now`` (host seconds). Raises nothing of its own."""
        if sender not in self._peers:
            self.rejects["foreign"] += 1
            return
        self.counts["datagrams"] += 1
        try:
            event = packets.decode(datagram, self.info.version if self.info else (0, 0))
        except DecodeError as error:
            if self.info is None and error.reason == "version":  # it streams to us before it has answered
                self.rejects["early"] += 1
            else:
                self._reject(error.reason, str(error), now)
            return
        kind = type(event)
        if kind is packets.ServerInfo:
            self._on_server_info(event, now)
        elif kind is packets.MocapFrame:
            self._on_mocap_frame(event, now)
        elif kind is packets.Definitions:
            self._on_definitions(event, now)

    def bodies(self) -> str:
        """The server's rigid bodies, for people."""
        return ", ".join(f"{name} (id {body})" for body, name in self.names.items()) or "no rigid body"

    def wrong_version(self) -> str:
        """What is wrong with a version that cannot be read, and the cure."""
        major, minor = self.info.version if self.info else (0, 0)
        return f"speaks NatNet {major}.{minor}, and 3.0 to 4.2 can be read: use Motive 2.0 to 3.2"

    def _ask_definitions(self, now: float) -> None:
        self._last_asked = now
        self._send(REQUEST_DEFINITIONS)

    def _want_definitions(self, now: float) -> None:
        """Ask for the names again, but not with every frame; `tend` repeats it until they come."""
        self._wanted = True
        if now - self._last_asked > ASK_AGAIN_S:
            self._ask_definitions(now)

    def _tell(self, name: str, text: str, now: float, reason: str = "") -> None:
        key = f"{name} {reason}"
        if self._on_event and now - self._told.get(key, -math.inf) >= 1.0:
            self._told[key] = now
            self._on_event(name, f"NatNet server {self._label} {text}")

    def _reject(self, reason: str, text: str, now: float) -> None:
        self.rejects[reason] += 1
        self.last_fault = text
        self._tell("rejected", f"sent what cannot be used: {text}", now, reason)

    def _on_server_info(self, info: packets.ServerInfo, now: float) -> None:
        silent = now - self.last_frame > SILENCE_S
        if info != self.info or (silent and not self._fresh):
            # New or restarted: it may count frames and number bodies anew, so the old names are forgotten at once.
            if self.last_frame > -math.inf:
                self.counts["restarts"] += 1
                self._tell("restarted", "answers again; reading its definitions", now)
            self.info = info
            self._peers = frozenset((self.server, (self.server[0], info.data_port)))
            self.names, self.defined, self._fresh = {}, False, True
            if not self.readable:
                self._tell("wrong-version", self.wrong_version(), now)
        elif not silent:
            return
        if self.readable:
            self._ask_definitions(now)

    def _on_definitions(self, definitions: packets.Definitions, now: float) -> None:
        self.defined, self._wanted = True, False
        if definitions.names != self.names:
            self.names = definitions.names
            self._tell("definitions", f"streams {self.bodies()}", now)

    def _on_mocap_frame(self, frame: packets.MocapFrame, now: float) -> None:
        if not self._accept(frame, now):
            return
        if not math.isfinite(frame.timestamp_s):
            self._reject("stamp", f"stamp: frame {frame.seq} has the time {frame.timestamp_s}", now)
            return
        self.last_frame = now
        self.counts["frames"] += 1
        if self._silent:
            self._silent = False
            self._tell("resumed", "sends frames again", now)
        if frame.models_changed:
            # The old names stay meanwhile: a change to one body must not blind us to those in flight.
            self._want_definitions(now)
        if not self.defined:
            self.rejects["undefined"] += 1
            return
        hz = self.info.clock_hz if self.info else 1
        # Cameras without hardware sync give no exposure stamp; the software time stamp is then all there is.
        t_source = frame.exposure / hz if frame.exposure else frame.timestamp_s
        stamped = 0 < frame.exposure <= frame.transmit
        latency_s = (frame.transmit - frame.exposure) / hz if stamped else None
        for body in frame.bodies:
            self._deliver(body, frame.seq, t_source, latency_s, now)

    def _accept(self, frame: packets.MocapFrame, now: float) -> bool:
        """Whether the frame is newer than the last one, which it then replaces."""
        step = frame.seq - self._last_seq
        if self.counts["frames"]:
            if step == 0 and not (self._fresh and frame.exposure != self._last_exposure):
                self.rejects["duplicate"] += 1
                return False
            if step < 0 and not self._fresh:
                if step > -LATE_WINDOW:
                    self.rejects["late"] += 1
                    return False
                self.counts["restarts"] += 1
                self._tell("restarted", "counts its frames anew; reading its definitions", now)
                self._want_definitions(now)
            if step > 1 and not self._fresh:
                self.counts["lost"] += step - 1
        self._last_seq, self._last_exposure, self._fresh = frame.seq, frame.exposure, False
        return True

    def _deliver(self, body: packets.RigidBody, seq: int, t_source: float, latency_s: float | None, now: float) -> None:
        name = self.names.get(body.id)
        if name is None:
            self.rejects["unknown-body"] += 1
            self._tell("unknown-body", f"streams id {body.id} and defines {self.bodies()}; asking it again", now)
            self._want_definitions(now)
            return
        if body.tracked:
            fault = pose_fault(body.pos, body.quat)
            if fault:
                self._reject(fault, f"{fault}: {name} at {body.pos} m, quaternion {body.quat}, frame {seq}", now)
                return
            norm = math.hypot(*body.quat)
            pos, quat = np.array(body.pos), np.array([part / norm for part in body.quat])
        else:
            pos, quat = _NOWHERE, _NO_ATTITUDE
        self.counts["poses"] += 1
        self._on_frame(Frame(name, seq, t_source, now, pos, quat, body.tracked, body.error_m, latency_s))
