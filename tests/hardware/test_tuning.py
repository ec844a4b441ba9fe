import pytest

from hardware.errors import LinkError
from hardware.tuning import Tuning, parse_uri


def test_a_uri_says_dongle_and_tuning():
    assert parse_uri("radio://1/80/2M/E7E7E7E701") == (1, Tuning(80, 2, bytes.fromhex("E7E7E7E701")))
    assert parse_uri("radio://0/0/250K/0000000001")[1].datarate == 0


@pytest.mark.parametrize(
    "uri",
    ["", "radio://0/80/2M", "radio://0/126/2M/E7E7E7E701", "udp://127.0.0.1", "radio://0/80/3M/E7E7E7E701"],
)
def test_other_texts_are_refused_with_the_cure(uri):
    with pytest.raises(LinkError, match="radio://0/80/2M/E7E7E7E701"):
        parse_uri(uri)
