"""What is said in one breath travels in packets that the other end accepts."""

from __future__ import annotations

import pytest

from django_ojs.services.workflows import results
from django_ojs.worker.prefork import messages
from django_ojs.worker.prefork.frames import (
    MAX_PACKET,
    FrameReader,
    ProtocolError,
    pack,
    pack_texts,
    text_of,
)

DEEP = pack_texts(["[" * 100_000 + "]" * 100_000])
LARGE = "\N{FIRE}" * 262_000


def test_frames_arrive_in_order_however_they_are_cut() -> None:
    frames = [{"op": "run", "n": number, "text": "ä" * number} for number in range(40)]
    data = pack(*frames)
    reader = FrameReader()
    found = []
    for start in range(0, len(data), 7):
        found += reader.feed(data[start : start + 7])
    assert found == frames


def test_large_frames_get_packets_of_their_own() -> None:
    """Five jobs with all the arguments that are allowed, in characters of four bytes."""
    frames = [{"op": "run", "n": number, "args": [LARGE]} for number in range(5)]
    data = pack_texts([text_of(frame) for frame in frames])
    assert FrameReader().feed(data) == frames
    assert FrameReader().feed(pack_texts([])) == []


def test_the_largest_result_fits_into_a_packet() -> None:
    reply = messages.reply(1 << 40, {"values": ["x" * results.LARGEST], "after": 1 << 40})
    assert FrameReader().feed(pack(reply)) == [reply]
    with pytest.raises(ValueError, match="larger than a packet"):
        pack({"op": "reply", "value": "x" * MAX_PACKET})


@pytest.mark.parametrize(
    "garbage", [b"x" * 64, pack({"op": "done"})[:-1] + b"!", pack()[:2] + b"?" * 20, DEEP]
)
def test_anything_else_is_refused(garbage: bytes) -> None:
    with pytest.raises(ProtocolError):
        FrameReader().feed(garbage)
