"""Incidents: every number is that of the list it leads to, and *all N* means these N."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs import clock
from django_ojs.admin import base
from django_ojs.admin import bulk as pages
from django_ojs.api import retry
from django_ojs.domain.failures import Failure
from django_ojs.domain.incidents import identify
from django_ojs.domain.job import JobRow
from django_ojs.models import DeployMark, FailureStat, Incident, Job
from django_ojs.services import bulk, incident_board, rollup
from django_ojs.services.settle import Outcome, Report, settle
from tests.admin.support import login, page, reads, worker
from tests.admin.test_dashboard import START
from tests.admin.test_dashboard import at as at
from tests.services.support import ack, held, make, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("no_users")]
LINK = re.compile(r'<a href="([^"]*)"><strong>([^<]*)</strong> ([^<]*)</a>')
FORM = re.compile(r'<form method="post" action="([^"]*)">(.*?)</form>')
HIDDEN = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)">')


def broken(count: int, message: str, error: str = "shop.Broken", **options: Any) -> list[JobRow]:
    """Jobs that fail for good, each with its number in the message."""
    make(count, **{"retry": {"max_attempts": 1}, **options})
    jobs = take(count)
    settle(
        [
            Outcome(held(job), Report.FAIL, failure=Failure(error, f"{message} {number}"))
            for number, job in enumerate(jobs)
        ]
    )
    return jobs


@pytest.fixture
def two(at: clock.FrozenClock) -> Client:
    """Two incidents: of five jobs, of which one was retried and completed and one waits for its next
    attempt; and of two.
    """
    worker("w1", version="shop 2.4", labels={})
    at.advance(10)
    first, *_others = broken(4, "no order")
    broken(1, "no order", retry={"max_attempts": 3})
    broken(2, "no customer")
    retry(first.id)
    ack(*take(1))
    at.time = START + timedelta(minutes=4)
    rollup.rollup()
    return login(superuser=True)


def cards(text: str) -> list[str]:
    """The cards of the board."""
    return re.findall(r'<li class="ojs-incident".*?\n</li>', text, re.S)


def numbers(card: str) -> dict[str, tuple[int, dict[str, str]]]:
    """The numbers of a card with the query of the list that each leads to."""
    found = {}
    for url, number, label in LINK.findall(card):
        query = parse_qs(urlsplit(unescape(url)).query)
        found[label] = int(number), {name: value for name, (value,) in query.items()}
    return found


def test_cards_say_what_failed_how_often_and_since_when(two: Client) -> None:
    first, second = cards(page(two, "failurestat/"))
    assert "test.job" in first
    assert ">Broken</b>" in first
    assert re.search(r'<p class="ojs-said">no order \d</p>', first)
    assert "<strong>5 failed attempts</strong>" in first
    assert {label: number for label, (number, _query) in numbers(first).items()} == {
        "jobs": 5,
        "discarded": 3,
        "retryable": 1,
        "completed": 1,
    }
    assert "<strong>2 failed attempts</strong>" in second
    assert numbers(second)["discarded"][0] == 2
    assert "shop 2.4: 5 of the last attempts" in first
    assert first.count("<rect") == 1
    assert " style=" not in first


@pytest.mark.slow
def test_each_number_is_that_of_its_list_and_of_sql(two: Client) -> None:
    for card in cards(page(two, "failurestat/")):
        for label, (number, query) in numbers(card).items():
            text = page(two, "job/", **query)
            shown = re.search(r"<span>(\S+) jobs?</span>", text)
            assert shown is not None
            assert int(shown[1]) == number, label
            incident = query["q"].removeprefix("incident:")
            states = " AND state = %s" if "state" in query else ""
            parameters = [incident, *([query["state"]] if states else [])]
            with connection.cursor() as cursor:
                cursor.execute(
                    f"SELECT COUNT(*) FROM django_ojs_job WHERE incident = %s{states}", parameters
                )
                assert cursor.fetchone() == (number,)


def acts(card: str) -> dict[str, tuple[str, dict[str, str]]]:
    """The forms of a card, by operation: where it goes, and its fields."""
    found = {}
    for url, inside in FORM.findall(card):
        fields = dict(HIDDEN.findall(inside))
        fields.pop("csrfmiddlewaretoken")
        found[fields["action"]] = (unescape(url), fields)
    return found


@pytest.mark.slow
def test_retry_all_means_these(two: Client) -> None:
    first = cards(page(two, "failurestat/"))[0]
    assert "Retry all 3<" in first
    assert "Discard all 1<" in first
    url, fields = acts(first)["retry"]
    asked = two.post(url, fields).content.decode()
    assert "3 rows" in asked
    two.post(url, {**fields, "_confirmed": "1", "_many": "0", "reason": "deploy 2.5"})
    assert Job.objects.filter(state="available").count() == 3
    assert Job.objects.filter(state="discarded").count() == 2
    first = cards(page(two, "failurestat/"))[0]
    assert numbers(first)["available"][0] == 3
    assert "Retry all" not in first


@pytest.mark.slow
def test_discard_all_means_these(two: Client) -> None:
    url, fields = acts(cards(page(two, "failurestat/"))[0])["discard"]
    two.post(url, {**fields, "_confirmed": "1", "_many": "0", "reason": "no use"})
    assert not Job.objects.filter(state="retryable").exists()
    first = cards(page(two, "failurestat/"))[0]
    assert numbers(first)["discarded"][0] == 4


@pytest.mark.slow
def test_as_bulk_work_it_means_these(two: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MOST_AT_ONCE", 2)
    monkeypatch.setattr(pages, "CHUNK", 2)
    url, fields = acts(cards(page(two, "failurestat/"))[0])["retry"]
    assert "<strong>3 jobs.</strong>" in two.post(url, fields).content.decode()
    two.post(url, {**fields, "_confirmed": "1", "_many": "1", "reason": "deploy 2.5"})
    (work,) = Job.objects.filter(type=bulk.TYPE)
    order = bulk.read(work.args[0], work.pk)
    assert pages.size(order) == {"of": 3, "exact": True}
    assert [one.changed for one in pages.work(order, after=None)] == [2, 1]
    left = Job.objects.filter(state="discarded").values_list("incident", flat=True)
    assert set(left) == {identify("test.job", "shop.Broken", "no customer 1")}


@pytest.mark.slow
def test_only_what_the_user_may_do_is_offered(two: Client) -> None:
    seeing = login("view_failurestat", name="eva")
    (first, _second) = cards(page(seeing, "failurestat/"))
    assert not LINK.search(first)
    assert not acts(first)
    assert "<strong>3</strong> discarded" in first
    retrying = login("view_failurestat", "view_job", "retry_job", name="bob")
    assert set(acts(cards(page(retrying, "failurestat/"))[0])) == {"retry", "run_now"}
    with override_settings(OJS={"ADMIN": {"READ_ONLY": True}}):
        assert not acts(cards(page(retrying, "failurestat/"))[0])


@pytest.mark.slow
def test_what_is_not_counted_is_a_lower_bound(two: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incident_board, "COUNTED", 1)
    monkeypatch.setattr(incident_board, "LEAST", 4)
    first, second = cards(page(two, "failurestat/"))
    assert "<strong>≥ 4</strong> jobs" in first
    assert numbers(second)["jobs"][0] == 2


def test_the_worker_that_had_just_started_is_named(at: clock.FrozenClock) -> None:
    worker("w1", version="shop 2.4", labels={"version": "2.5.0"})
    at.advance(7200 - 40)
    at.advance(40)
    made = worker("w2", version="shop 2.4", labels={"version": "2.5.0"})
    type(made).objects.filter(pk=made.pk).update(started_at=clock.now("default"))
    at.advance(42)
    make(1, retry={"max_attempts": 1})
    (job,) = take(1, worker="w2")
    settle([Outcome(held(job), Report.FAIL, failure=Failure("shop.Broken", "x"))])
    at.advance(180)
    rollup.rollup()
    (card,) = cards(page(login(superuser=True), "failurestat/"))
    assert "2.5.0: 1 of the last attempts" in card
    assert "first seen 42 s after one of its workers started" in card


def test_the_deployment_before_it_is_named(at: clock.FrozenClock) -> None:
    DeployMark.objects.create(at=START - timedelta(hours=2), name="shop 1.40")
    DeployMark.objects.create(at=START - timedelta(minutes=3), name="shop 1.41")
    broken(2, "no order")
    DeployMark.objects.create(at=START + timedelta(minutes=1), name="shop 1.42")
    at.time = START + timedelta(minutes=4)
    rollup.rollup()
    (card,) = cards(page(login(superuser=True), "failurestat/"))
    assert "first seen 3 min after shop 1.41 was deployed" in card


@pytest.mark.slow
def test_an_incident_keeps_its_first_sight_and_the_last_message(at: clock.FrozenClock) -> None:
    for minutes, number in ((1, 1), (5, 2)):
        at.time = START + timedelta(minutes=minutes)
        broken(number, f"try {minutes}")
        at.advance(180)
        rollup.rollup()
    (incident,) = Incident.objects.all()
    assert incident.first_seen == START + timedelta(minutes=1)
    assert incident.last_seen == START + timedelta(minutes=5)
    assert incident.sample.startswith("try 5")
    assert incident.message == "try # #"
    at.time = START + timedelta(hours=28)
    rollup.rollup()
    assert list(FailureStat.objects.values_list("step", "incident", "count")) == [
        (3600, incident.pk, 3)
    ]
    (card,) = cards(page(login(superuser=True), "failurestat/", window="7d"))
    assert "3 failed attempts" in card
    assert rollup.forget(START + timedelta(days=1), 100, False, "default") == 2 + 1 + 1 + 1
    assert not Incident.objects.exists()


@pytest.mark.slow
def test_windows_and_words(two: Client, at: clock.FrozenClock) -> None:
    at.advance(2 * 3600)
    assert "No failures in the last 1 hour." in page(two, "failurestat/", window="1h")
    for window in ("24h", "7d", "<x>"):
        assert len(cards(page(two, "failurestat/", window=window))) == 2
    assert "No failures" in page(login("view_failurestat", name="eva"), "failurestat/", window="1h")


def test_only_the_most_frequent_incidents(at: clock.FrozenClock) -> None:
    for number in range(15):
        key = identify("t", f"e{number}", "")
        Incident.objects.create(pk=key, type="t", error=f"e{number}", first_seen=START, last_seen=START)
        FailureStat.objects.create(
            at=START, type="t", error=f"e{number}", queue="q", incident=key, count=number + 1
        )
    browser = login("view_failurestat", "view_job")
    with CaptureQueriesContext(connection) as asked:
        text = page(browser, "failurestat/")
    assert len(cards(text)) == incident_board.MOST
    assert ">e14</b>" in text and ">e2</b>" not in text
    assert "Only the 12 most frequent" in text
    assert len(reads(asked)) <= 12, [sql[:90] for sql in reads(asked)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "word", ["incident:", "incident:x", "incident:0123456789ABCDEF", "incident:12"]
)
def test_no_incident_is_not_understood(two: Client, word: str) -> None:
    assert "Not understood" in page(two, "job/", q=word)
