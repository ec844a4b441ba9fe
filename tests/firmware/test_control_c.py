"""The control table cell by cell, gates, lease, faults and rollback, seen from the radio."""

from __future__ import annotations

import struct
import zlib

import pytest

STOCK, ARMED, ACTIVE, OFF = range(4)
ACTIVATED, LANDED, SATURATED, NOT_FINITE = 32, 33, 34, 35


@pytest.mark.parametrize(
    ("control", "after", "error"), [(STOCK, ARMED, 0), (ARMED, ARMED, 0), (ACTIVE, ACTIVE, 0), (OFF, OFF, 4)]
)
def test_activate(bench, control, after, error):
    net = bench.reach(control)
    status = bench.activate(net, delay=300, valid=400, target=1111)
    assert (status.control, status.error) == (after, error)
    bench.run(10, beat=(7,))
    assert bench.control() == after


@pytest.mark.parametrize(("control", "after"), [(STOCK, STOCK), (ARMED, ACTIVE), (ACTIVE, ACTIVE), (OFF, OFF)])
def test_gates_hold(bench, control, after):
    net = bench.reach(control)
    if control == ACTIVE:
        bench.activate(net, delay=6, target=1234)
    for _ in range(10):
        bench.run(50, beat=(7,))
    assert bench.control() == after
    if control == ACTIVE:
        assert bench.onboard.snapshot().target_m == pytest.approx(1.234)


@pytest.mark.parametrize("control", [STOCK, ARMED, ACTIVE, OFF])
def test_valid_ms_over(bench, network, control):
    net = bench.reach(control)
    if control in (ARMED, ACTIVE):
        bench.activate(net, valid=60, gates=0x02, target=1)  # no window, so gate 1 never holds
    bench.run(100)
    assert bench.control() == (STOCK if control == ARMED else control)
    assert (11 in bench.causes()) == (control in (ARMED, ACTIVE))
    assert bench.onboard.snapshot().policy == (7 if control == ACTIVE else 0)


@pytest.mark.parametrize("request_bytes", [b"\x06\x00", b"\x05"])
@pytest.mark.parametrize("control", [STOCK, ARMED, ACTIVE, OFF])
def test_withdrawn(bench, control, request_bytes):
    bench.reach(control)
    status = bench.ask(request_bytes)
    assert (status.error, status.control) == (0, OFF if control == OFF else STOCK)


@pytest.mark.parametrize("control", [STOCK, ARMED, ACTIVE, OFF])
def test_lease_over(bench, control):
    """No lease runs before activation."""
    bench.reach(control)
    bench.run(260)
    assert bench.control() == (STOCK if control == ACTIVE else control)
    assert (10 in bench.causes()) == (control == ACTIVE)


@pytest.mark.parametrize("control", [STOCK, ARMED, ACTIVE, OFF])
def test_fault(bench, control):
    bench.reach(control)
    bench.onboard.receive(7, 0, b"\x00")  # a stop setpoint
    bench.run(4)
    assert bench.control() == (STOCK if control == ACTIVE else control)
    assert (9 in bench.causes()) == (control == ACTIVE)


@pytest.mark.parametrize("control", [STOCK, ARMED, ACTIVE, OFF])
def test_abort_to_off(bench, control):
    net = bench.reach(control)
    assert bench.ask(b"\x06\x01").control == OFF
    assert bench.run(20) == {bench.rpm} and bench.rpm == (0, 0, 0, 0)
    assert bench.activate(net).error == 4
    bench.onboard.receive(8, 0, struct.pack("<BBff?f", 7, 0, 1.0, 0.0, True, 1.0))
    assert bench.run(20) == {(0.0,) * 4}
    bench.arm(False)
    bench.run(4)
    assert bench.control() == STOCK


@pytest.mark.parametrize(
    ("control", "after", "error"), [(STOCK, STOCK, 0), (ARMED, ARMED, 4), (ACTIVE, ACTIVE, 4), (OFF, STOCK, 0)]
)
def test_window(bench, control, after, error):
    bench.reach(control)
    status = bench.ask(struct.pack("<BH", 7, 2000))
    assert (status.control, status.error) == (after, error)
    snapshot = bench.onboard.snapshot()
    assert snapshot.window_open == (error == 0)
    if error == 0:
        assert bench.run(20) == {(0.0,) * 4}


