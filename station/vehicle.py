"""One drone as the guardian knows it: link, unanswered orders, upload, lease, ladder of losses. Knows no socket.

Bytes go out through the link, news goes out through `tell`; nothing here waits. A link's own thread sends, cflib's
threads receive, and both reach this object only through the guardian's loop.
"""

from __future__ import annotations

from collections.abc import Callable

from hardware import crtp, weights
from hardware.errors import DecodeError, EncodingError
from hardware.radio import CrazyflieLink, Kind
from station import config as cfg
from station import messages as m
from station import orders, safety

POSE_PERIOD_S = 0.01
"""External poses to a drone: 100 Hz."""
RADIO_S = 0.0035
"""From a pose's estimate to the drone's estimator: a packet time or two and the wake-ups between."""
HEARTBEAT_S = 0.05
ESTOP_COPIES = 15
CLOSE_S = 0.3
"""A link that is to be closed first gets its last orders answered, within this time."""
SINK_MPS = 0.5
"""Descent of a landing."""
BELOW_FLOOR_M = 0.15
"""A landing aims this far below the floor: the drone meets it moving, thrust falls at once, and the rotors stop."""
ACTIVATED, LANDED = 32, 33
"""Causes of onboard events that change what the drone does; `weights.CAUSES` has them all."""
FAULTS = frozenset({7, 9, 10, 11, 34, 35})
"""Causes that end a policy."""
ALL_GATES = 0xFF
NOT_YET = frozenset({8, 16})
"""Errors of the high-level commander while a policy still flies: not ready, busy."""


