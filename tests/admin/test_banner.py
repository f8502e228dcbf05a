"""The bulk work under way, on every page: how far, for whom and why; and what the audit says of it."""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import islice

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_ojs.admin import base
from django_ojs.admin import bulk as pages
from django_ojs.api import get
from django_ojs.clock import FrozenClock
from django_ojs.domain.job import Actor
from django_ojs.models import AuditEntry, Job
from django_ojs.services import bulk
from tests.admin.support import across, login, page
from tests.services.support import ack, make, now_stored, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("no_users")]
PAGES = ("job/", "queue/", "dashboard/", "failurestat/", "auditentry/", "apitoken/", "schedule/")


def notes(text: str) -> list[str]:
    """The notes of a page as plain text."""
    found = re.findall(r'<div class="ojs-bulk".*?</div>', text, re.S)
    return [" ".join(re.sub(r"<[^>]*>", " ", note).split()) for note in found]


def started(count: int = 30, name: str = "ada") -> Job:
    """An order to cancel these jobs, by the last user."""
    make(count)
    user = User.objects.get(username=name)
    actor = Actor("admin", name, "OPS-4412")
    given = bulk.start("cancel", bulk.Filter(queue="default"), {}, actor, user=user.pk)
    return Job.objects.get(pk=given.id)


def at_work(frozen: FrozenClock, job: Job) -> None:
    """A worker runs it for ten seconds, and has done 20 of 30."""
    (claimed,) = take(queues=(bulk.QUEUE,), types=(bulk.TYPE,))
    assert claimed.id == job.pk
    place = {"last": None, "done": 18, "skipped": 2, "of": 30, "exact": True}
    Job.objects.filter(pk=job.pk).update(checkpoint=place)
    frozen.advance(10)


@pytest.mark.slow
def test_every_page_says_how_far_it_is(frozen: FrozenClock) -> None:
    browser = login(superuser=True)
    at_work(frozen, started())
    for path in (*PAGES, f"job/{take()[0].id}/change/"):
        (note,) = notes(page(browser, path))
        assert note == (
            "Cancel job 30 18 done · 2 left as they are · 2/s · 5 s left · by ada · OPS-4412 Stop"
        ), path
    text = page(browser, "job/")
    stop = re.search(r'<a href="([^"]*/do/cancel/)" class="ojs-danger">Stop', text)
    assert stop is not None
    assert notes(browser.get(stop[1]).content.decode())


def test_it_is_one_statement_and_none_for_those_who_see_no_jobs(frozen: FrozenClock) -> None:
    browser = login("view_job")
    at_work(frozen, started())
    with CaptureQueriesContext(connection) as asked:
        (note,) = notes(page(browser, "job/"))
    assert "Stop" not in note
    about = [query["sql"] for query in asked if bulk.TYPE in query["sql"]]
    assert len(about) == 1
    assert " LIMIT " in about[0]
    assert notes(page(login("view_queue", name="eva"), "queue/")) == []


def ordered(browser: Client, monkeypatch: pytest.MonkeyPatch, count: int = 12) -> Job:
    """An order given in the browser."""
    monkeypatch.setattr(base, "MOST_AT_ONCE", 10)
    make(count)
    across(browser, "cancel", "?queue=default", _confirmed="1", _many="1", reason="flood")
    return Job.objects.get(type=bulk.TYPE)


@pytest.mark.slow
def test_who_ordered_it_sees_the_outcome_for_a_while(
    frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = login(superuser=True)
    job = ordered(browser, monkeypatch)
    (note,) = notes(page(browser, "queue/"))
    assert "waits for a worker of the queue ojs-admin" in note
    at_work(frozen, job)
    ack(now_stored(get(job.pk)))
    (note,) = notes(page(browser, "queue/"))
    assert "completed" in note and "Stop" not in note
    assert notes(page(login("view_job", "view_queue", name="eva"), "queue/")) == []
    frozen.advance(timedelta(minutes=16).total_seconds())
    assert notes(page(browser, "queue/")) == []


def test_the_rows_of_the_jobs_name_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    browser = login(superuser=True)
    job = ordered(browser, monkeypatch)
    order = bulk.read(job.args[0], job.pk)
    assert [one.changed for one in islice(pages.work(order, after=None), 1)] == [12]
    start = AuditEntry.objects.get(action="bulk.started")
    assert (start.reason, start.data["filter"], start.data["count"]) == (
        "flood",
        {"queue": "default"},
        "12",
    )
    rows = AuditEntry.objects.filter(action="job.cancelled")
    assert {row.data["bulk_job_id"] for row in rows} == {str(job.pk)}
    assert rows.count() == 12
    assert f"bulk_job_id: {job.pk}" in page(browser, "auditentry/")