@pytest.mark.parametrize("control", [STOCK, ARMED, ACTIVE, OFF])
def test_disarmed(bench, control):
    bench.reach(control)
    bench.arm(False)
    bench.run(4)
    assert bench.rpm == (0, 0, 0, 0)
    assert bench.control() == {STOCK: STOCK, ARMED: ARMED, ACTIVE: STOCK, OFF: STOCK}[control]


@pytest.mark.parametrize("control", [STOCK, ARMED, ACTIVE, OFF])
def test_rollback_with_another_bank(bench, network, control):
    bench.reach(control)
    other = network(seed=5)
    assert bench.upload(other, xfer=2, policy=9).error == 0
    bench.heartbeat()
    status = bench.ask(b"\x05")
    assert status.control == control
    assert status.policy == (9 if control in (ARMED, ACTIVE) else 0)
    again = bench.ask(b"\x05")  # idempotent: not back again
    assert (again.control, again.policy) == (status.control, status.policy)
    assert ACTIVATED in bench.causes()[1:] if control == ACTIVE else True


def test_swap_on_top(bench, network):
    """The old network flies until the tick of the swap, and on when the new one expires."""
    bench.reach(ACTIVE)
    other = network(seed=5)
    bench.upload(other, xfer=2, policy=9)
    bench.activate(other, policy=9, delay=40, valid=100)
    assert bench.run(30, beat=(7,)) and bench.onboard.snapshot().policy == 7
    bench.run(20)
    snapshot = bench.onboard.snapshot()
    assert (snapshot.control, snapshot.policy, snapshot.active_bank) == (ACTIVE, 9, 1)
    bench.heartbeat(7, 60000)  # of the one that no longer flies
    bench.run(260)
    assert bench.control() == STOCK


def test_activate_names_the_network(bench, network):
    net = bench.reach(STOCK)
    assert bench.activate(net, policy=8).error == 13
    assert bench.activate(net, crc=1).error == 6
    assert bench.activate(net, lease=0).error == 10
    status = bench.activate(net, gates=0x0401)
    assert (status.error, status.tail[0]) == (9, 10)
    half = network(seed=3)
    bench.ask(bench.begin(half, 3, 30))
    assert bench.activate(half, policy=30).error == 5
    assert bench.control() == STOCK


def test_delay_counts_from_receipt_and_swaps_on_a_control_tick(bench):
    net = bench.reach(STOCK)
    start = bench.onboard.snapshot().tick_ms
    bench.activate(net, delay=51, valid=200)
    bench.run(80)
    tick = bench.events[-1][4]
    assert tick % 2 == 0 and start + 51 <= tick <= start + 53


def test_repeated_activate_does_not_extend_its_validity(bench):
    net = bench.reach(STOCK)
    for _ in range(3):
        status = bench.activate(net, valid=60, gates=0x02)
        assert (status.error, status.control) == (0, ARMED)
        bench.run(15)
    bench.run(30)
    assert bench.control() == STOCK


def too_fast(bench):
    bench.z = 0.3
    bench.run(30)
    bench.run(130, force=60.0)  # 6.5 m/s at 0.72 m
    assert 0.2 < bench.onboard.snapshot().pos[2] < 3.0


def too_high(bench):
    bench.z = 3.55
    bench.run(200)


GATES = {
    0: lambda b: b.onboard.receive(9, 1, b"\x01\x00"),
    1: lambda b: b.run(1),  # no window is open
    2: lambda b: b.run(60, poses=False),
    3: too_high,
    4: too_fast,
    5: lambda b: setattr(b, "gyro", (0.0, 0.0, 21.0)),
    6: lambda b: setattr(b, "battery_V", 2.9),
    7: lambda b: b.onboard.receive(9, 1, b"\x03"),
}


@pytest.mark.parametrize("gate", range(8))
def test_each_gate_holds_activation_back(bench, gate):
    net = bench.reach(STOCK)
    GATES[gate](bench)
    bench.activate(net, valid=40, gates=1 << gate)
    bench.run(60, poses=gate not in (2, 5))
    assert ACTIVATED not in bench.causes()
    assert 11 in bench.causes()


