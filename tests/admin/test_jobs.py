"""The job list and the page of a job: what they show, and in how many queries."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.contrib.admin.sites import site
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs.admin import job_page
from django_ojs.admin.clocks import clocks
from django_ojs.admin.limits import window_size
from django_ojs.admin.tabs import LENSES, Tab
from django_ojs.api import cancel, enqueue, retry
from django_ojs.clock import FrozenClock
from django_ojs.models import Job
from django_ojs.services.promote import promote
from django_ojs.services.reap import reap
from tests.admin.support import login, page
from tests.services.support import ack, fail, make, now_stored, take

pytestmark = pytest.mark.usefixtures("no_users")
HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(2)>{{7*7}}'


def ids(text: str) -> list[str]:
    """The jobs of a list, in order."""
    return re.findall(r'title="([0-9a-f-]{36})"', text)


def test_tabs_have_counts_and_filter() -> None:
    browser = login("view_job")
    make(3)
    ack(*take())
    cancel(make(queue="other")[0])
    text = page(browser, "job/")
    assert len(ids(text)) == 4
    for state, count in (("available", 2), ("completed", 1), ("cancelled", 1), ("active", 0)):
        assert re.search(rf'state={state}"[^>]*>\w+ <span class="ojs-count">{count}<', text), state
        assert len(ids(page(browser, "job/", state=state))) == count
    assert len(ids(page(browser, "job/", queue="other"))) == 1


def test_columns_belong_to_the_tab(frozen: FrozenClock) -> None:
    browser = login("view_job")
    make(1, timeout="10s")
    take()
    frozen.advance(9)
    text = page(browser, "job/", state="active")
    assert '<meter class="ojs-budget"' in text
    assert 'value="0.9"' in text
    assert "9 s / 10 s" in text
    enqueue("test.job", [1], delay="90s")
    assert "1 min 30 s" in page(browser, "job/", state="scheduled")
    make(queue="x", retry={"max_attempts": 1})
    fail(*take(queues=("x",)), type="app.Broken")
    assert "app.Broken" in page(browser, "job/", state="discarded")


def test_attempts_without_a_limit_are_only_counted() -> None:
    browser = login("view_job")
    (job,) = make(retry={"max_attempts": None})
    take()
    for path in ("job/", f"job/{job.id}/change/"):
        text = page(browser, path)
        assert re.search(r">\s*1\s*<", text), path
        assert "/2147483647" not in text, path


def test_lenses(frozen: FrozenClock) -> None:
    browser = login("view_job")
    late = make(timeout="1s", grace_period="0s", retry={"max_attempts": 1})[0]
    make()
    take()
    frozen.advance(5)
    assert ids(page(browser, "job/", lens="overdue")) == [str(late.id)]
    reap()
    assert ids(page(browser, "job/", lens="overdue")) == []
    assert ids(page(browser, "job/", lens="timed_out")) == [str(late.id)]


@pytest.mark.parametrize("query", [{}, {"state": "completed"}, {"state": "scheduled"}])
def test_pages_go_forth_and_back_by_key(
    query: dict[str, str], frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = login("view_job")
    monkeypatch.setattr(site._registry[Job], "list_per_page", 4)
    for number in range(10):
        frozen.advance(1)
        match query.get("state"):
            case "scheduled":
                enqueue("test.job", [number], delay=f"{100 + number % 3}s")
            case "completed":
                make()
                ack(*take())
            case _:
                make()
    seen: list[str] = []
    pages: list[list[str]] = []
    path: str | None = "job/"
    params = dict(query)
    while path:
        text = page(browser, path, **params)
        pages.append(ids(text))
        seen += ids(text)
        link = re.search(r'href="\?([^"]*)" rel="next"', text)
        path = f"job/?{link[1].replace('&amp;', '&')}" if link else None
        params = {}
    assert [len(found) for found in pages] == [4, 4, 2]
    assert len(set(seen)) == 10
    back = re.search(r'href="\?([^"]*)" rel="prev"', text)
    assert back is not None
    assert ids(page(browser, f"job/?{back[1].replace('&amp;', '&')}")) == pages[1]


@pytest.mark.parametrize("cursor", ["x", "2026~x", "~", "' or 1=1", "9" * 500])
def test_a_cursor_that_somebody_typed_is_no_error(cursor: str) -> None:
    browser = login("view_job")
    make()
    for state in ("", "completed", "scheduled"):
        page(browser, "job/", after=cursor, state=state)
        page(browser, "job/", before=cursor, state=state)


@pytest.mark.parametrize(
    ("term", "found"),
    [
        ("type:mail.send", 1),
        ("type:mail*", 2),
        ("queue:q1 type:mail*", 2),
        ("queue:none", 0),
        ("tag:vip", 1),
        ("args.order:42", 1),
        ("args.order:41", 0),
        ("meta.tenant:acme", 1),
        ("nonsense", 0),
        ("args.x__regex:1", 0),
        ("args.order.gt:1", 0),
        ("args.regex:4", 0),
        ("meta.tenant__startswith:a", 0),
        ("password:1", 0),
    ],
)
def test_search(term: str, found: int) -> None:
    browser = login("view_job", "view_args")
    enqueue("mail.send", [{"order": 42}], queue="q1", tags=["vip"])
    enqueue("mail.read", [], queue="q1", meta={"tenant": "acme"})
    enqueue("other", [])
    text = page(browser, "job/", q=term)
    assert len(ids(text)) == found
    assert "Looked among the newest" not in text


def test_search_by_error_and_worker() -> None:
    browser = login("view_job")
    make(2, retry={"max_attempts": 1})
    fail(*take(), type="app.Broken")
    (running,) = take(worker="box-7")
    assert len(ids(page(browser, "job/", q="error:app.Broken"))) == 1
    assert ids(page(browser, "job/", q="worker:box-7")) == [str(running.id)]


def test_an_id_leads_to_its_job() -> None:
    browser = login("view_job")
    job = make()[0]
    response = browser.get("/admin/django_ojs/job/", {"q": str(job.id)})
    assert (response.status_code, response["Location"]) == (
        302,
        f"/admin/django_ojs/job/{job.id}/change/",
    )


def test_the_window_of_a_search_is_bounded() -> None:
    browser = login("view_job")
    enqueue("old", [], tags=["vip"])
    make(3)
    with override_settings(OJS={"ADMIN": {"SEARCH_WINDOW": 3}}):
        text = page(browser, "job/", q="tag:vip")
        assert ids(text) == []
        assert "Looked among the newest 3 jobs" in text
    assert len(ids(page(browser, "job/", q="tag:vip"))) == 1


@pytest.mark.parametrize(
    "query", [{}, {"state": "completed"}, {"q": "type:test.job"}, {"state": "active"}]
)
def test_a_list_takes_few_queries_and_none_is_unbounded(query: dict[str, str]) -> None:
    browser = login(superuser=True)
    make(60)
    ack(*take(20))
    page(browser, "job/")
    with CaptureQueriesContext(
        connection,
    ) as captured:
        page(browser, "job/", **query)
    asked = [
        q["sql"] for q in captured if "set_config" not in q["sql"] and "max_statement" not in q["sql"]
    ]
    selects = [sql for sql in asked if sql.lstrip("(").upper().startswith("SELECT")]
    assert len(selects) <= 11, "\n".join(selects)
    for sql in selects:
        upper = sql.upper()
        # Of a window the last row is read.
        assert not re.search(rf" OFFSET (?!{window_size('default') - 1}\b)", upper)
        assert "DISTINCT" not in upper
        if "COUNT(" in upper and "OJS_JOB" in upper:
            assert "LIMIT" in upper


def test_the_page_of_a_running_job(frozen: FrozenClock) -> None:
    browser = login("view_job", "view_args")
    job = enqueue(
        "test.job",
        [{"order": 42, "password": "hunter2"}],
        timeout="100s",
        grace_period="10s",
        total_timeout="1h",
        heartbeat_timeout="20s",
    )
    take()
    frozen.advance(15)
    text = page(browser, f"job/{job.id}/change/")
    assert re.search(r"ojs-clock-execution.*?1 min 40 s.*?15 s.*?1 min 25 s", text, re.S)
    assert re.search(r"ojs-clock-heartbeat ojs-nearest.*?20 s.*?15 s.*?5 s", text, re.S)
    assert re.search(r"ojs-clock-total\".*?1 h.*?15 s.*?59 min 45 s", text, re.S)
    assert "It runs on w1" in text
    assert "&quot;order&quot;: 42" in text
    assert "hunter2" not in text
    assert str(Job.objects.get().lease_id) not in text


@pytest.mark.fault("S11")
def test_arguments_need_a_permission() -> None:
    browser = login("view_job")
    job = enqueue("test.job", ["a-secret-argument"], meta={"m": "a-secret-meta"})
    text = page(browser, f"job/{job.id}/change/")
    assert "a-secret" not in text
    assert "view args" in text


def test_the_page_of_a_finished_job(frozen: FrozenClock) -> None:
    browser = login("view_job", "view_args")
    job = make(retry={"max_attempts": 2, "jitter": False})[0]
    frozen.advance(3)
    fail(
        *take(), type="app.Broken", backtrace=["File /app/shop/x.py, line 1", "File /lib/python3/y.py"]
    )
    frozen.advance(5)

    promote()
    frozen.advance(2)
    ack(*take(), result='{"n":1}')
    text = page(browser, f"job/{job.id}/change/")
    for job_event in (
        "app.Broken",
        "#1 failed",
        "#2 completed",
        "job.retrying",
        "/app/shop/x.py",
        "&quot;n&quot;: 1",
    ):
        assert job_event in text, job_event
    assert text.count("<rect") == 4
    assert "Why isn't this running" not in text


def test_the_page_of_a_failed_job_begins_with_where_it_failed(frozen: FrozenClock) -> None:
    browser = login("view_job")
    job = make(retry={"max_attempts": 1})[0]
    claimed = take()
    frozen.advance(2)
    trace = [
        "Traceback (most recent call last):",
        '  File "/srv/app/shop/jobs.py", line 37, in handle\n    order["currency"]',
        '  File "/usr/lib/python3.11/collections/abc.py", line 9, in get\n    raise KeyError(key)',
        "KeyError: 'currency'",
    ]
    fail(*claimed, type="builtins.KeyError", backtrace=trace)
    text = html.unescape(page(browser, f"job/{job.id}/change/"))
    verdict = "Failed after 1 attempt in 2 s: KeyError: no in shop/jobs.py:37, handle()"
    assert verdict in text
    assert text.index(verdict) < text.index("Timeouts")
    frame = text.partition('<pre class="ojs-frame">')[2].partition("</pre>")[0]
    assert 'order["currency"]' in frame
    assert "collections/abc.py" not in frame


def test_the_verdict_counts_the_time_of_the_attempts_of_this_life(frozen: FrozenClock) -> None:
    browser = login("view_job")
    (job,) = make(retry={"max_attempts": 2, "initial_interval": "PT1H", "jitter": False})
    for seconds in (2, 3):
        claimed = take()
        frozen.advance(seconds)
        fail(*claimed, type="app.Broken")
        frozen.advance(3600)
        promote(using="default")
    assert "Failed after 2 attempts in 5 s: Broken: no" in page(browser, f"job/{job.id}/change/")
    retry(job)
    frozen.advance(60)
    claimed = take()
    frozen.advance(4)
    fail(*claimed, type="app.Broken")
    assert "Failed after 1 attempt in 4 s: Broken: no" in page(browser, f"job/{job.id}/change/")


def test_a_job_that_did_not_fail_has_no_verdict() -> None:
    browser = login("view_job")
    job = make()[0]
    ack(*take())
    assert "ojs-verdict" not in page(browser, f"job/{job.id}/change/")


def test_why_a_job_waits() -> None:
    browser = login("view_job")
    job = make()[0]
    text = page(browser, f"job/{job.id}/change/")
    assert "No worker is alive." in text


@pytest.mark.fault("S10")
def test_everything_shown_is_hostile_input() -> None:
    browser = login("view_job", "view_args", name="eve")
    job = enqueue("test.job", [HOSTILE, {HOSTILE: HOSTILE}], meta={HOSTILE: HOSTILE}, tags=[HOSTILE])
    claimed = take(worker=HOSTILE)
    fail(*claimed, type=HOSTILE, backtrace=[HOSTILE])
    cancel(job, reason=HOSTILE, by=HOSTILE)
    for path in ("job/", f"job/{job.id}/change/", "job/?state=cancelled"):
        text = page(browser, path)
        assert "<script>alert(1)" not in text
        assert "<img src=x" not in text
    searched = page(browser, "job/", q=HOSTILE)
    assert "<script>alert(1)" not in searched


@pytest.mark.fault("S9")
def test_without_permission_nothing_is_seen() -> None:
    browser = login("view_queue")
    job = make()[0]
    for path in ("job/", f"job/{job.id}/change/"):
        assert browser.get(f"/admin/django_ojs/{path}").status_code == 403


def test_the_dead_letter(frozen: FrozenClock) -> None:
    browser = login("view_deadletter", "view_job")
    dead = make(retry={"max_attempts": 1, "on_exhaustion": "dead_letter"})[0]
    fail(*take())
    make(retry={"max_attempts": 1})
    fail(*take())
    assert ids(page(browser, "deadletter/")) == [str(dead.id)]
    page(browser, f"deadletter/{dead.id}/change/")


def test_a_custom_admin_site_works() -> None:
    from django.contrib.admin import AdminSite

    from django_ojs.admin.jobs import JobAdmin

    other = AdminSite(name="other")
    other.register(Job, JobAdmin)
    model_admin: Any = other._registry[Job]
    assert [item.name for item in model_admin.operations][:2] == ["retry", "run_now"]
    assert model_admin.check() == []


def test_the_cause_stands_before_the_look_ahead(frozen: FrozenClock) -> None:
    make(timeout=60, total_timeout=70)
    (job,) = take()
    frozen.advance(10)
    fail(job)
    browser = login(superuser=True)
    assert "<b>Error</b>, <a" in page(browser, "job/", state="discarded")
    shown = page(browser, f"job/{job.id}/change/")
    assert "The last error was test.Error: no" in shown
    assert "It was given up: the next attempt could not finish" in shown
    fired = {one.name for one in clocks(now_stored(job), frozen.time) if one.fired}
    assert not fired, "the total timeout has not run out"


def test_of_many_attempts_the_last_are_shown(
    frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_page, "MOST_ATTEMPTS", 2)
    make(retry={"max_attempts": 9, "initial_interval": "PT1S", "jitter": False})
    for _ in range(4):
        promote()
        (job,) = take()
        fail(job)
        frozen.advance(60)
    shown = job_page.job_page(job.id, shows_args=False, using="default")["attempts"]
    assert [attempt["row"].attempt for attempt in shown] == [3, 4]


@pytest.mark.parametrize("lens", LENSES)
def test_every_lens_leaves_out_a_job_that_only_waits(lens: str) -> None:
    """Bulk orders go by the same rows: a lens that narrowed nothing would be about every job."""
    make()
    tab = Tab(lens=lens)
    assert tab.rows(Job.objects.all(), "default").filter(tab.condition).count() == 0
    assert Tab().rows(Job.objects.all(), "default").count() == 1
