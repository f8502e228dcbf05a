"""HTTP workers: first sight, ownership, what they said and were told."""

from __future__ import annotations

import pytest

from django_ojs.clock import FrozenClock
from django_ojs.domain.errors import NotFound, PermissionDenied
from django_ojs.domain.job import Actor
from django_ojs.models import Event, Worker
from django_ojs.services import workers

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]


def seen(name: str = "w1", principal: str = "token:a", *, beats: bool = True, **said: object) -> Worker:
    return workers.seen(name, principal, beats=beats, said=said)


def kinds() -> list[str]:
    return list(Event.objects.order_by("id").values_list("kind", flat=True))


def test_the_first_sign_makes_the_row(frozen: FrozenClock) -> None:
    worker = seen(beats=False, hostname="h", queues=["q"])
    stored = Worker.objects.get()
    assert (stored.pk, stored.principal, stored.hostname, stored.queues) == (
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
    assert workers.may_fetch(worker)
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


def test_the_name_belongs_to_the_credential_that_uses_it(frozen: FrozenClock) -> None:
    seen()
    with pytest.raises(PermissionDenied):
        seen(principal="token:b")
    with pytest.raises(PermissionDenied):
        workers.own("w1", "token:b")
    frozen.advance(601)
    assert seen(principal="token:b").principal == "token:b"


def test_a_stopped_worker_leaves_its_name(frozen: FrozenClock) -> None:
    first = seen().incarnation
    workers.deregister("w1")
    workers.deregister("w1")
    workers.deregister("unknown")
    again = seen(principal="token:b")
    assert (again.phase, again.principal) == ("running", "token:b")
    assert again.incarnation != first
    assert kinds() == ["worker.started", "worker.stopped", "worker.started"]


def test_what_it_says_of_itself_stops_the_fetches(frozen: FrozenClock) -> None:
    assert workers.may_fetch(seen())
    assert not workers.may_fetch(seen(phase="drain"))
    assert not workers.may_fetch(seen())
    assert workers.may_fetch(seen(phase="running"))
    assert kinds() == ["worker.started", "worker.quiet"]


def test_after_a_long_silence_it_begins_anew(frozen: FrozenClock) -> None:
    seen(phase="quiet")
    workers.direct("w1", "terminate", actor=Actor("admin", "ada", "update"))
    frozen.advance(61)
    worker = seen()
    assert (worker.phase, worker.directive) == ("running", None)


def test_directives(frozen: FrozenClock) -> None:
    seen()
    assert workers.direct("w1", "quiet", actor=Actor("admin", "ada", "update")).directive == "quiet"
    assert not workers.may_fetch(seen(phase="running"))
    assert workers.direct("w1", None).directive is None
    assert workers.may_fetch(seen())
    told = Event.objects.get(kind="worker.quiet").data
    assert (told["directive"], told["actor"], told["reason"]) == ("quiet", "ada", "update")
    with pytest.raises(NotFound):
        workers.direct("unknown", "quiet")
