"""What is known of a bulk order: whether somebody will take it, and later what it was."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs.admin import base
from django_ojs.api import enqueue
from django_ojs.models import AuditEntry, Job
from django_ojs.services import bulk
from tests.admin.support import across, login, page, worker
from tests.services.support import make

pytestmark = pytest.mark.usefixtures("ojs_db", "no_users")
UNSERVED = "No live worker serves the queue ojs-admin"
ORDER = {"_confirmed": "1", "_many": "1", "reason": "OPS-4412"}


@pytest.mark.parametrize(
    ("columns", "age", "waits"),
    [
        (None, 0, True),
        ({"types": [bulk.TYPE], "queues": ["default"]}, 0, True),
        ({"types": ["mail.send"]}, 0, True),
        ({"types": [bulk.TYPE]}, 90, True),
        ({"types": [bulk.TYPE], "phase": "quiet"}, 0, True),
        ({"types": [bulk.TYPE]}, 0, False),
        ({"types": [bulk.TYPE], "queues": ["default", bulk.QUEUE]}, 0, False),
    ],
)
def test_it_is_said_before_that_no_worker_takes_it(
    monkeypatch: pytest.MonkeyPatch, columns: dict[str, Any] | None, age: int, waits: bool
) -> None:
    monkeypatch.setattr(base, "MOST_AT_ONCE", 2)
    browser = login("view_job", "cancel_job")
    make(3)
    if columns is not None:
        worker(age=age, **columns)
    assert (UNSERVED in across(browser, "cancel").content.decode()) is waits
    answer = across(browser, "cancel", **ORDER)
    assert (UNSERVED in browser.get(answer["Location"]).content.decode()) is waits


@pytest.mark.slow
@pytest.mark.every_database
def test_the_audit_says_what_was_ordered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MOST_AT_ONCE", 2)
    browser = login("view_job", "cancel_job", "view_auditentry")
    make(3)
    make(1, queue="other")
    across(browser, "cancel", "?state=available&queue=default", **ORDER)
    entry = AuditEntry.objects.get(action="bulk.started")
    assert entry.data == {
        "operation": "cancel",
        "filter": {"state": "available", "queue": "default"},
        "count": "3",
    }
    assert (entry.reason, entry.actor) == ("OPS-4412", "ada")
    text = page(browser, "auditentry/", did="bulk")
    assert "operation: cancel, count: 3, queue: default, state: available" in text
    across(browser, "cancel", **ORDER)
    assert "count: 4, every job" in page(browser, "auditentry/", did="bulk")


def test_the_page_of_the_job_says_what_was_ordered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MOST_AT_ONCE", 2)
    browser = login("view_job", "view_args", "cancel_job")
    make(3)
    query = "?state=available&q=queue:default"
    across(browser, "cancel", query, **ORDER)
    job = Job.objects.get(type=bulk.TYPE)
    text = page(browser, f"job/{job.pk}/change/")
    order = "Cancel job · state: available, search: {} · by ada · OPS-4412"
    assert order.format("queue:default") in text
    assert job.args[0] not in text
    stranger = login("view_job", name="eva")
    assert order.format("…") in page(stranger, f"job/{job.pk}/change/")
    Job.objects.filter(pk=job.pk).update(args=["forged"])
    assert "not an order of the admin" in page(browser, f"job/{job.pk}/change/")


@pytest.mark.every_database
def test_the_audit_hides_a_search_from_who_may_not_see_arguments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(base, "MOST_AT_ONCE", 2)
    browser = login("view_job", "view_args", "cancel_job", "view_auditentry")
    for _number in range(3):
        enqueue("test.job", [{"email": "ada@example.org"}])
    across(browser, "cancel", "?state=available&q=email:ada@example.org", **ORDER)
    entry = AuditEntry.objects.get(action="bulk.started")
    stranger = login("view_auditentry", name="eva")
    for path in ("auditentry/", f"auditentry/{entry.pk}/change/"):
        assert "email:ada@example.org" in page(browser, path)
        hidden = page(stranger, path)
        assert "ada@example.org" not in hidden
        assert "available" in hidden
    assert "search: …, state: available" in page(stranger, "auditentry/")
