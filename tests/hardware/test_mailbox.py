from hardware import mailbox
from hardware.crtp import Packet
from hardware.mailbox import Kind, Mailbox


def test_the_mailbox_serves_the_most_urgent_and_the_newest():
    box = Mailbox()
    data = [Packet(10, 1, bytes((i,))) for i in range(6)]
    box.put(Kind.COMMAND, data[0])
    box.put(Kind.UPLOAD, data[1])
    box.put(Kind.POSE, data[2])
    box.put(Kind.POSE, data[3])
    box.put(Kind.UPLOAD, data[4])
    box.put(Kind.ESTOP, data[5])
    order = [box.get(0.0) for _ in range(6)]
    assert order == [
        (Kind.ESTOP, data[5]),
        (Kind.POSE, data[3]),
        (Kind.UPLOAD, data[1]),
        (Kind.UPLOAD, data[4]),
        (Kind.COMMAND, data[0]),
        None,
    ]
    assert box.overwritten == 1
    taken = [box.put(Kind.UPLOAD, data[0]) for _ in range(mailbox.QUEUE + 1)]
    assert taken == [True] * mailbox.QUEUE + [False] and box.refused == 1
    assert box.drop(Kind.UPLOAD) == mailbox.QUEUE
    box.put(Kind.ESTOP, data[5])
    box.close()
    assert box.get(10.0) is None
