"""What people do in the admin, in a real browser, and what is then in the database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from selenium.webdriver.common.keys import Keys

from django_ojs import clock
from django_ojs.domain.job import JobRow
from django_ojs.models import AuditEntry, Job, Queue, Worker
from django_ojs.services.reap import reap
from tests.browser.conftest import NAME
from tests.browser.pages import every_page, fill
from tests.browser.support import Browser
from tests.services.support import ack, fail, make, now_stored, take
from tests.support import poll


def is_now(job: JobRow, state: str) -> Callable[[], bool]:
    """Whether the job has come into the state."""
    return lambda: now_stored(job).state == state


def timed_out() -> JobRow:
    """A job that ran into its timeout an hour ago."""
    then = clock.FrozenClock(clock.now("default") - timedelta(hours=1))
    with clock.using_clock(then):
        job = make(timeout="10s", grace_period="0s", retry={"max_attempts": 1})[0]
        take()
        then.advance(11)
        reap()
    return job


def discarded() -> JobRow:
    """A job that failed for good."""
    job = make(retry={"max_attempts": 1})[0]
    fail(*take(), type="app.Broken")
    return job


def rows(browser: Browser) -> int:
    """How many jobs a list shows."""
    return len(browser.all("#result_list .ojs-job"))


def test_a_stranger_is_asked_who_he_is(browser: Browser) -> None:
    browser.forget()
    browser.open("job/")
    assert browser.path == "/admin/login/"
    browser.login(NAME)
    browser.open("job/")
    assert browser.one("h1").text.casefold() == "jobs"


def test_filter_by_tab_queue_and_search(browser: Browser) -> None:
    make(3)
    make(2, queue="mail")
    ack(*take())
    browser.open("job/")
    assert rows(browser) == 5
    browser.follow("completed", ".ojs-tabs")
    assert rows(browser) == 1
    (when,) = browser.texts(".field-when")
    assert when.startswith("completed ")
    browser.follow("All", ".ojs-tabs")
    browser.one(".ojs-filter summary").click()
    browser.follow("mail", "#changelist-filter")
    assert rows(browser) == 2
    browser.open("job/")
    browser.fill("q", "queue:mail args.x:1")
    browser.submit("#changelist-search [type=submit]")
    assert rows(browser) == 0
    browser.fill("q", "queue:mail")
    browser.submit("#changelist-search [type=submit]")
    assert rows(browser) == 2
    assert set(browser.texts("td.field-queue")) == {"mail"}


def test_an_id_leads_to_its_job(browser: Browser) -> None:
    job = make()[0]
    browser.open("job/")
    browser.fill("q", str(job.id))
    browser.submit("#changelist-search [type=submit]")
    assert browser.path == f"/admin/django_ojs/job/{job.id}/change/"


def test_a_timed_out_job_says_why(browser: Browser) -> None:
    make()
    job = timed_out()
    browser.open("job/")
    browser.follow("Timed out", ".ojs-tabs")
    assert rows(browser) == 1
    browser.submit("#result_list .ojs-id")
    assert browser.path == f"/admin/django_ojs/job/{job.id}/change/"
    assert "fired" in browser.one(".ojs-clock-execution").text
    assert "10 s 11 s" in browser.one(".ojs-clock-execution").text
    for name in ("total", "queue", "heartbeat"):
        assert "fired" not in browser.one(f".ojs-clock-{name}").text
    assert browser.all("#ojs-timeline + svg")
    browser.one("#ojs-timeline ~ details summary").click()
    assert "#1 timeout" in browser.one("#ojs-timeline ~ details").text
    attempts = browser.one("section[aria-labelledby=ojs-attempts]").text
    assert "timeout" in attempts
    assert not browser.faults()


def test_extend_a_running_job(browser: Browser) -> None:
    job = make(timeout="60s")[0]
    take()
    browser.open(f"job/{job.id}/change/")
    assert browser.texts(".ojs-nearest th")
    browser.follow("Extend timeout", ".object-tools")
    assert not browser.faults()
    assert browser.one("[name=by][value='5m']").is_selected()
    browser.confirm("the report is large")
    poll(lambda: now_stored(job).extended_ms == 300_000)
    assert "6 min" in browser.one(".ojs-clock-execution").text
    assert browser.all(".messagelist .success")
    entry = AuditEntry.objects.get(target_id=str(job.id))
    assert (entry.actor, entry.reason, entry.source) == (NAME, "the report is large", "admin")
    assert "the report is large" in browser.one("section[aria-labelledby=ojs-history]").text


def test_retry_a_discarded_job(browser: Browser) -> None:
    job = discarded()
    browser.open(f"job/{job.id}/change/")
    assert "app.Broken" in browser.text
    browser.follow("Retry", ".object-tools")
    browser.confirm()
    poll(is_now(job, "available"))
    assert browser.one("h1 .ojs-badge").text == "available"


def test_cancel_a_running_job(browser: Browser) -> None:
    job = make()[0]
    take()
    browser.open(f"job/{job.id}/change/")
    browser.follow("Cancel", ".object-tools")
    browser.follow("Keep job")
    assert now_stored(job).state == "active"
    browser.follow("Cancel", ".object-tools")
    browser.confirm("not needed")
    poll(is_now(job, "cancelled"))


def test_cancel_many_at_once(browser: Browser) -> None:
    make(4)
    browser.open("job/?state=available")
    browser.select(3)
    browser.act("cancel")
    assert "3 rows" in browser.text
    assert not browser.faults()
    browser.confirm("a test")
    poll(lambda: Job.objects.filter(state="cancelled").count() == 3)
    assert Job.objects.filter(state="available").count() == 1
    assert browser.path == "/admin/django_ojs/job/"
    assert rows(browser) == 1


def test_pause_and_resume_a_queue(browser: Browser) -> None:
    make(queue="mail-out")
    for name, paused in (("pause", True), ("resume", False)):
        browser.open("queue/")
        browser.select(1)
        browser.act(name)
        browser.confirm("the mail server is down")
        poll(partial(Queue.objects.filter(name="mail-out", paused=paused).exists))
    browser.open(f"queue/{quote('mail-out')}/change/")
    browser.follow("Pause", ".object-tools")
    browser.confirm("again")
    poll(lambda: Queue.objects.get(name="mail-out").paused)
    queue = Queue.objects.get(name="mail-out")
    assert (queue.paused_by, queue.reason) == (NAME, "again")
    assert browser.path == f"/admin/django_ojs/queue/{quote('mail-out')}/change/"


def test_quiet_a_worker(browser: Browser) -> None:
    now = clock.now("default")
    row = Worker.objects.create(
        name="web-1_a", incarnation=clock.new_lease(), started_at=now, heartbeat_at=now, concurrency=4
    )
    browser.open(f"worker/{row.pk}/change/")
    browser.follow("Quiet", ".object-tools")
    browser.confirm()
    poll(lambda: Worker.objects.get().directive == "quiet")


def test_by_keyboard_alone(browser: Browser) -> None:
    job = make(timeout="60s")[0]
    take()
    browser.open("job/")
    browser.tab_to("active")
    browser.leave(lambda: browser.press(Keys.ENTER))
    browser.tab_to("…")
    browser.leave(lambda: browser.press(Keys.ENTER))
    assert browser.path.endswith(f"{job.id}/change/")
    browser.tab_to("Extend timeout")
    browser.leave(lambda: browser.press(Keys.ENTER))
    browser.tab_to("reason")
    browser.press("by keys")
    browser.leave(lambda: browser.press(Keys.ENTER))
    poll(lambda: now_stored(job).extended_ms == 300_000)


@pytest.fixture
def filled(browser: Browser) -> Browser:
    """The window on rows of every kind."""
    fill(User.objects.get(username=NAME).pk)
    return browser


def test_every_page_is_sound(filled: Browser) -> None:
    """One heading, a label for every field, ids once, and nothing to complain of in the console."""
    found = []
    for path in (*every_page(), "apitoken/add/", "job/?lens=overdue", "", "/admin/"):
        filled.open(path)
        found += filled.faults()
    assert not found, "\n".join(found)
