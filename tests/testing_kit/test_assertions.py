"""What a test has enqueued, and how an assertion that fails says what is there instead."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

import django_ojs
from django_ojs import InvalidRequest, job
from django_ojs.testing import JobClock, assert_enqueued, drain, enqueued, refute_enqueued

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def mail() -> Any:
    @job("kit.mail", queue="mail")
    def mail(user: int, *, urgent: bool = False, **more: Any) -> None: ...

    return mail


def test_each_field_is_compared(mail: Any) -> None:
    plain = mail.enqueue(7)
    rich = mail.using(priority=5, meta={"a": [1], "b": 2}, tags=["x", "y"], delay="1h").enqueue(
        8, urgent=True, colour="red"
    )
    other = django_ojs.enqueue("kit.other", [{"k": (1, 2)}])

    def ids(*given: Any, **fields: Any) -> list[Any]:
        return [one.id for one in enqueued(*given, **fields)]

    assert ids() == [plain.id, rich.id, other.id]
    assert ids(mail) == ids("kit.mail") == ids(mail.using(delay=3)) == [plain.id, rich.id]
    assert ids(mail, args=[7]) == ids(args=(7,)) == [plain.id]
    assert ids(args=lambda args: args[0] == 8) == [rich.id]
    assert ids("kit.other", args=[{"k": [1, 2]}]) == ids(args=[{"k": (1, 2)}]) == [other.id]
    assert ids(mail, kwargs={"user": 8, "urgent": True}) == ids(kwargs={"colour": "red"}) == [rich.id]
    assert ids(mail, kwargs=lambda named: named == {"user": 7}) == [plain.id]
    assert ids(kwargs={"urgent": False}) == []
    assert ids(queue="mail", priority=5) == ids(meta={"b": 2}) == ids(meta={"a": [1]}) == [rich.id]
    assert ids(tags=["y"]) == ids(tags="x") == ids(tags={"x", "y"}) == [rich.id]
    assert ids(tags=["z"]) == ids(meta={"c": None}) == []
    assert ids(state="scheduled") == [rich.id]
    assert ids(scheduled_in="1h") == ids(scheduled_in=timedelta(hours=1)) == ids(scheduled_in=3600)
    assert ids(scheduled_in="1h") == ids(scheduled_at=rich.scheduled_at) == [rich.id]
    assert ids(scheduled_in="59m") == []
    assert assert_enqueued(mail, count=2) == enqueued(mail)
    refute_enqueued(mail, args=[9])


def test_a_job_counts_whatever_became_of_it(mail: Any) -> None:
    mail.enqueue(1)
    drain()
    assert_enqueued(mail, state="completed", count=1)
    refute_enqueued(mail, state="available")


def test_the_nearest_misses_are_shown(mail: Any) -> None:
    one = mail.using(delay="1h").enqueue(8)
    two = django_ojs.enqueue("kit.other", [7])
    with JobClock() as clock, pytest.raises(AssertionError) as caught:
        clock.freeze(one.created_at)
        assert_enqueued(mail, args=[7], queue="mail", scheduled_in="2h")
    text = str(caught.value)
    first, *rest = text.splitlines()
    assert first.startswith("expected a job kit.mail with args=[7], queue='mail', scheduled_at=")
    assert first.endswith(": there is none")
    assert rest[:3] == [
        "nearest:",
        f"  kit.mail {one.id}: scheduled, queue 'mail', args [8]",
        "    args: expected [7], is [8]",
    ]
    assert rest[3].startswith("    scheduled_at: expected ")
    assert rest[4] == f"  kit.other {two.id}: available, queue 'default', args [7]"
    assert rest[5] == "    type: expected 'kit.mail', is 'kit.other'"


def test_too_many_and_too_few(mail: Any) -> None:
    with pytest.raises(AssertionError, match="nothing has been enqueued"):
        assert_enqueued(mail)
    mail.enqueue_many([(number,) for number in range(6)])
    with pytest.raises(AssertionError, match=r"expected 2 jobs kit.mail: 6 match\n  kit.mail "):
        assert_enqueued(mail, count=2)
    with pytest.raises(AssertionError, match=r"expected a job kit.mail with state='active'") as caught:
        assert_enqueued(mail, state="active")
    assert str(caught.value).endswith("\n  and 3 more")
    assert str(caught.value).count("state: expected") == 3
    with pytest.raises(AssertionError, match=r"expected no job kit.mail: there are 6"):
        refute_enqueued(mail)
    assert assert_enqueued(mail, args=[9], count=0) == []


def test_an_enqueue_that_waits_for_a_commit_is_mentioned(mail: Any, database: str) -> None:
    def missing() -> str:
        with pytest.raises(AssertionError) as caught:
            assert_enqueued(mail)
        return str(caught.value)

    with transaction.atomic():
        mail.enqueue_on_commit(1)
        assert "1 call(s) of enqueue_on_commit wait for a commit" in missing()
    if database == "committed":
        assert_enqueued(mail, count=1)
    else:
        assert "inside `with commits():`" in missing()


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"queues": "mail"}, "queues"),
        ({"job": 3}, "no handler, no task and no job type"),
        ({"scheduled_in": 1, "scheduled_at": None}, None),
    ],
)
def test_mistakes_are_named(given: dict[str, Any], complaint: str | None) -> None:
    if complaint is None:
        refute_enqueued(**given)
        return
    with pytest.raises(TypeError, match=complaint):
        refute_enqueued(**given)


@pytest.mark.parametrize("ask", [assert_enqueued, refute_enqueued, enqueued])
def test_what_cannot_be_asked_for_is_named(mail: Any, ask: Any) -> None:
    """No job is in a state that there is not: a test that refutes it would pass whatever happens."""
    with pytest.raises(TypeError, match=r"unknown field 'argz': did you mean 'args'\?"):
        ask(mail, argz=[7])
    with pytest.raises(InvalidRequest, match="queue: must be of a-z"):
        ask(mail, queue="No Queue")
    with pytest.raises(ValueError, match=r"state: did you mean 'cancelled'\?"):
        ask(mail, state="canceled")