class Vehicle:
    """A drone of the fleet. All methods are called from the guardian's loop with its time."""

    def __init__(self, drone: cfg.Drone, config: cfg.StationConfig, tell: Callable[[m.Message], None]) -> None:
        self.drone, self.config, self.tell = drone, config, tell
        self.link: CrazyflieLink | None = None
        self.orders = orders.Orders()
        self.upload: weights.Upload | None = None
        self.image: m.PolicyImage | None = None
        self.upload_began = 0.0
        self.bursting = False
        """Whether the radio has not taken all of an upload's first burst yet."""
        self.xfer = 0
        self.estimate: m.Estimate | None = None
        self.pose_sent = 0.0
        self.poses_refused = 0
        self.policy = 0
        """The network that flies, 0 for none: the one whose lease is renewed."""
        self.lease_ms = 0
        self.beat, self.beat_sent = 0, 0.0
        self.flying = False
        self.rung = safety.Action.NONE
        self.closing: float | None = None

    # Orders of the station --------------------------------------------------------------------------------------

    def command(self, command: m.Command, now: float) -> None:
        """Carry out one order; `connect` is the guardian's own."""
        value = command.values
        match command.name:
            case "disconnect":
                self.closing = now + CLOSE_S
            case "estop":
                self.stop()
            case "arm" | "disarm":
                self._order(crtp.encode_arm(command.name == "arm"), now)
            case "window":
                self._order(weights.encode_window(int(value["open_ms"])), now)
            case "close_window":
                self._order(weights.encode_window(0), now)
            case "released":
                self._order(weights.encode_released(), now)
            case "activate":
                self.lease_ms = int(value["lease_ms"])
                self._order(
                    weights.encode_activate(
                        int(value["policy"]),
                        int(value["crc"]),
                        delay_ms=int(value["delay_ms"]),
                        valid_ms=int(value["valid_ms"]),
                        lease_ms=self.lease_ms,
                        target_mm=round(value["target_m"] * 1e3),
                        gates=ALL_GATES,
                    ),
                    now,
                )
            case "abort":
                self.policy = 0
                self._order(weights.encode_abort(int(value["mode"])), now)
            case "hold":
                self.hold(now)
            case "land":
                self.land(now)
            case "stop":
                self._order(crtp.encode_high_level_stop(), now)

    def stop(self) -> None:
        """KILL: motors off, both forms, several copies, before anything else on the link."""
        self.policy, self.flying = 0, False
        for _ in range(ESTOP_COPIES):
            self._post(Kind.ESTOP, *crtp.encode_estop())

    def hold(self, now: float) -> None:
        """HOLD: the stock controller takes over where the drone is."""
        self.policy = 0
        self._order(weights.encode_abort(0), now)

    def land(self, now: float) -> None:
        """LAND: hold, then descend to the floor."""
        self.hold(now)
        height = self.estimate.pos[2] if self.estimate else 1.0
        self._order(crtp.encode_land(-BELOW_FLOOR_M, max(1.5, (height + BELOW_FLOOR_M) / SINK_MPS)), now)

    def begin_upload(self, upload: m.Upload, now: float) -> None:
        """Send a network to the free bank, in one burst."""
        image = upload.image
        self.xfer = self.xfer % 255 + 1
        try:
            begun, packets = weights.start(
                image.halves,
                arch=image.arch,
                policy=image.policy,
                expected=image.expected,
                tolerance=image.tolerance,
                xfer=self.xfer,
                now=now,
                deadline=upload.deadline,
            )
        except EncodingError as error:
            failed = m.UploadStatus(
                t=now, drone=self.drone.name, policy=image.policy, state="FAILED", reason=str(error)
            )
            self.tell(failed)
            return
        self.image, self.upload_began, self.upload, self.bursting = image, now, begun, True
        self._post(Kind.UPLOAD, *packets)

    def forward(self, estimate: m.Estimate, now: float) -> None:
        """A pose for the drone's own estimator, if it passes the gate and one is due."""
        if estimate.mode in ("INIT", "LOST") or "FLIP" in estimate.flags:
            return
        packet = self._pose(estimate, now)
        if packet is None:  # nor is it one for the ladder
            self.poses_refused += 1
            return
        self.estimate = estimate
        # Half a source period of slack: 100 Hz out of a 200 Hz stream must not become 67 Hz by jitter.
        if now - self.pose_sent < POSE_PERIOD_S - 0.5 / self.config.source.rate_hz:
            return
        self.pose_sent = now
        self._post(Kind.POSE, packet)

    def _pose(self, estimate: m.Estimate, now: float) -> crtp.Packet | None:
        """The pose as it will be when it arrives; None when it must not go to a drone."""
        pos, quat, vel = estimate.pos, estimate.quat, estimate.vel
        if safety.refuse_pose(pos, quat, vel, self.config.space):
            return None
        try:
            return crtp.encode_extpose(*safety.ahead(pos, quat, vel, estimate.ang_vel, now + RADIO_S - estimate.t))
        except (EncodingError, ValueError):  # a body rate or a stamp that is not finite
            return None

    # News from the link -----------------------------------------------------------------------------------------

    def opened(self, link: CrazyflieLink, now: float) -> None:
        """The link is up."""
        self.link, self.closing = link, None
        self._event("connected", now)

    def sent(self, packet: crtp.Packet, now: float) -> None:
        """The radio has taken a packet, of the upload or not."""
        if self.upload is None or self.image is None:
            return
        self.upload = weights.on_sent(self.upload, packet, now)
        if self.bursting and packet == self.upload.commit:  # the last of the burst; poses go between
            self.bursting = False
            self.tell(m.UploadStatus(t=now, drone=self.drone.name, policy=self.image.policy, state="SENT"))

    def packet(self, packet: crtp.Packet, now: float) -> None:
        """A packet of the drone."""
        if not _busy(packet):
            self.orders = orders.answered(self.orders, _answered(packet))
        if packet.port == crtp.HIGH_LEVEL and len(packet.data) > 3 and packet.data[3] not in NOT_YET | {0}:
            self._event("refused_onboard", now, f"high-level command {packet.data[0]}: error {packet.data[3]}")
        if packet.port != crtp.WEIGHTS or packet.channel != weights.REPORT:
            return
        try:
            answer = weights.decode(packet.data)
        except DecodeError as error:
            self._event("not_understood", now, str(error))
            return
        if isinstance(answer, weights.PolicyEvent):
            self._onboard(answer, now)
        elif self.upload is not None and answer.command in (weights.BEGIN, weights.COMMIT):
            self._progress(*weights.on_status(self.upload, answer, now), now)
        elif answer.error:
            self._event("refused_onboard", now, weights.ERRORS.get(answer.error, str(answer.error)))

    def _onboard(self, event: weights.PolicyEvent, now: float) -> None:
        if event.cause == ACTIVATED:
            self.policy, self.flying = event.policy, True
            self._event("activated", now, policy=float(event.policy))
        elif event.cause == LANDED:
            self.policy, self.flying = 0, False
            self._event("landed", now)
        elif event.cause in FAULTS:
            self.policy = 0
            self._event("policy_fault", now, weights.CAUSES[event.cause])
        else:
            self._event("onboard", now, weights.CAUSES.get(event.cause, f"cause {event.cause}"))

    # Time -------------------------------------------------------------------------------------------------------

    def tick(self, now: float, daemon_silent_s: float) -> bool:
        """Repeat, renew, guard; True when the link is to be closed now."""
        if self.link is None:
            return False
        self.orders, packets, lost = orders.tick(self.orders, now)
        self._post(Kind.COMMAND, *packets)
        for key in lost:
            self._event("order_unanswered", now, f"port {key >> 8}, command {key & 255}")
        if self.upload is not None:
            self._progress(*weights.on_tick(self.upload, now), now)
        if self.flying:
            self._guard(now, daemon_silent_s)
        if self.policy and now - self.beat_sent >= HEARTBEAT_S:
            self.beat, self.beat_sent = (self.beat + 1) % 256, now
            self._post(Kind.HEARTBEAT, weights.encode_heartbeat(self.policy, self.beat, self.lease_ms))
        return self.closing is not None and (now >= self.closing or not self.orders.waiting)

    def busy(self) -> bool:
        """Whether something is due within milliseconds."""
        return self.upload is not None or bool(self.orders.waiting) or self.closing is not None

    def _guard(self, now: float, daemon_silent_s: float) -> None:
        """The ladder of losses for a flying drone: each rung acts once."""
        daemon, pose = safety.daemon_action(daemon_silent_s), safety.Action.NONE
        if self.estimate is not None:
            pos = self.estimate.pos
            inside = safety.inside(pos, self.config.space)
            pose = safety.pose_action(now - self.estimate.t_meas, 1.0 / self.config.source.rate_hz, pos[2], inside)
        action = max(daemon, pose)
        if action <= self.rung:
            self.rung = action if action is safety.Action.NONE else self.rung
            return
        self.rung = action
        self._event("ladder", now, f"{action.name}: {'pose lost' if pose >= daemon else 'daemon silent'}")
        if action is safety.Action.HOLD:
            self.hold(now)
        elif action is safety.Action.LAND:
            self.land(now)
        elif action is safety.Action.KILL:
            self.stop()

    def _progress(self, upload: weights.Upload, packets: list[crtp.Packet], now: float) -> None:
        self.upload = upload
        self._post(Kind.UPLOAD, *packets)
        if upload.outcome != "SENDING" and self.image is not None:
            self.upload = None
            self.tell(
                m.UploadStatus(
                    t=now,
                    drone=self.drone.name,
                    policy=upload.policy,
                    state=upload.outcome,
                    reason=upload.reason,
                    packets=upload.packets,
                    resent=upload.resent,
                    wall_s=now - self.upload_began,
                )
            )

    def _order(self, packet: crtp.Packet, now: float) -> None:
        self.orders, packets = orders.send(self.orders, packet.port << 8 | packet.data[0], packet, now)
        self._post(Kind.COMMAND, *packets)

    def _post(self, kind: Kind, *packets: crtp.Packet) -> None:
        if self.link is not None:
            for packet in packets:
                self.link.post(kind, packet)

    def _event(self, name: str, now: float, text: str = "", **data: float | str | bool | None) -> None:
        self.tell(m.Event(t=now, name=name, drone=self.drone.name, text=text, data=data))


def _busy(packet: crtp.Packet) -> bool:
    """A manoeuvre refused because the policy still flies: to be asked again, the ABORT before it is on its way."""
    return packet.port == crtp.HIGH_LEVEL and len(packet.data) > 3 and packet.data[3] in NOT_YET


def _answered(packet: crtp.Packet) -> int:
    """Port and command of the request that a packet answers; supervisor and app set bit 7 of the command."""
    return packet.port << 8 | (packet.data[0] & 0x7F if packet.data else 0)
