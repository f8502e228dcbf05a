"""The executor's end of the channel, when a handler's own signals come in between."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from django_ojs.worker.executor import channel as module
from django_ojs.worker.executor.channel import Channel
from django_ojs.worker.prefork.frames import Frame, FrameReader


class TimeIsUp(Exception):
    """What the alarm of a handler raises."""


@pytest.fixture
def alarm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As a handler sets it, in the middle of the first wait of the channel."""

    def ring(*_: object) -> None:
        raise TimeIsUp

    wait = module._wait_for_room

    def interrupted(end: socket.socket) -> None:
        monkeypatch.setattr(module, "_wait_for_room", wait)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        wait(end)

    before = signal.signal(signal.SIGALRM, ring)
    monkeypatch.setattr(module, "_wait_for_room", interrupted)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def read(end: socket.socket, frames: list[Frame], count: int) -> None:
    reader = FrameReader()
    while len(frames) < count and (data := end.recv(1 << 16)):
        frames += reader.feed(data)


@pytest.mark.usefixtures("alarm")
def test_a_large_frame_that_an_alarm_interrupts_arrives_whole() -> None:
    frames: list[Frame] = []
    sent: list[Frame] = [{"n": 1, "text": "x" * (3 << 20)}, {"n": 2}]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(ours, lambda: None)
        # Nobody reads, so that it is interrupted half sent.
        with pytest.raises(TimeIsUp):
            channel.send(sent[0])
        thread = threading.Thread(target=read, args=(theirs, frames, 2), daemon=True)
        thread.start()
        channel.send(sent[1])
        thread.join(30)
    assert frames == sent