@pytest.mark.parametrize("gate", [0, 2, 3, 4, 5, 6, 7])
def test_each_gate_holds_at_rest(bench, gate):
    net = bench.reach(STOCK)
    bench.activate(net, valid=40, gates=1 << gate)
    bench.run(4)
    assert bench.control() == ACTIVE


def test_lease_is_renewed_by_heartbeats_only(bench):
    bench.reach(ACTIVE)
    bench.run(1000, beat=(7,))
    assert bench.control() == ACTIVE
    bench.heartbeat(8)  # another policy's
    bench.run(100)
    for _ in range(10):
        bench.ask(b"\x00")  # other packets renew nothing
        bench.run(30)
    assert bench.control() == STOCK
    assert 10 in bench.causes()


def test_heartbeat_is_not_answered(bench):
    bench.reach(ACTIVE)
    before = len(bench.statuses)
    bench.run(200, beat=(7,))
    assert len(bench.statuses) == before


def test_pose_silence_is_a_fault_after_100_ms(bench):
    bench.reach(ACTIVE)
    bench.pose()
    bench.run(95, poses=False, beat=(7,))
    assert bench.control() == ACTIVE
    bench.run(12, poses=False, beat=(7,))
    assert bench.control() == STOCK and 9 in bench.causes()


def test_body_rate_is_a_fault_after_20_ticks(bench):
    bench.reach(ACTIVE)
    bench.pose()
    bench.run(36, gyro=(0, 0, 41.0), poses=False)
    assert bench.control() == ACTIVE
    bench.run(8, gyro=(0, 0, 41.0), poses=False)
    assert bench.control() == STOCK


def test_saturated_motors_are_a_fault_after_1500_ms(bench, network):
    bench.reach(ACTIVE, network(bias=40.0))
    bench.run(1480, beat=(7,))
    assert bench.control() == ACTIVE
    assert min(bench.rpm) > 21000
    bench.run(30, beat=(7,))
    assert bench.control() == STOCK and SATURATED in bench.causes()


def test_not_finite_is_a_fault_at_once_and_the_stock_controller_recovers(bench):
    bench.reach(ACTIVE)
    bench.pose()
    bench.run(2, gyro=(3e38, 0, 0), poses=False)
    assert bench.control() == STOCK and NOT_FINITE in bench.causes()
    bench.run(200)
    assert all(0 < rpm < 23000 for rpm in bench.rpm)
    assert bench.onboard.snapshot().pos[2] == pytest.approx(1.0, abs=0.01)


def test_estop_wins_over_everything(bench):
    bench.reach(ACTIVE)
    bench.onboard.receive(9, 1, b"\x03")
    bench.run(2)
    assert bench.run(500, beat=(7,)) == {(0.0,) * 4}
    bench.arm()
    bench.onboard.receive(8, 0, struct.pack("<BBff?f", 7, 0, 1.0, 0.0, True, 1.0))
    assert bench.run(100) == {(0.0,) * 4}


def test_active_flies_the_network_at_500_hz(bench, airframe):
    net = bench.reach(ACTIVE)
    assert net.halves.size == 276
    low, high = (
        (-airframe.rpm2thrust[1] + (airframe.rpm2thrust[1] ** 2 + 4 * airframe.rpm2thrust[2] * f) ** 0.5)
        / (2 * airframe.rpm2thrust[2])
        for f in (airframe.thrust_min_N, airframe.thrust_max_N)
    )
    commands = [next(iter(bench.run(1))) for _ in range(20)]
    assert all(low - 1 <= rpm <= high + 1 for command in commands for rpm in command)
    ticks = [i for i in range(1, 20) if commands[i] != commands[i - 1]]
    assert all((a - b) % 2 == 0 for a, b in zip(ticks, ticks[1:], strict=False))


def test_old_upload_stays_usable_after_the_policy_left(bench):
    net = bench.reach(ACTIVE)
    bench.run(260)
    assert bench.control() == STOCK
    bench.activate(net, valid=300)
    bench.run(4)
    assert bench.control() == ACTIVE
    assert zlib.crc32(net.image) == bench.ask(b"\x00").crc
