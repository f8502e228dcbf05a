"""HTTP workers: first sight, names, what they said and were told."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ojs import clock
from django_ojs.clock import FrozenClock
from django_ojs.domain.errors import NotFound
from django_ojs.domain.job import Actor
from django_ojs.models import Event, Worker
from django_ojs.services import http_workers, workers

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]


def seen(name: str = "w1", principal: str = "token:a", *, beats: bool = True, **said: object) -> Worker:
    return http_workers.seen(name, principal, beats=beats, reported=said)


def kinds() -> list[str]:
    return list(Event.objects.order_by("id").values_list("kind", flat=True))


def test_the_first_sign_makes_the_row(frozen: FrozenClock) -> None:
    worker = seen(beats=False, hostname="h", queues=["q"])
    stored = Worker.objects.get()
    assert (stored.name, stored.principal, stored.hostname, stored.queues) == (
        "w1",
        "token:a",
        "h",
        ["q"],
    )
    assert (stored.phase, stored.beats, stored.heartbeat_at) == (
        "running",
        False,
        frozen.now("default"),
    )
    assert http_workers.may_fetch(worker)
    assert kinds() == ["worker.started"]


def test_a_beat_is_remembered(frozen: FrozenClock) -> None:
    assert not seen(beats=False).beats
    assert seen().beats
    assert seen(beats=False).beats


def test_fetches_in_quick_succession_write_nothing(frozen: FrozenClock) -> None:
    seen(beats=False)
    first = Worker.objects.get().heartbeat_at
    frozen.advance(0.9)
    seen(beats=False)
    assert Worker.objects.get().heartbeat_at == first
    frozen.advance(0.1)
    seen(beats=False)
    assert Worker.objects.get().heartbeat_at > first


def test_each_credential_has_a_worker_of_the_name(frozen: FrozenClock) -> None:
    first = seen(phase="quiet")
    frozen.advance(5)
    other, own = seen(principal="token:b"), http_workers.seen("w1", None, beats=True)
    assert len({first.pk, other.pk, own.pk}) == 3
    assert (other.phase, own.phase, own.principal) == ("running", "running", "")
    workers.deregister("w1", "token:b")
    http_workers.heard("w1", "token:b")
    stored = {row.principal: row for row in Worker.objects.all()}
    assert [stored[name].phase for name in ("token:a", "token:b", "")] == [
        "quiet",
        "stopped",
        "running",
    ]
    assert stored["token:a"].heartbeat_at == first.heartbeat_at
    heard = http_workers.last_heard(["w1"], "token:a", using="default")
    assert heard == {"w1": first.heartbeat_at}
    told = Event.objects.filter(kind="worker.started").order_by("id").values_list("data", flat=True)
    assert list(told) == [
        {"worker_id": "w1", "client": "token:a", "queues": []},
        {"worker_id": "w1", "client": "token:b", "queues": []},
        {"worker_id": "w1", "queues": []},
    ]


def test_what_events_say_of_a_worker(frozen: FrozenClock) -> None:
    """OJS events 4.3."""
    seen(queues=["q"], concurrency=4, running=3)
    seen(phase="quiet")
    frozen.advance(2.5)
    workers.deregister("w1", "token:a")
    seen(queues=["r"])
    client = {"worker_id": "w1", "client": "token:a"}
    assert [(event.kind, event.data) for event in Event.objects.order_by("id")] == [
        ("worker.started", {**client, "queues": ["q"], "concurrency": 4}),
        ("worker.quiet", {**client, "active_jobs": 3}),
        ("worker.stopped", {**client, "reason": "shutdown", "uptime_ms": 2500}),
        ("worker.started", {**client, "queues": ["r"], "concurrency": 4}),
    ]


def test_what_events_say_of_a_worker_of_the_project(frozen: FrozenClock) -> None:
    info = workers.WorkerInfo("w1", clock.new_lease(), concurrency=2, queues=["q"])
    workers.register(info)
    workers.deregister("w1", None, incarnation=info.incarnation, reason="signal")
    begun, ended = Event.objects.order_by("id").values_list("data", flat=True)
    assert begun == {"worker_id": "w1", "queues": ["q"], "concurrency": 2}
    assert ended == {"worker_id": "w1", "reason": "signal", "uptime_ms": 0}


def test_a_sign_of_life_is_two_statements(frozen: FrozenClock) -> None:
    seen()
    frozen.advance(2)
    with CaptureQueriesContext(connection) as asked:
        seen()
    words = [query["sql"].split()[0] for query in asked if query["sql"].startswith(("SEL", "UPD"))]
    assert words == ["SELECT", "UPDATE"]


def test_a_fetch_that_follows_another_asks_once(frozen: FrozenClock) -> None:
    """And locks nothing: a busy worker fetches many times a second."""
    http_workers.seen("w1", "token:a", beats=False)
    with CaptureQueriesContext(connection) as asked:
        http_workers.seen("w1", "token:a", beats=False)
    assert [query["sql"].split()[0] for query in asked] == ["SELECT"]
    frozen.advance(2)
    assert http_workers.seen("w1", "token:a", beats=False).heartbeat_at == frozen.time
    frozen.advance(-60)
    assert http_workers.seen("w1", "token:a", beats=False).heartbeat_at == frozen.time, "clock set back"


def test_a_stopped_worker_may_start_again(frozen: FrozenClock) -> None:
    first = seen()
    workers.deregister("w1", "token:a")
    workers.deregister("w1", "token:a")
    workers.deregister("unknown", "token:a")
    again = seen()
    assert (again.pk, again.phase) == (first.pk, "running")
    assert again.incarnation != first.incarnation
    assert kinds() == ["worker.started", "worker.stopped", "worker.started"]


def test_what_it_says_of_itself_stops_the_fetches(frozen: FrozenClock) -> None:
    assert http_workers.may_fetch(seen())
    assert not http_workers.may_fetch(seen(phase="drain"))
    assert not http_workers.may_fetch(seen())
    assert http_workers.may_fetch(seen(phase="running"))
    assert kinds() == ["worker.started", "worker.quiet"]


def test_after_a_long_silence_it_begins_anew(frozen: FrozenClock) -> None:
    key = seen(phase="quiet").pk
    workers.direct(key, "terminate", actor=Actor("admin", "ada", "update"))
    frozen.advance(61)
    worker = seen()
    assert (worker.phase, worker.directive) == ("running", None)


def test_directives(frozen: FrozenClock) -> None:
    key = seen().pk
    assert workers.direct(key, "quiet", actor=Actor("admin", "ada", "update")).directive == "quiet"
    assert not http_workers.may_fetch(seen(phase="running"))
    assert workers.direct(key, None).directive is None
    assert http_workers.may_fetch(seen())
    told = Event.objects.get(kind="worker.quiet").data
    assert (told["directive"], told["actor"], told["reason"]) == ("quiet", "ada", "update")
    with pytest.raises(NotFound):
        workers.direct(key + 1, "quiet")
