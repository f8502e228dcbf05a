"""What a handler has changed of its process is seen, whether Python did it or a library in C."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from django_ojs import clock
from django_ojs.worker.executor.process_state import ProcessWatch


@pytest.fixture
def watch() -> Iterator[ProcessWatch]:
    """On this process, which is as it was afterwards."""
    folder, mask = Path.cwd(), os.umask(0)
    os.umask(mask)
    limit, handler = resource.getrlimit(resource.RLIMIT_CORE), signal.getsignal(signal.SIGUSR2)
    yield ProcessWatch()
    os.chdir(folder)
    os.umask(mask)
    resource.setrlimit(resource.RLIMIT_CORE, limit)
    signal.signal(signal.SIGUSR2, handler)


def lower_a_limit() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (1, most))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda: os.chdir("/"), "working folder"),
        (lower_a_limit, "resource limits"),
        (lambda: os.umask(0o123), "umask"),
        (lambda: signal.signal(signal.SIGUSR2, lambda *_: None), "signal handlers"),
    ],
)
def test_what_python_changes_is_seen_at_once(
    watch: ProcessWatch, change: Callable[[], object], named: str
) -> None:
    assert watch.differences() == []
    change()
    assert watch.differences() == [named]


def test_what_was_put_back_is_no_difference(watch: ProcessWatch) -> None:
    folder = Path.cwd()
    os.chdir("/")
    os.chdir(folder)
    assert watch.differences() == []


def test_what_c_changes_is_seen_soon(watch: ProcessWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    """No audit event tells of it."""
    assert ctypes.CDLL(None).chdir(b"/") == 0
    later = clock.boottime() + 0.2
    monkeypatch.setattr(clock, "boottime", lambda: later)
    assert watch.differences() == ["working folder"]
