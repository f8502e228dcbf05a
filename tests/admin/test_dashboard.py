"""The dashboard and the failures: the right figures, few queries, nothing hostile, nobody unasked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html import unescape

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ojs import clock
from django_ojs.domain.ids import Uuid7Generator
from django_ojs.models import DeployMark, FailureStat, MaintenanceRun, MinuteStat, Worker
from django_ojs.services import incidents, reaper, rollup
from tests.admin.support import login, page, reads
from tests.services.support import ack, fail, make, take

pytestmark = pytest.mark.usefixtures("no_users")
START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7*7}}"
CARD = re.compile(
    r'<li class="ojs-card([^"]*)">(?:<a href="([^"]*)">)?([^<]*)(?:</a>)?<strong>([^<]*)<'
)


@pytest.fixture
def at(no_users: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[clock.FrozenClock]:
    """A clock that stands at noon, by which ids are made too; everything before is counted."""
    ids = Uuid7Generator()
    with clock.using_clock(clock.FrozenClock(START)) as stopped:
        assert isinstance(stopped, clock.FrozenClock)
        monkeypatch.setattr(
            clock, "new_id", lambda: ids.next(int(stopped.time.timestamp() * 1000), 1 << 20)
        )
        MaintenanceRun.objects.create(name=rollup.NAME, last_run_at=START, watermark_at=START)
        yield stopped


def cards(text: str) -> dict[str, str]:
    """The figures by their names."""
    return {name: unescape(value) for _tone, _url, name, value in CARD.findall(text)}


def counted(at: clock.FrozenClock) -> None:
    """One completed, two failed of which one timed out; one runs, two wait, the older for 4 min."""
    for options in ({}, {"timeout": "1s"}, {}):
        make(1, retry={"max_attempts": 1}, **options)
    done, late, broken = take(3)
    at.advance(2)
    ack(done)
    fail(late, type="timeout")
    fail(broken, type="app.Broken")
    at.time = START + timedelta(minutes=3)
    make(1, queue="idle")
    at.advance(60)
    make(2, queue="other")
    at.advance(180)
    take(1, queues=("other",))
    rollup.rollup(seconds=60)


def test_cards(at: clock.FrozenClock) -> None:
    counted(at)
    reaper.scan(cadence=timedelta(seconds=1), ran_by="test")
    Worker.objects.create(
        name="w1",
        incarnation=clock.new_lease(),
        started_at=at.time,
        heartbeat_at=at.time - timedelta(seconds=30),
    )
    Worker.objects.create(
        name="gone",
        incarnation=clock.new_lease(),
        started_at=START,
        heartbeat_at=at.time - timedelta(seconds=90),
    )
    at.advance(5)
    text = page(login(superuser=True), "dashboard/")
    found = cards(text)
    assert found == {
        "Available": "2",
        "Oldest wait": "4 min 5 s",
        "Active": "1",
        "Live workers": "1",
        "Retryable": "0",
        "Running workflows": "0",
        "Late schedules": "0",
        "Reaper last ran": "5 s ago",
        "Completed": "1",
        "Failed attempts": "2",
        "Attempts that succeeded": "33.3 %",
        "Timed out": "1",
        "Wait, 95th percentile": "0.95 ms",
    }
    assert "/admin/django_ojs/job/?state=active" in text


def test_each_card_leads_to_a_list(at: clock.FrozenClock) -> None:
    counted(at)
    browser = login(superuser=True)
    text = page(browser, "dashboard/")
    urls = {unescape(url) for _tone, url, _name, _value in CARD.findall(text) if url}
    assert len(urls) > 5
    assert {url: browser.get(url).status_code for url in urls} == dict.fromkeys(urls, 200)


def test_nothing_yet(no_users: None) -> None:
    text = page(login("view_minutestat"), "dashboard/")
    assert cards(text)["Oldest wait"] == "—"
    assert cards(text)["Reaper last ran"] == "never"
    assert "Nothing is counted yet" in text
    assert "The reaper has never run" in text
    assert "No failures" in page(login("view_failurestat", name="eva"), "failurestat/")


@pytest.mark.parametrize(
    ("window", "most"), [("1h", 60), ("24h", 97), ("7d", 85), ("30d", 121), ("<x>", 60)]
)
def test_windows(at: clock.FrozenClock, window: str, most: int) -> None:
    counted(at)
    text = page(login("view_minutestat"), "dashboard/", window=window)
    assert text.count('<svg class="ojs-chart" ') == text.count("<summary>As a table") == 3
    steps = text.count('<rect class="ojs-step"') // 3
    assert most - 1 <= steps <= most
    assert "completed: 1\nfailed attempts: 2<" in text
    assert "2 s" in text
    assert "<x>" not in text


def test_deployments_are_marked(at: clock.FrozenClock) -> None:
    counted(at)
    DeployMark.objects.create(at=at.time - timedelta(minutes=5), name=HOSTILE[:200])
    DeployMark.objects.create(at=at.time - timedelta(days=2), name="long ago")
    text = page(login("view_minutestat"), "dashboard/")
    assert "1 deployment<" in text
    assert text.count('class="ojs-mark"') == 3
    assert "&lt;script&gt;" in text
    assert "long ago" not in text
    assert "2 deployments<" in page(login("view_minutestat", name="eva"), "dashboard/", window="7d")


def test_pages_load_themselves_anew(at: clock.FrozenClock) -> None:
    browser = login(superuser=True)
    (job,) = make(1)
    pages = ["dashboard/", "failurestat/", "job/", "queue/", "worker/", f"job/{job.id}/change/"]
    for path in pages:
        assert "refresh.js" not in page(browser, path)
    page(browser, "dashboard/", refresh="1")
    assert "refresh.js" not in page(browser, "dashboard/", refresh="off")
    text = page(browser, "dashboard/", refresh="10", window="24h")
    assert "?refresh=off&amp;window=24h" in text
    for path in pages:
        text = page(browser, path)
        assert '<noscript><meta http-equiv="refresh" content="10"></noscript>' in text
        assert 'refresh.js" data-seconds="10" defer></script>' in text
        assert '<a href="?refresh=10" aria-current="true">10 s</a>' in text
    assert '<a href="?state=available&amp;refresh=5">' in page(browser, "job/", state="available")
    page(browser, "job/", refresh="off")
    assert "refresh.js" not in page(browser, "dashboard/")


@pytest.mark.parametrize("path", ["dashboard/", "failurestat/"])
@pytest.mark.parametrize("window", ["1h", "7d"])
def test_few_queries_whatever_there_is(at: clock.FrozenClock, path: str, window: str) -> None:
    counted(at)
    browser = login(superuser=True)
    for number in range(20):
        make(1, queue=f"q{number}")
    with CaptureQueriesContext(connection) as asked:
        page(browser, path, window=window)
    # The dashboard also asks for workers, and the server how it is.
    most = {"dashboard/": 11, "failurestat/": 9}[path]
    assert len(reads(asked)) <= most, [sql[:90] for sql in reads(asked)]
    for item in asked:
        if '_job"' in item["sql"] or "_job`" in item["sql"] or "_job WHERE" in item["sql"]:
            assert "LIMIT" in item["sql"]


def test_only_the_most_frequent_failures(at: clock.FrozenClock) -> None:
    FailureStat.objects.bulk_create(
        FailureStat(at=START, type="t", error=f"error-{n}", queue="q", count=n + 1) for n in range(60)
    )
    rest = incidents.OTHER
    FailureStat.objects.create(at=START, type=rest, error=rest, queue="", count=100)
    text = page(login("view_failurestat", "view_job"), "failurestat/", view="table")
    assert text.count("error-") == 49
    assert "error-59" in text
    assert "error-5<" not in text
    assert "all others" in text


def test_hostile_names_are_text(at: clock.FrozenClock) -> None:
    make(1, retry={"max_attempts": 1})
    fail(*take(), type=HOSTILE)
    FailureStat.objects.create(at=START, type=HOSTILE, error=HOSTILE, queue=HOSTILE, count=3)
    FailureStat.objects.create(at=START, type="<b>x</b>", error="a b", queue="q", count=3)
    MinuteStat.objects.create(at=START, queue=HOSTILE, completed=1)
    at.time = START + timedelta(minutes=3)
    rollup.rollup()
    browser = login(superuser=True)
    table = {"view": "table"}
    for path, view in (("dashboard/", {}), ("failurestat/", {}), ("failurestat/", table)):
        text = page(browser, path, window="7d", refresh=HOSTILE, **view, **{"<script>": HOSTILE})
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert "<b>x" not in text
        assert " style=" not in text
        assert "49" not in re.findall(r"<td>([^<]*)</td>", text)
    assert "&lt;script&gt;alert(1)" in text


@pytest.mark.parametrize("path", ["dashboard/", "failurestat/"])
def test_refused_without_permission(at: clock.FrozenClock, path: str) -> None:
    other = {"dashboard/": "view_failurestat", "failurestat/": "view_minutestat"}[path]
    browser = login(other, "view_job")
    assert browser.get(f"/admin/django_ojs/{path}").status_code == 403
    browser.logout()
    assert browser.get(f"/admin/django_ojs/{path}").status_code == 302


def test_it_is_in_the_index(at: clock.FrozenClock) -> None:
    text = login("view_minutestat").get("/admin/").content.decode()
    assert re.search(r'href="/admin/django_ojs/dashboard/"[^>]*>Dashboard<', text)
    assert "django_ojs/minutestat" not in text
