"""The virtual firmware's answers, byte by byte, and its log blocks; cflib itself asks in test_radio."""

import errno
import struct
import zlib
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.crtp import LINK, LOG, MEMORY, PARAM, PLATFORM
from hardware.virtual import variables
from hardware.virtual.crazyflie import QUEUE, VirtualCrazyflie


class FakeOnboard:
    def __init__(self):
        self.got, self.out = [], deque()

    def receive(self, port, channel, data):
        self.got.append((port, channel, data))

    def transmit(self):
        return self.out.popleft() if self.out else None


@pytest.fixture
def onboard():
    return FakeOnboard()


@pytest.fixture
def drone(onboard):
    return VirtualCrazyflie(
        onboard, {"stateEstimate.z": lambda: 1.5, "pm.vbatMV": lambda: 3700.9}, {"pm.lowVoltage": 3.4}
    )


def ask(drone, port, channel, data):
    drone.receive(port, channel, data)
    answers = []
    while (answer := drone.transmit()) is not None:
        answers.append(answer)
    assert len(answers) <= 1
    return answers[0][2] if answers else None


def test_who_it_is(drone):
    assert ask(drone, LINK, 1, b"\0") == b"Bitcraze Crazyflie" + bytes(12)
    assert ask(drone, LINK, 0, b"ping") == b"ping"
    assert ask(drone, LINK, 2, b"sink") is None
    assert ask(drone, PLATFORM, 1, b"\0") == b"\0" + struct.pack("<i", 12)
    assert ask(drone, PLATFORM, 1, b"\x02") == b"\x02CF21"
    assert ask(drone, MEMORY, 0, b"\x01") == b"\x01\0"
    assert ask(drone, MEMORY, 1, struct.pack("<BIB", 3, 16, 20)) == struct.pack("<BIB", 3, 16, errno.ENOENT)


@pytest.mark.parametrize(("port", "table"), [(LOG, variables.LOG), (PARAM, variables.PARAMETERS)])
def test_tables_are_complete_and_their_crc_tells_them_apart(drone, port, table):
    command, count, crc = struct.unpack("<BHI", ask(drone, port, 0, b"\x03"))
    items = [ask(drone, port, 0, struct.pack("<BH", 2, i)) for i in range(count)]
    assert command == 3 and [item[:3] for item in items] == [struct.pack("<BH", 2, i) for i in range(count)]
    assert [item[4:].rstrip(b"\0").replace(b"\0", b".").decode() for item in items] == list(table)
    assert crc == zlib.crc32(b"\n".join(item[3:] for item in items))
    assert ask(drone, port, 0, struct.pack("<BH", 2, count)) == b"\x02"


def test_parameters_are_read_written_and_guarded(drone):
    index = list(variables.PARAMETERS).index
    low = struct.pack("<H", index("pm.lowVoltage"))
    assert ask(drone, PARAM, 1, low) == low + b"\0" + struct.pack("<f", 3.4)
    assert ask(drone, PARAM, 2, low + struct.pack("<f", 3.1)) == low + struct.pack("<f", 3.1)
    assert drone.parameters["pm.lowVoltage"] == pytest.approx(3.1)
    fixed = struct.pack("<H", index("firmware.revision0"))
    assert ask(drone, PARAM, 2, fixed + bytes(4)) is None
    unknown = struct.pack("<H", 9999)
    assert ask(drone, PARAM, 1, unknown) == ask(drone, PARAM, 2, unknown + b"\0") == unknown + b"\x02"
    by_name = b"\0supervisor\0tmblChckEn\0\x08\0"
    assert ask(drone, PARAM, 3, by_name) == b"\0supervisor\0tmblChckEn\0\0"
    assert drone.parameters["supervisor.tmblChckEn"] == 0
    assert ask(drone, PARAM, 3, b"\0no\0such\0\x08\0") == b"\0no\0such\0" + bytes((errno.ENOENT,))
    assert ask(drone, PARAM, 3, b"\x08" + low) == b"\x08" + low + b"\0" + struct.pack("<f", 3.2)
    assert ask(drone, PARAM, 3, b"\x07" + low) == b"\x07" + low + b"\0\0"


