"""The radio of a drone against a sender that follows safelink, through any pattern of losses both ways."""

from hypothesis import given
from hypothesis import strategies as st

from hardware.virtual.nrf import INBOX, QUEUE, Nrf

ENABLE = b"\xff\x05\x01"


class Sender:
    """cflib's side of safelink."""

    def __init__(self, nrf):
        self.nrf, self.pid, self.up, self.down, self.heard = nrf, 0, 0, 0, []
        assert nrf.receive(0, ENABLE) == ENABLE

    def send(self, raw, lost_up=False, lost_down=False):
        """One packet, one attempt; whether it was acknowledged."""
        self.pid = (self.pid + 1) & 3
        raw = bytes((raw[0] & 0xF3 | self.up << 3 | self.down << 2,)) + raw[1:]
        if lost_up:
            return False
        payload = self.nrf.receive(self.pid, raw)
        if lost_down:
            return False
        if payload and (payload[0] >> 2 & 1) == self.down:
            self.heard.append(bytes((payload[0] | 0x0C,)) + payload[1:])
            self.down ^= 1
        self.up ^= 1
        return True


def test_safelink_is_answered_by_itself():
    assert Nrf().receive(0, ENABLE) == ENABLE


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=200))
def test_both_directions_are_in_order_and_exactly_once(fates):
    nrf = Nrf()
    sender = Sender(nrf)
    got, wanted, sent_down = [], [], []
    pending = b"\x3c\x00"
    for i, (lost_up, lost_down) in enumerate(fates):
        word = bytes((0xAF, i & 0xFF))
        if nrf.send(word):
            sent_down.append(word)
        if sender.send(pending, lost_up, lost_down):
            wanted.append(pending[1:])
            pending = bytes((0x3C, (pending[1] + 1) & 0xFF))
        while (raw := nrf.take()) is not None:
            got.append(raw[1:])
    while not sender.send(pending):
        pass
    wanted.append(pending[1:])
    while (raw := nrf.take()) is not None:
        got.append(raw[1:])
    for _ in range(2 * QUEUE + 2):
        sender.send(b"\xff")
    assert got == wanted
    assert sender.heard == sent_down


def test_a_retry_is_acknowledged_again_and_not_delivered_again():
    nrf = Nrf()
    nrf.send(b"\x0c")
    first = nrf.receive(1, b"\x3c\x07")
    assert nrf.receive(1, b"\x3c\x07") == first == b"\x0c"
    assert (nrf.take(), nrf.take(), nrf.duplicates) == (b"\x3c\x07", None, 1)


def test_the_downlink_queue_holds_eight():
    nrf = Nrf()
    assert [nrf.send(b"\x0c") for _ in range(QUEUE + 1)] == [True] * QUEUE + [False]
    assert nrf.room == 0


def test_polls_are_not_delivered_and_an_overflow_is_counted():
    nrf = Nrf()
    nrf.receive(0, b"\xff")
    assert nrf.take() is None
    for i in range(INBOX + 3):
        nrf.receive(i & 3, bytes((0x3C, i)))
    assert (nrf.overflows, nrf.received) == (3, INBOX)
