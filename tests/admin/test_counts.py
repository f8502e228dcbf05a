"""Numbers of lists and confirmations are exact, or say that they are not."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import partial

import pytest
from django.test import override_settings
from django.utils import timezone
from django.utils.formats import date_format

from django_ojs.admin import base
from django_ojs.admin import bulk as pages
from django_ojs.admin import jobs as jobs_admin
from django_ojs.admin.job_changelist import JobChangeList
from django_ojs.clock import FrozenClock
from django_ojs.domain import histogram
from django_ojs.models import MaintenanceRun, MinuteStat
from django_ojs.services import rollup
from django_ojs.store import selectors
from tests.admin.support import across, cell, login, page, worker
from tests.services.support import ack, make, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db", "no_users")]


@pytest.mark.slow
@override_settings(OJS={"ADMIN": {"SEARCH_WINDOW": 5}})
@pytest.mark.fault("S35")
@pytest.mark.parametrize(
    ("query", "number", "words"),
    [
        ("?queue=default", "20 jobs.", "queue: default"),
        ("", "30 jobs.", "every job"),
        ("?state=available&q=type:test.job", "30 jobs.", "search: type:test.job"),
    ],
)
def test_the_confirmation_says_how_many_of_what(
    monkeypatch: pytest.MonkeyPatch, query: str, number: str, words: str
) -> None:
    monkeypatch.setattr(base, "MOST_AT_ONCE", 10)
    browser = login("view_job", "cancel_job")
    make(20)
    make(10, queue="other")
    asked = across(browser, "cancel", query).content.decode()
    assert number in asked
    assert f"<code>{words}</code>" in asked
    monkeypatch.setattr(pages, "MOST", 15)
    assert "≥ 15 jobs." in across(browser, "cancel", query).content.decode()


def test_what_could_not_be_counted_in_time_is_so_many_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MOST_AT_ONCE", 10)
    browser = login("view_job", "cancel_job")
    make(20)
    original = pages.count
    monkeypatch.setattr(
        jobs_admin, "count", lambda *args, **named: original(*args, **{**named, "limit_ms": 0})
    )
    assert "≥ 10 jobs." in across(browser, "cancel").content.decode()


def test_nothing_is_asked_about_no_rows() -> None:
    browser = login("view_job", "cancel_job")
    make(1)
    answer = across(browser, "cancel", "?queue=none")
    assert answer.status_code == 302
    assert "Nothing matches any more." in browser.get(answer["Location"]).content.decode()


@pytest.mark.slow
@override_settings(OJS={"ADMIN": {"SEARCH_WINDOW": 60}})
def test_the_number_of_a_list_is_exact_or_says_that_it_is_not() -> None:
    browser = login("view_job")
    make(60)
    text = page(browser, "job/", queue="default")
    assert "≥ 50 jobs" in text
    assert "51 results" not in text
    make(3, queue="other")
    assert "≥ 3 jobs" in page(browser, "job/", queue="other")
    with override_settings(OJS={"ADMIN": {"SEARCH_WINDOW": 64}}):
        text = page(browser, "job/", queue="other")
        assert "<span>3 jobs</span>" in text
        assert "Looked among" not in text


@pytest.mark.slow
def test_a_queue_has_at_least_what_was_found_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """No index knows the queue of what ended: it is looked for among the newest of all queues."""
    browser = login("view_queue", "view_job", "view_minutestat")
    make(3, queue="rare")
    ack(*take(3, queues=("rare",)))
    make(4)
    ack(*take(4))
    make(2, queue="rare", delay="1h")
    make(3, delay="1m")
    make(4)
    text = page(browser, "queue/rare/change/")
    assert re.findall(r"<td[^>]*>(?:<a[^>]*>)?(?:<span[^>]*>)?([^<]+)", between(text, "ojs-depth")) == [
        "2", "0", "0", "0", "0", "3", "0", "0"
    ]  # fmt: skip
    monkeypatch.setattr(selectors, "COUNT_CAP", 4)
    monkeypatch.setattr(selectors, "AMONG_CAP", 4)
    monkeypatch.setattr(selectors, "depths", partial(selectors.depths, among=4, cap=4))
    text = page(browser, "queue/rare/change/")
    assert re.findall(r"<td[^>]*>(?:<a[^>]*>)?(?:<span[^>]*>)?([^<]+)", between(text, "ojs-depth")) == [
        "≥ 1", "0", "0", "0", "0", "≥ 0", "0", "0"
    ]  # fmt: skip
    text = page(browser, "queue/")
    assert ">≥ 1</a>" in cell(text, "rare", "scheduled")
    assert ">≥ 4</a>" in cell(text, "default", "available")
    assert "≥ <time" in cell(text, "default", "oldest")
    assert "≥ " in page(browser, "dashboard/").partition("Oldest wait")[2][:100]


def between(text: str, label: str) -> str:
    """The body of the panel with this label."""
    return text.partition(f'id="{label}"')[2].partition("<tbody>")[2].partition("</tbody>")[0]


@pytest.mark.parametrize("query", [{"state": "available"}, {}])
def test_a_tab_with_more_than_is_counted_says_at_least(
    monkeypatch: pytest.MonkeyPatch, query: dict[str, str]
) -> None:
    monkeypatch.setattr(selectors, "COUNT_CAP", 4)
    monkeypatch.setattr(JobChangeList, "count_cap", 4)
    monkeypatch.setattr(jobs_admin.JobAdmin, "list_per_page", 2)
    browser = login("view_job", "cancel_job")
    make(3)
    assert "<span>3 jobs</span>" in page(browser, "job/", **query)
    make(2)
    text = page(browser, "job/", **query)
    assert "<span>≥ 4 jobs</span>" in text
    assert "Select all ≥ 4 jobs" in text


def test_minutes_that_are_not_counted_yet_are_not_drawn(frozen: FrozenClock) -> None:
    browser = login("view_queue")
    make()
    watermark = histogram.floor(frozen.now("default") - timedelta(minutes=20), rollup.MINUTE)
    MaintenanceRun.objects.create(
        name=rollup.NAME, last_run_at=frozen.now("default"), cadence_ms=60_000, watermark_at=watermark
    )
    MinuteStat.objects.create(
        at=watermark - timedelta(minutes=59), queue="default", completed=7, failed=0
    )
    assert cell(page(browser, "queue/"), "default", "throughput").startswith("7 <svg")
    chart = page(browser, "queue/default/change/").partition('id="ojs-hour"')[2]
    last = timezone.localtime(watermark - timedelta(minutes=1))
    assert re.findall(r'<th scope="row">([^<]+)</th>', chart)[-1] == date_format(last, "H:i")


@pytest.mark.slow
def test_one_is_no_plural() -> None:
    browser = login("view_job", "view_worker", "view_queue")
    make(1)
    worker()
    for path, words in (("job/", "1 job"), ("worker/", "1 worker"), ("queue/", "1 queue")):
        assert f"<span>{words}</span>" in page(browser, path)
    make(1)
    assert "<span>2 jobs</span>" in page(browser, "job/")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "said"), [(6, "1 more was left as it is."), (7, "2 more were left as they are.")]
)
def test_what_was_left_alone_is_counted_in_words_that_fit(count: int, said: str) -> None:
    browser = login("view_job", "retry_job")
    chosen = [str(job.id) for job in make(count)]
    data = {"action": "retry", "_selected_action": chosen, "_confirmed": "1"}
    assert said in browser.post("/admin/django_ojs/job/", data, follow=True).content.decode()