def log_item(name, kind=None):
    index = list(variables.LOG).index(name)
    return struct.pack("<BH", kind or {"float": 7, "uint16_t": 2}[variables.LOG[name]], index)


def test_a_log_block_streams_at_its_period(drone):
    create = b"\x06\x05" + log_item("stateEstimate.z") + log_item("pm.vbatMV")
    assert ask(drone, LOG, 1, create) == b"\x06\x05\0"
    assert ask(drone, LOG, 1, create) == b"\x06\x05" + bytes((errno.EEXIST,))
    assert ask(drone, LOG, 1, b"\x03\x05\x02") == b"\x03\x05\0"
    sent = []
    for ms in range(100):
        drone.tick(ms)
        while (answer := drone.transmit()) is not None:
            sent.append((ms, answer))
    assert [ms for ms, _ in sent] == [20, 40, 60, 80]
    port, channel, data = sent[1][1]
    assert (port, channel) == (LOG, 2)
    assert data == b"\x05\x28\0\0" + struct.pack("<fH", 1.5, 3700)
    assert ask(drone, LOG, 1, b"\x04\x05") == b"\x04\x05\0"
    drone.tick(200)
    assert drone.transmit() is None
    assert ask(drone, LOG, 1, b"\x05") == b"\x05\0\0"
    assert ask(drone, LOG, 1, b"\x03\x05\x02") == b"\x03\x05" + bytes((errno.ENOENT,))


def test_a_late_tick_sends_one_sample_and_keeps_the_rhythm(drone):
    ask(drone, LOG, 1, b"\x06\x01" + log_item("stateEstimate.z"))
    ask(drone, LOG, 1, b"\x03\x01\x01")
    times = []
    for ms in (0, 35, 39, 40):
        drone.tick(ms)
        while drone.transmit() is not None:
            times.append(ms)
    assert times == [35, 40]


def test_log_blocks_have_limits(drone):
    seven = log_item("stateEstimate.z") * 7
    assert ask(drone, LOG, 1, b"\x06\x01" + seven) == b"\x06\x01" + bytes((errno.E2BIG,))
    assert ask(drone, LOG, 1, b"\x07\x01" + seven) == b"\x07\x01" + bytes((errno.ENOENT,))
    assert ask(drone, LOG, 1, b"\x06\x01" + struct.pack("<BH", 7, 999)) == b"\x06\x01" + bytes((errno.ENOENT,))
    for ident in range(16):
        assert ask(drone, LOG, 1, bytes((6, ident)) + log_item("pm.vbatMV"))[2] == 0
    assert ask(drone, LOG, 1, b"\x06\x20" + log_item("pm.vbatMV"))[2] == errno.ENOMEM


def test_every_other_port_is_the_onboard_programs(drone, onboard):
    for port in (3, 6, 7, 8, 9, 10):
        drone.receive(port, 1, bytes((port,)))
    assert onboard.got == [(port, 1, bytes((port,))) for port in (3, 6, 7, 8, 9, 10)]
    onboard.out.append((10, 3, b"\x80"))
    assert drone.transmit() == (10, 3, b"\x80")


@given(st.integers(0, 15), st.integers(0, 3), st.binary(max_size=30))
def test_no_packet_raises_and_every_answer_fits(port, channel, data):
    drone = VirtualCrazyflie(FakeOnboard())
    drone.receive(port, channel, data)
    while (answer := drone.transmit()) is not None:
        assert len(answer[2]) <= 30


def test_what_the_radio_does_not_fetch_is_dropped_and_counted(drone):
    for _ in range(QUEUE + 5):
        drone.receive(LINK, 0, b"ping")
    assert drone.dropped == 5
