"""The figures of the dashboard: beside those of yesterday, by type, with what waits now."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ojs import clock, group, step
from django_ojs.admin import charts
from django_ojs.domain import histogram
from django_ojs.models import MinuteStat, Schedule, TypeStat
from django_ojs.services import queue_samples, rollup, type_stats
from django_ojs.store import selectors
from tests.admin.support import login, page, reads, worker
from tests.admin.test_dashboard import CARD, START, cards, counted
from tests.admin.test_dashboard import at as at
from tests.services.support import make

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("no_users")]
MINUTE = timedelta(minutes=1)


def stat(at: Any, **figures: Any) -> None:
    """What was counted in a minute of all queues."""
    MinuteStat.objects.create(
        at=at,
        queue=rollup.ALL,
        durations=histogram.empty(),
        waits=figures.pop("waits", histogram.empty()),
        **figures,
    )


def notes(text: str) -> dict[str, tuple[str, str]]:
    """The tone of each card and its note, by its name."""
    found = {}
    for card in re.findall(r'<li class="ojs-card.*?</li>', text, re.S):
        (tone, _url, name, _value) = CARD.findall(card)[0]
        note = re.search(r"<small>(.*?)</small>", card)
        found[name] = tone.strip().removeprefix("ojs-"), unescape(note[1]) if note else ""
    return found


def chart(text: str, name: str) -> str:
    """The figure with this title."""
    return text.partition(f"<figcaption>{name}")[2].partition("</figure>")[0]


@pytest.mark.slow
def test_a_period_is_compared_with_the_one_before(at: clock.FrozenClock) -> None:
    stat(START - MINUTE, completed=90, failed=10, timed_out=1)
    day = timedelta(days=1)
    stat(START - day - MINUTE, completed=98, failed=2)
    # Neither the last hour nor the same of yesterday.
    stat(START - 61 * MINUTE, completed=1000, failed=1000)
    stat(START - day + MINUTE, completed=1000, failed=1000)
    browser = login(superuser=True)
    text = page(browser, "dashboard/")
    assert cards(text)["Completed"] == "90"
    assert cards(text)["Attempts that succeeded"] == "90 %"
    found = notes(text)
    assert found["Completed"] == ("", "yesterday: 98")
    assert found["Failed attempts"] == ("bad", "yesterday: 2")
    assert found["Attempts that succeeded"] == ("bad", "yesterday: 98 %")
    assert found["Timed out"] == ("", "yesterday: 0")
    beside = chart(text, "Completed jobs and failed attempts").partition("<details")[0]
    assert re.findall(r"<td>([^<]*)</td>", beside) == ["10", "2", "10", "90", "98", "90"]
    assert 'scope="col">yesterday<' in beside
    text = page(browser, "dashboard/", window="24h")
    assert cards(text)["Completed"] == "2,090"
    assert notes(text)["Completed"][1] == "the day before: 98"
    assert notes(page(browser, "dashboard/", window="30d"))["Completed"] == ("", "")


def test_a_single_failure_is_no_alarm(at: clock.FrozenClock) -> None:
    stat(START - MINUTE, completed=99, failed=1, timed_out=1)
    found = notes(page(login("view_minutestat"), "dashboard/"))
    assert {found[name][0] for name in ("Failed attempts", "Attempts that succeeded", "Timed out")} == {
        ""
    }


def test_what_waits_now_counts_as_waiting(at: clock.FrozenClock) -> None:
    """Two completed at once, thirty have waited for a quarter of an hour."""
    waits = histogram.empty()
    waits[1] = 2
    stat(START - MINUTE, completed=2, waits=waits)
    make(30)
    at.time = START + timedelta(minutes=15)
    queue_samples.sample()
    text = page(login("view_minutestat"), "dashboard/")
    assert cards(text)["Wait, 95th percentile"] == "15 min"
    assert cards(text)["Oldest wait"] == "15 min"
    backlog = chart(text, "Jobs that waited, by queue")
    assert re.findall(r"</span> default</th><td>30</td><td>30</td>", backlog)
    assert "\ndefault: 30<" in backlog


@pytest.mark.slow
def test_the_largest_queues_have_areas_and_the_others_one(at: clock.FrozenClock) -> None:
    for number in range(1, 11):
        make(number, queue=f"q{number:02}")
    queue_samples.sample()
    backlog = chart(page(login("view_minutestat"), "dashboard/"), "Jobs that waited, by queue")
    beside = backlog.partition("<details")[0]
    names = re.findall(r'aria-hidden="true">━</span> ([^<]*)</th><td>(\d+)', beside)
    assert names == [("other queues", "3")] + [(f"q{n:02}", f"{n}") for n in range(3, 11)]
    assert backlog.count("<polygon") == 9


def test_the_oldest_is_found_in_any_queue(
    at: clock.FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many wait in those that come first by name."""
    make(1, queue="z")
    at.advance(600)
    make(5, queue="a")
    queue_samples.sample()
    monkeypatch.setattr(selectors, "COUNT_CAP", 4)
    at.advance(30)
    text = page(login(superuser=True), "dashboard/")
    assert cards(text)["Oldest wait"] == "10 min"
    assert notes(text)["Oldest wait"] == ("", "in z")
    assert "?state=available&amp;queue=z" in text


