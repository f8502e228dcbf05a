"""Bulk work: orders that nobody can forge, to the rows that were shown, as long as their giver may."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import signing
from django.test import override_settings

from django_ojs import clock
from django_ojs import own_jobs as own
from django_ojs.admin import base
from django_ojs.admin import bulk as pages
from django_ojs.api import Fail, enqueue, get
from django_ojs.clock import FrozenClock
from django_ojs.domain.job import Actor, JobRow
from django_ojs.models import AuditEntry, Job, Queue
from django_ojs.services import bulk, tokens
from django_ojs.services.bulk import Filter, Order
from django_ojs.services.promote import promote
from tests.admin.support import across, do, login, page
from tests.http.support import Api
from tests.services.support import ack, fail, make, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db", "no_users")]

LIST = "/admin/django_ojs/job/"


def order(operation: str, narrowed: Filter, **more: Any) -> Order:
    """What the admin would have ordered for the last user."""
    user = User.objects.get()
    given = bulk.start(operation, narrowed, more, Actor("admin", "ada"), user=user.pk)
    return bulk.read(given.json("args")[0], given.id)


def changed(given: Order) -> list[int]:
    """How many of each page."""
    return [page.changed for page in pages.work(given, after=None)]


def states(jobs: list[JobRow]) -> list[str]:
    """As they are now."""
    return [get(job.id).state for job in jobs]


@pytest.mark.slow
def test_beyond_a_thousand_it_becomes_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MOST_AT_ONCE", 10)
    browser = login("view_job", "cancel_job")
    make(25)
    make(3, queue="other")
    asked = across(browser, "cancel", "?queue=default").content.decode()
    assert "this becomes a job" in asked
    assert "queue: default" in asked
    fields = {"_confirmed": "1", "_many": "1", "reason": "flood"}
    answer = across(browser, "cancel", "?queue=default", **fields)
    (work,) = Job.objects.filter(type=bulk.TYPE)
    assert str(work.pk) in browser.get(answer["Location"]).content.decode()
    assert Job.objects.filter(state="cancelled").count() == 0
    assert changed(bulk.read(work.args[0], work.pk)) == [25]
    assert Job.objects.filter(queue="default", state="cancelled").count() == 25
    assert Job.objects.filter(state="available", queue="other").count() == 3
    noted = AuditEntry.objects.exclude(action="bulk.started").values_list("action", "reason", "actor")
    assert set(noted) == {("job.cancelled", "flood", "ada")}
    assert AuditEntry.objects.get(action="bulk.started").target_id == str(work.pk)


def test_a_few_rows_that_have_become_many_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MOST_AT_ONCE", 10)
    browser = login("view_job", "cancel_job")
    make(5)
    assert "this becomes a job" not in across(browser, "cancel").content.decode()
    make(10)
    answer = across(browser, "cancel", _confirmed="1", _many="0")
    assert "this becomes a job" in answer.content.decode()
    assert not Job.objects.exclude(state="available").exists()
    assert not Job.objects.filter(type=bulk.TYPE).exists()


@pytest.mark.parametrize("name", ["reschedule", "extend"])
def test_what_is_no_bulk_work_is_refused_before_it_is_asked(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(base, "MOST_AT_ONCE", 10)
    browser = login(superuser=True)
    make(12, delay="1h")
    answer = across(browser, name)
    said = browser.get(answer["Location"]).content.decode()
    assert "Select at most 10 rows" in said


def test_it_goes_on_behind_the_last_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "CHUNK", 4)
    login("cancel_job")
    jobs = make(10)
    given = order("cancel", Filter(queue="default"))
    newer = enqueue("marker", []).id
    walk = pages.work(given, after=None)
    first = next(walk)
    assert first.changed == 4
    rest = list(pages.work(given, after=first.last, seen=4))
    assert [page.changed for page in rest] == [4, 2]
    assert set(states(jobs)) == {"cancelled"}
    assert get(newer).state == "available"


def test_its_cap_holds_over_all_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "CHUNK", 4)
    monkeypatch.setattr(pages, "MOST", 6)
    login("cancel_job")
    make(10)
    given = order("cancel", Filter())
    assert pages.size(given) == {"of": 6, "exact": False}
    first = next(pages.work(given, after=None))
    assert [page.changed for page in pages.work(given, after=first.last, seen=4)] == [2]


class Context:
    """What a handler is given, as far as bulk work asks."""

    last_checkpoint = None

    def __init__(self, job_id: Any) -> None:
        self.id = job_id


def test_an_order_is_bound_to_its_job() -> None:
    login("purge_job")
    (job,) = make(1)
    ack(*take(1))
    signed = bulk.start("purge", Filter(), {}, Actor("admin", "ada"), user=User.objects.get().pk)
    text = signed.json("args")[0]
    copied = enqueue(bulk.TYPE, [text], queue=bulk.QUEUE)
    forged = enqueue(bulk.TYPE, [signing.dumps({"job": "x"}, salt="mine")], queue=bulk.QUEUE)
    plain = ["purge", {"state": "completed"}, {}, {"source": "admin", "name": "boss"}]
    for job_id, arguments in ((copied.id, [text]), (forged.id, forged.args), (job.id, plain)):
        with pytest.raises((Fail, TypeError)):
            own.bulk(Context(job_id), *arguments)
    assert get(job.id).state == "completed"
    with override_settings(SECRET_KEY="of another release"), pytest.raises(Fail, match="SECRET_KEY"):
        own.bulk(Context(signed.id), text)


@pytest.mark.fault("S9")
def test_nobody_enqueues_it_over_http() -> None:
    api = Api(tokens.create("test", scopes=tokens.SCOPES, queues=["*"])[1])
    body = {"type": bulk.TYPE, "queue": bulk.QUEUE, "args": ["x"]}
    for path, sent in (("/jobs", body), ("/jobs/batch", {"jobs": [body]})):
        answer = api.post(path, sent)
        assert answer.status == 400
        assert "type" in answer.body["error"]["message"]
    assert Job.objects.count() == 0


def revoke() -> None:
    User.objects.get().user_permissions.clear()


def dismiss() -> None:
    User.objects.update(is_active=False)


def remove() -> None:
    User.objects.all().delete()


@pytest.mark.parametrize("end", [revoke, dismiss, remove])
@pytest.mark.fault("S9")
def test_it_ends_when_its_giver_may_not_do_it_any_more(
    monkeypatch: pytest.MonkeyPatch, end: Callable[[], None]
) -> None:
    monkeypatch.setattr(pages, "CHUNK", 4)
    login("cancel_job")
    jobs = make(10)
    walk = pages.work(order("cancel", Filter()), after=None)
    assert next(walk).changed == 4
    end()
    with pytest.raises(pages.Denied, match="ada"):
        next(walk)
    assert states(jobs).count("cancelled") == 4
    assert AuditEntry.objects.get(result="denied").action == "job.cancel"


def test_it_ends_when_the_admin_is_only_for_looking() -> None:
    login(superuser=True)
    jobs = make(3)
    given = order("cancel", Filter())
    with override_settings(OJS={"ADMIN": {"READ_ONLY": True}}), pytest.raises(pages.Denied):
        changed(given)
    assert set(states(jobs)) == {"available"}


@pytest.mark.slow
@override_settings(OJS={"ADMIN": {"SEARCH_WINDOW": 5}})
@pytest.mark.parametrize("together", [False, True], ids=["one by one", "at the same time"])
def test_it_covers_all_that_match_window_by_window(
    frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    """Also those that ended at the same time as the last of a window."""
    monkeypatch.setattr(pages, "CHUNK", 4)
    login("retry_job")
    make(20, retry={"max_attempts": 1})
    for _ in range(20):
        frozen.advance(0 if together else 1)
        fail(*take(1))
    make(1, queue="other", retry={"max_attempts": 1})
    fail(*take(1, queues=("other",)))
    narrowed = Filter(state="discarded", search="queue:default")
    assert pages.count(narrowed, "default", limit_ms=5000) == (20, True)
    given = order("retry", narrowed)
    assert pages.size(given) == {"of": 20, "exact": True}
    done = list(islice(pages.work(given, after=None), 2))
    done += pages.work(given, after=done[-1].last, seen=sum(found.changed for found in done))
    assert sum(found.changed for found in done) == 20
    assert Job.objects.filter(state="discarded").count() == 1


@override_settings(OJS={"ADMIN": {"SEARCH_WINDOW": 5}})
def test_a_few_are_those_of_all_windows_too() -> None:
    browser = login("view_job", "cancel_job")
    make(4)
    make(8, queue="other")
    make(4)
    answer = across(browser, "cancel", "?queue=default")
    assert "8 rows" in answer.content.decode()
    across(browser, "cancel", "?queue=default", _confirmed="1", _many="0")
    assert Job.objects.filter(queue="default", state="cancelled").count() == 8
    assert not Job.objects.filter(queue="other", state="cancelled").exists()


@override_settings(OJS={"ADMIN": {"SEARCH_WINDOW": 10}})
def test_no_less_than_was_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "CHUNK", 2)
    login("cancel_job")
    make(10)
    walk = pages.work(order("cancel", Filter(search="type:test.job")), after=None)
    done = next(walk).changed
    make(20)
    assert done + sum(page.changed for page in walk) == 10


def test_what_ends_meanwhile_is_left_alone(frozen: FrozenClock) -> None:
    login("purge_job")
    make(3)
    ack(*take(1))
    given = order("purge", Filter(state="completed"))
    frozen.advance(1)
    ack(*take(2))
    assert changed(given) == [1]
    assert Job.objects.filter(state="completed").count() == 2


def test_what_becomes_available_meanwhile_is_left_alone(frozen: FrozenClock) -> None:
    login("cancel_job")
    make(2)
    (held,) = take(1)
    given = order("cancel", Filter(state="available"))
    frozen.advance(1)
    fail(held)
    frozen.advance(3600)
    promote()
    assert get(held.id).state == "available"
    assert changed(given) == [1]
    assert get(held.id).state == "available"


@pytest.mark.parametrize("query", ["?state=failed", "?lens=foo", "?state=completed&lens=foo"])
def test_a_tab_that_does_not_exist_is_empty(query: str) -> None:
    browser = login("view_job", "cancel_job")
    jobs = make(3)
    assert "ojs-id" not in browser.get(LIST + query).content.decode()
    across(browser, "cancel", query, _confirmed="1")
    assert set(states(jobs)) == {"available"}


@pytest.mark.parametrize("name", ["zzz", "%00"])
def test_a_queue_without_a_row_is_not_every_queue(name: str) -> None:
    browser = login("view_job", "cancel_job")
    jobs = make(3)
    Queue.objects.all().delete()
    assert "ojs-id" not in browser.get(f"{LIST}?queue={name}").content.decode()
    across(browser, "cancel", f"?queue={name}", _confirmed="1")
    assert set(states(jobs)) == {"available"}


def test_after_an_operation_there_is_a_page() -> None:
    browser = login(superuser=True)
    (kept,) = make(1, retry={"max_attempts": 1, "on_exhaustion": "dead_letter"})
    fail(*take(1))
    path = f"/admin/django_ojs/deadletter/{kept.id}/do/"
    made = browser.post(
        f"{path}requeue/", {"_confirmed": "1", "args": "[]", "meta": "{}", "queue": "q"}
    )
    new = Job.objects.get(queue="q")
    assert made["Location"] == f"{LIST}{new.pk}/change/"
    assert browser.post(f"{path}retry/", {"_confirmed": "1"})["Location"] == f"{LIST}{kept.id}/change/"
    (gone,) = make(1, queue="other")
    ack(*take(1, queues=("other",)))
    assert do(browser, gone, "purge", typed="purge")["Location"] == LIST


def test_an_id_opens_its_job_whatever_the_tab_and_the_spelling() -> None:
    browser = login("view_job")
    (job,) = make(1)
    for text in (str(job.id), str(job.id).upper(), job.id.hex):
        for query in ("", "?state=completed", "?lens=overdue"):
            answer = browser.get(LIST + query, {"q": text, **({"state": "completed"} if query else {})})
            assert answer["Location"] == f"{LIST}{job.id}/change/"
    assert "There is no job" in page(browser, "job/", q=str(clock.new_id()))


def test_keys_that_are_none_are_refused() -> None:
    browser = login("view_job", "cancel_job")
    action = {"action": "cancel", "_selected_action": ["nope"], "index": "0"}
    assert browser.post(LIST, action).status_code == 400


def test_no_job_is_moved_where_nobody_claims_it() -> None:
    browser = login(superuser=True)
    (job,) = make(1)
    text = do(browser, job, "edit", queue=bulk.QUEUE).content.decode()
    assert "for the work of django_ojs itself" in text
    assert get(job.id).queue == "default"
    fields = {"queue": "default", "priority": str(job.priority)}
    moved = browser.post(f"{LIST}{job.id}/do/edit/", {**fields, "_confirmed": "1"}, follow=True)
    assert "Nothing had to be changed" in moved.content.decode()


@pytest.mark.parametrize("args", ["{}", "0", '""', "[" * 5000 + "]" * 5000, "[" + "9" * 5000 + "]"])
def test_arguments_that_are_none_are_refused_and_stay_in_the_form(args: str) -> None:
    browser = login(superuser=True)
    (job,) = make(1)
    ack(*take(1))
    text = do(browser, job, "requeue", args=args, meta="{}", queue="default").content.decode()
    assert "errorlist" in text
    assert Job.objects.count() == 1


def test_jobs_that_are_left_as_they_are_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """``MOST`` bounds the jobs that an order looks at, whether it changes them or not."""
    monkeypatch.setattr(pages, "CHUNK", 2)
    monkeypatch.setattr(pages, "MOST", 4)
    login("cancel_job")
    make(6)
    ack(*take(6))
    given = order("cancel", Filter(queue="default"))
    assert [(page.changed, page.left) for page in pages.work(given, after=None)] == [(0, 2), (0, 2)]
