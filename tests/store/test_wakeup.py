"""How a worker learns of work, and what falls due next."""

from __future__ import annotations

import os
import socket
import threading

import pytest
from django.db import connections
from django.test import override_settings

from django_ojs import clock
from django_ojs.api import enqueue
from django_ojs.clock import FrozenClock
from django_ojs.services.commit import wake
from django_ojs.store import due_times, sockets
from django_ojs.store.due_times import DueProbe, NextDue
from django_ojs.store.inserting import notify
from django_ojs.store.notifications import FEW, LOOKS, MANY, Notifier, repeated
from django_ojs.worker.threads.polling import FileChangeSchedule
from tests.services.support import make, take
from tests.support import poll

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]


def _elsewhere() -> None:
    """A commit on another connection."""

    def work() -> None:
        try:
            make()
        finally:
            connections["default"].close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_the_change_of_a_file_is_seen_whoever_looks(
    vendor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if vendor != "sqlite":
        pytest.skip("SQLite only")
    connection = connections["default"]
    watcher = FileChangeSchedule(str(connections["default"].settings_dict["NAME"]))
    watcher.record(0)
    monkeypatch.setattr(watcher, "_next", float("inf"))
    assert watcher.due(connection)
    assert not watcher.due(connection)
    make()
    assert not watcher.due(connection), "its own commits are no news"
    _elsewhere()
    assert watcher.due(connection)
    assert not watcher.due(connection)
    watcher.wake()
    assert watcher.due(connection)


def test_a_file_that_nobody_writes_to_is_not_asked(
    vendor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if vendor != "sqlite":
        pytest.skip("SQLite only")
    watcher = FileChangeSchedule(str(connections["default"].settings_dict["NAME"]))
    monkeypatch.setattr(watcher, "_settles", 0.0)
    monkeypatch.setattr(watcher, "_next", float("inf"))
    poll(lambda: not watcher._is_written())
    monkeypatch.setattr(watcher, "_is_foreign", lambda connection: pytest.fail("it was asked"))
    assert not watcher.due(connections["default"])


@override_settings(OJS={"NOTIFY": True})
def test_a_listener_hears_commits_and_stops_when_told(vendor: str) -> None:
    if not Notifier.possible("default"):
        pytest.skip("PostgreSQL only")
    heard: list[str] = []
    listener = Notifier(lambda payload, repeated: heard.append(payload), "default")
    listener.start()
    poll(lambda: heard == ["q:"])
    wake([("one", "test.job"), ("two", "")], using="default")
    poll(lambda: heard[1:] == ["q:one/test.job", "q:two"])
    listener.close()
    listener.join(10)
    assert not listener.is_alive()


def test_a_listener_of_sparse_notifications_repeats_each_for_what_was_left_out(vendor: str) -> None:
    if not Notifier.possible("default"):
        pytest.skip("PostgreSQL only")
    heard: list[tuple[str, float]] = []
    again: list[bool] = []

    def hear(payload: str, repeated: bool) -> None:
        again.append(repeated)
        heard.append((payload, clock.boottime()))

    listener = Notifier(hear, "default")
    listener.start()
    try:
        few, many = LOOKS[FEW], LOOKS[MANY]
        poll(lambda: len(heard) == 1 + len(few))
        assert {payload for payload, _ in heard} == {"q:"}
        assert again == [False, *[True] * len(few)]
        heard.clear()
        wake([], ["worker-r:1"], using="default")
        notify([repeated("q:one/test.job", FEW)], using="default")
        poll(lambda: len(heard) == 2 + len(few))
        assert [payload for payload, _ in heard if payload.startswith("w:")] == ["w:worker-r:1"]
        of_queue = [(payload, at) for payload, at in heard if payload.startswith("q:")]
        assert [payload for payload, _ in of_queue] == ["q:one/test.job"] * (1 + len(few))
        first, *later = [at for _, at in of_queue]
        assert all(at - first >= delay for at, delay in zip(later, few, strict=True))
        heard.clear()
        notify([repeated("q:two/test.job", MANY)], using="default")
        poll(lambda: bool(heard))
        notify([repeated("q:two/test.job", FEW)], using="default")
        wake([("two", "test.job")], using="default")
        poll(lambda: len(heard) == 3 + len(many))
        assert {payload for payload, _ in heard} == {"q:two/test.job"}
        assert heard[-1][1] - heard[0][1] >= many[-1], "the second one does not end that earlier"
    finally:
        listener.close()
        listener.join(10)
    assert not listener.is_alive()


def test_a_listener_keeps_what_a_project_has_chosen(
    vendor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if vendor != "postgresql":
        pytest.skip("PostgreSQL only")
    options = {**connections["default"].settings_dict["OPTIONS"], "keepalives_idle": 77}
    monkeypatch.setitem(connections["default"].settings_dict, "OPTIONS", options)
    listener = Notifier(lambda payload, repeated: None, "default")
    connection = listener._connect()
    listener.close()
    listener._stop_end.close()
    with connection, socket.socket(fileno=os.dup(connection.fileno())) as link:
        assert link.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 77
        assert connection.info.get_parameters()["connect_timeout"] == str(sockets.CONNECT_TIMEOUT_S)


def test_the_outlook_is_the_earliest_of_each(frozen: FrozenClock) -> None:
    probe = DueProbe("default")
    assert probe.look() == NextDue(None, None)
    enqueue("test.job", delay=30)
    enqueue("test.job", delay=20, total_timeout=50)
    make(1, "test.other", timeout=600)
    take(types=["test.other"])
    seen = probe.look()
    assert seen.deadline is not None
    assert seen.scheduled is not None
    assert seen == NextDue(
        due_times.next_deadline(using="default"), due_times.next_due(using="default")
    )
    assert (seen.deadline - frozen.time).total_seconds() == 50
    assert (seen.scheduled - frozen.time).total_seconds() == 20
    connections["default"].close()
    assert probe.look() == seen
