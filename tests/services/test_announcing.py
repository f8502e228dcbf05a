"""Sparse notifications: few, and no job that is committed without one stays unseen."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.test import override_settings

from django_ojs.api import enqueue, enqueue_many
from django_ojs.models import Job
from django_ojs.services import announcing
from django_ojs.store import inserting
from django_ojs.store.notifications import LOOKS

pytestmark = [
    pytest.mark.every_database,
    pytest.mark.usefixtures("ojs_db"),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL notifies"),
]


PLACES = {("default", "test.job")}


class Listening:
    """A session that hears its own notifications, and the time of this process at will."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._payloads: list[str] = []

    def hear(self, notice: Any) -> None:
        self._payloads.append(notice.payload)

    def heard(self) -> list[str]:
        """What was heard since the last call."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        heard, self._payloads = sorted(self._payloads), []
        return heard


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listening]:
    session = Listening()
    announcing._notified.clear()
    monkeypatch.setattr(announcing, "clock", SimpleNamespace(boottime=lambda: session.now))
    with connection.cursor() as cursor:
        cursor.execute("LISTEN django_ojs")
    connection.connection.add_notify_handler(session.hear)
    yield session
    connection.connection.remove_notify_handler(session.hear)
    with connection.cursor() as cursor:
        cursor.execute("UNLISTEN django_ojs")
    announcing._notified.clear()


def enqueue_every(seconds: float, times: int, listening: Listening) -> list[str]:
    """Enqueue so many times, so far apart; returns what was heard."""
    for _ in range(times):
        listening.now += seconds
        enqueue("test.job")
    return listening.heard()


def enqueue_closely(listening: Listening) -> None:
    """Until a notification serves others."""
    heard = enqueue_every(0.008, 5, listening)
    assert heard == ["q:default/test.job"] * 4 + ["r:default/test.job"]


def test_who_enqueues_now_and_then_notifies_each_time(listening: Listening) -> None:
    for gap in (0.031, 0.08):
        assert enqueue_every(gap, 20, listening) == ["q:default/test.job"] * 20
    for _ in range(5):
        listening.now += 0.031
        assert enqueue_every(0.008, 4, listening) == ["q:default/test.job"] * 4


def test_what_was_notified_of_just_now_is_left_out(listening: Listening) -> None:
    enqueue_closely(listening)
    listening.now += 0.019
    enqueue_many("test.job", [[1], [2]])
    assert listening.heard() == []
    enqueue("test.other")
    enqueue("test.job", queue="mail")
    assert listening.heard() == ["q:default/test.other", "q:mail/test.job"]
    listening.now += 0.002
    enqueue("test.job")
    assert listening.heard() == ["r:default/test.job"]
    listening.now += 0.021
    enqueue("test.job")
    assert listening.heard() == ["q:default/test.job"], "nothing relied on the last one"


def test_a_notification_serves_longer_where_many_follow(listening: Listening) -> None:
    enqueue_closely(listening)
    assert enqueue_every(0.008, 2, listening) == []
    assert enqueue_every(0.008, 1, listening) == ["R:default/test.job"]
    assert enqueue_every(0.008, 22, listening) == []
    assert enqueue_every(0.008, 1, listening) == ["R:default/test.job"]
    listening.now += 1.0
    enqueue("test.job")
    assert listening.heard() == ["q:default/test.job"], "the many are over"


@override_settings(OJS={"NOTIFY": True})
def test_nothing_is_left_out_unless_it_is_asked_for(listening: Listening) -> None:
    for _ in range(3):
        enqueue("test.job")
        assert listening.heard() == ["q:default/test.job"]


def test_nothing_is_left_out_in_a_transaction_that_may_commit_whenever(
    listening: Listening,
) -> None:
    enqueue_closely(listening)
    with transaction.atomic():
        enqueue("test.job")
    assert listening.heard() == ["q:default/test.job"]
    with pytest.raises(RuntimeError), transaction.atomic():
        enqueue("test.other")
        raise RuntimeError
    enqueue("test.other")
    assert listening.heard() == ["q:default/test.other"], "what was rolled back told nobody"


def test_a_commit_that_took_too_long_is_notified_of_afterwards(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue_closely(listening)
    insert = inserting.jobs

    def slowly(*args: Any, **options: Any) -> None:
        insert(*args, **options)
        listening.now += 0.036

    monkeypatch.setattr(inserting, "jobs", slowly)
    enqueue("test.job")
    assert listening.heard() == ["r:default/test.job"]


def test_a_statement_that_failed_has_notified_of_nothing(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue_every(0.008, 4, listening)
    with monkeypatch.context() as failing, pytest.raises(OperationalError):
        failing.setattr(inserting, "jobs", _fail)
        enqueue("test.job")
    enqueue("test.job")
    assert listening.heard() == ["r:default/test.job"]


def test_a_notification_that_fails_after_the_commit_is_no_failure_of_the_enqueue(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue_closely(listening)
    monkeypatch.setattr(announcing, "_MARGIN_S", 1.0)
    monkeypatch.setattr(inserting, "notify", _fail_for_some)
    job = enqueue("test.job")
    assert Job.objects.filter(pk=job.id, state="available").exists()


@pytest.mark.parametrize("seed", range(20))
def test_every_commit_is_followed_by_a_look(listening: Listening, seed: int) -> None:
    """Several threads whose commits take between nothing and far too long, against the looks of a
    worker: at each notification that arrives with a commit, and after it.
    """
    chance = random.Random(seed)
    begun: list[tuple[float, announcing.Announcement]] = []
    commits: list[float] = []
    rings: list[tuple[float, str]] = []
    for _ in range(400):
        listening.now += chance.choice((0.0005, 0.004, 0.02, 0.05)) * chance.random()
        while begun and begun[0][0] <= listening.now:
            end, made = begun.pop(0)
            now, listening.now = listening.now, end
            commits.append(end)
            rings += [(end, payload) for payload in made.payloads]
            announcing.committed(made, using="default")
            rings += [(end, payload) for payload in listening.heard()]
            listening.now = now
        made = announcing.announcement(PLACES, alone=True, using="default")
        took = chance.choice((0.001, 0.003, 0.03, 0.1)) * chance.random()
        begun.append((listening.now + took, made))
        begun.sort(key=lambda one: one[0])
    looks = sorted(end + delay for end, payload in rings for delay in (0.0, *LOOKS[payload[:2]]))
    waits = [min((look - end for look in looks if look >= end), default=9.9) for end in commits]
    assert max(waits) <= 0.02 + 1e-6
    assert len(rings) < len(commits)


def _fail(*args: Any, **options: Any) -> None:
    raise OperationalError("the server is gone")


def _fail_for_some(payloads: Any, *, using: str) -> None:
    if payloads:
        _fail()
