"""What became of the jobs of bulk work that has ended: on its page, and as the last word on it."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_ojs.admin import base, outcome
from django_ojs.models import AuditEntry, Job
from django_ojs.services import bulk, bulk_outcome
from django_ojs.testing import drain
from tests.admin.support import across, login, page, reads
from tests.admin.test_banner import notes
from tests.services.support import ack, fail, make, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db", "no_users")]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than two rows are bulk work, and the heads of pages look each time."""
    monkeypatch.setattr(base, "MOST_AT_ONCE", 2)
    monkeypatch.setattr(outcome, "_SHARE", 0)


def ordered(browser: Client, operation: str, query: str) -> Job:
    """Bulk work that was ordered in the browser, and is done."""
    typed = {"typed": "purge"} if operation == "purge" else {}
    across(browser, operation, query, _confirmed="1", _many="1", reason="OPS-4412", **typed)
    drain(bulk.QUEUE)
    job = Job.objects.get(type=bulk.TYPE)
    assert job.state == "completed"
    return job


def said(browser: Client, job: Job) -> str:
    """What the page of the order says of its jobs."""
    text = page(browser, f"job/{job.pk}/change/")
    found = re.search(r"What became of its jobs: <strong>(.*?)</strong>", text)
    return found[1] if found else ""


def follows(browser: Client, job: Job) -> bool:
    """Whether the page of the order offers to be kept up to date."""
    return 'class="ojs-refresh"' in page(browser, f"job/{job.pk}/change/")


def broken(count: int) -> None:
    make(count, retry={"max_attempts": 1})
    fail(*take(count))


@pytest.mark.slow
def test_jobs_that_were_retried_are_counted_until_the_last_has_ended() -> None:
    browser = login(superuser=True)
    broken(6)
    broken(1)
    Job.objects.filter(pk=Job.objects.latest("id").pk).update(queue="other")
    job = ordered(browser, "retry", "?state=discarded&queue=default")
    assert said(browser, job) == "6 still waiting"
    ack(*take(3))
    fail(*take(1))
    take(1)
    words = "3 completed, 1 failed again, 1 running, 1 still waiting"
    assert said(browser, job) == words
    assert follows(browser, job)
    (note,) = notes(page(browser, "queue/"))
    assert note == f"Retry 6 {words} · by ada · OPS-4412"
    Job.objects.filter(state="active").update(state="available", lease_id=None)
    ack(*take(2))
    assert said(browser, job) == "5 completed, 1 failed again"
    assert not follows(browser, job)
    assert "5 completed, 1 failed again" in notes(page(browser, "queue/"))[0]
    Job.objects.filter(state="completed", type="test.job").order_by("id")[0].delete()
    assert said(browser, job) == "4 completed, 1 failed again, 1 deleted"


def test_a_job_that_will_be_tried_again_has_not_failed_for_good() -> None:
    browser = login(superuser=True)
    make(3, delay="1h")
    job = ordered(browser, "run_now", "?state=scheduled")
    fail(*take(1))
    ack(*take(1))
    assert said(browser, job) == "1 completed, 1 waiting for another attempt, 1 still waiting"


@pytest.mark.parametrize(
    ("operation", "query", "words"),
    [
        ("cancel", "?state=available", "3 cancelled"),
        ("discard", "?state=available", "3 discarded"),
        ("purge", "?state=discarded", "3 deleted"),
    ],
)
def test_what_is_over_at_once_is_said_at_once(operation: str, query: str, words: str) -> None:
    browser = login(superuser=True)
    if operation == "purge":
        broken(3)
    else:
        make(3)
    job = ordered(browser, operation, query)
    assert said(browser, job) == words
    assert not follows(browser, job)
    assert f" 3 {words} · by ada" in notes(page(browser, "queue/"))[0]


def test_what_others_have_done_is_not_counted() -> None:
    browser = login(superuser=True)
    broken(3)
    others = make(2)
    job = ordered(browser, "retry", "?state=discarded")
    first = Job.objects.filter(state="available").exclude(pk__in=[other.id for other in others])[0]
    for pk in (first.pk, others[0].id):
        browser.post(f"/admin/django_ojs/job/{pk}/do/cancel/", {"_confirmed": "1"})
    assert said(browser, job) == "1 cancelled, 2 still waiting"


def test_no_more_than_so_many_rows_of_the_audit_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bulk_outcome, "MOST", 2)
    browser = login(superuser=True)
    make(4)
    with CaptureQueriesContext(connection) as asked:
        job = ordered(browser, "cancel", "?state=available")
        found = said(browser, job)
    assert re.fullmatch(r"of the first (\d): \1 cancelled", found)
    about = [sql for sql in reads(asked) if "bulk_job_id" in sql]
    assert len(about) == 1
    assert re.search(r"<= \d+", about[0])


@pytest.mark.slow
def test_the_heads_of_pages_do_not_look_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are on every page: a look at tens of thousands of jobs takes longer than most pages."""
    browser = login(superuser=True)
    make(3)
    job = ordered(browser, "cancel", "?state=available")
    monkeypatch.setattr(outcome, "_SHARE", 1_000_000)
    shown = []
    with CaptureQueriesContext(connection) as asked:
        for path in ("queue/", "job/", "worker/"):
            shown += notes(page(browser, path))
    assert len(shown) == 3 and all("3 cancelled" in note for note in shown)
    assert sum("bulk_job_id" in sql for sql in reads(asked)) == 1
    Job.objects.filter(type="test.job").first().delete()  # type: ignore[union-attr]
    assert said(browser, job) == "2 cancelled, 1 deleted", "its own page looks each time"
    assert "2 cancelled, 1 deleted" in notes(page(browser, "queue/"))[0]


def test_rows_whose_ids_are_far_apart_are_counted() -> None:
    """As they are where several servers give ids."""
    browser = login(superuser=True)
    make(4)
    job = ordered(browser, "cancel", "?state=available")
    for key in AuditEntry.objects.order_by("-pk").values_list("pk", flat=True):
        AuditEntry.objects.filter(pk=key).update(id=key * 10**6)
    assert said(browser, job) == "4 cancelled"


def test_without_the_audit_nothing_is_said() -> None:
    browser = login(superuser=True)
    make(3)
    job = ordered(browser, "cancel", "?state=available")
    AuditEntry.objects.all().delete()
    assert said(browser, job) == ""
    (note,) = notes(page(browser, "queue/"))
    assert note == "Cancel job 3 3 done · completed · by ada · OPS-4412"


def test_work_that_was_stopped_says_what_became_of_what_it_did() -> None:
    browser = login(superuser=True)
    make(3)
    job = ordered(browser, "cancel", "?state=available")
    Job.objects.filter(pk=job.pk).update(state="cancelled")
    (note,) = notes(page(browser, "queue/"))
    assert note == "Cancel job 3 3 cancelled · stopped · by ada · OPS-4412"