def test_how_things_stand(at: clock.FrozenClock) -> None:
    worker("a", concurrency=4)
    worker("b", concurrency=2, age=61)
    group(step("test.job", [1]), step("test.job", [2])).enqueue()
    Schedule.objects.create(
        name="nightly", type="t", expression="@hourly", due_at=at.time - timedelta(hours=1)
    )
    text = page(login("view_minutestat"), "dashboard/")
    found, said = cards(text), notes(text)
    assert found["Running workflows"] == "1"
    assert (found["Late schedules"], said["Late schedules"][0]) == ("1", "bad")
    assert "Late schedules (1): nightly" in text
    assert said["Active"] == ("", "of 4 slots")


@pytest.mark.slow
def test_job_types_by_the_time_that_they_took(at: clock.FrozenClock) -> None:
    for number in range(12):
        durations = histogram.empty()
        durations[13] = 3
        for seconds in map(timedelta.total_seconds, type_stats.STEPS):
            TypeStat.objects.create(
                at=histogram.floor(START - timedelta(minutes=5), timedelta(seconds=seconds)),
                step=seconds,
                type=f"type-{number:02}",
                completed=3,
                failed=number,
                busy_ms=1000 * number,
                durations=durations,
            )
    browser = login(superuser=True)
    for window in ("1h", "24h", "7d", "30d"):
        text = page(browser, "dashboard/", window=window)
        body = text.partition('class="ojs-flow ojs-types"')[2].partition("</tbody>")[0]
        names = re.findall(r'<tr data-key="([^"]*)"', body)
        assert names == [f"type-{n:02}" for n in range(11, 1, -1)] + ["all others"]
        assert "/admin/django_ojs/job/?q=type%3Atype-11" in body
        row = re.sub(r"<svg.*?</svg>", "", body.partition("<tbody>")[2].partition("</tr>")[0])
        first = re.sub(r"<[^>]+>", " ", row).split()
        assert first == [
            "type-11",
            "3",
            "11",
            "21.4",
            "%",
            "2.24",
            "s",
            "2.47",
            "s",
            "17",
            "%",
            "11",
            "s",
        ]
    assert 'value="17"' in body
    assert "<title>How long they took: ≤ 2.5 s: 3</title>" in body


def test_durations_are_a_histogram_with_words() -> None:
    durations = histogram.empty()
    assert charts.spread(durations) == ""
    durations[6], durations[8], durations[-1] = 5, 50, 1
    drawn = charts.spread(durations)
    assert "<title>How long they took: ≤ 50 ms: 5, ≤ 250 ms: 50, &gt; 1 h: 1</title>" in drawn
    heights = [float(text) for text in re.findall(r'<rect [^>]*height="([\d.]+)"', drawn)]
    assert heights == [2.2, 22.0, 1.0], "what is rare is not nothing"
    ends = [
        float(x) + float(w) for x, w in re.findall(r'x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', drawn)
    ]
    assert ends == sorted(ends) and ends[-1] <= 98


@pytest.mark.slow
def test_few_statements_however_long_the_window(at: clock.FrozenClock) -> None:
    counted(at)
    queue_samples.sample()
    browser = login(superuser=True)
    for window in ("1h", "24h", "7d", "30d"):
        with CaptureQueriesContext(connection) as asked:
            page(browser, "dashboard/", window=window)
        found = reads(asked)
        assert len(found) <= 12, [sql[:80] for sql in found]
