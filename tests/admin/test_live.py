"""Pages that are kept up to date: the script gets the parts, and of these what has changed."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.html import Element, parse_html
from django.test.utils import CaptureQueriesContext

from django_ojs import clock
from django_ojs.admin.live import HEADER
from django_ojs.models import Queue, Worker
from tests.admin.support import at as of_worker
from tests.admin.support import login, page, reads, worker
from tests.admin.test_dashboard import at as at
from tests.admin.test_dashboard import cards, counted
from tests.services.support import make

pytestmark = [pytest.mark.usefixtures("no_users")]
BASE = "/admin/django_ojs/"
ROW = {"ojs-work", "ojs-title", "ojs-tools", "ojs-page", "ojs-refresh"}
PART = re.compile(r'<[^>]* id="([^"]*)"[^>]* data-live(?:="([^"]*)")?[^>]*>')


def ask(browser: Client, path: str, known: str = "parts") -> str:
    """What the script gets that has these parts."""
    answer = browser.get(BASE + path, headers={HEADER: known})
    assert answer.status_code == 200
    return answer.content.decode()


def versions(text: str) -> str:
    """What the script would say that it has."""
    return " ".join(f"{name}={version}" for name, version in PART.findall(text) if version)


@pytest.mark.slow
@pytest.mark.every_database
def test_the_past_is_made_again_when_there_is_more_of_it(at: clock.FrozenClock) -> None:
    counted(at)
    browser = login(superuser=True)
    whole = page(browser, "dashboard/")
    known = versions(whole)
    assert known.startswith("ojs-past=")
    make(3, queue="other")
    text = ask(browser, "dashboard/", known)
    assert cards(text)["Available"] == "5"
    assert "ojs-past" not in text
    assert "<svg" not in text
    assert "ojs-past" in ask(browser, "dashboard/?window=24h", known)
    at.advance(60)
    text = ask(browser, "dashboard/", known)
    assert "<svg" in text
    assert versions(text) != known


def test_around_the_parts_there_is_nothing(at: clock.FrozenClock) -> None:
    browser = login(superuser=True)
    for path in ("dashboard/", "failurestat/"):
        whole, text = page(browser, path), ask(browser, path)
        assert [name for name, _ in PART.findall(text)] == [name for name, _ in PART.findall(whole)]
        assert "nav-sidebar" in whole
        assert "nav-sidebar" not in text
        assert "<link" not in text
        assert len(text) < len(whole) / 2


def parts(text: str) -> dict[str, Any]:
    """The parts of a page by their ids, as trees; without tokens, which are other ones each time."""
    found: dict[str, Any] = {}

    def look(element: Any) -> None:
        if isinstance(element, Element):
            if "data-live" in (given := dict(element.attributes)):
                found[str(given["id"])] = element
            for child in element.children:
                look(child)

    look(parse_html(re.sub(r'(name="csrfmiddlewaretoken" value=)"[^"]*"', r'\1""', text)))
    assert found
    return found


@pytest.mark.parametrize(
    "path",
    [
        *("job/", "job/?state=discarded&q=type:mail", "job/?q=nothing", "queue/", "worker/"),
        *("deadletter/", "attempt/", "failurestat/", "dashboard/"),
    ],
)
def test_the_script_gets_each_part_as_it_is_on_the_page(
    at: clock.FrozenClock, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By how much the clocks differ is on the page too.
    monkeypatch.setattr(clock, "host_time", lambda: at.time)
    make(3, queue="mail")
    worker()
    browser = login(superuser=True)
    whole, text = parts(page(browser, path)), parts(ask(browser, path))
    assert whole.keys() == text.keys()
    for name, part in whole.items():
        assert str(part) == str(text[name]), name


@pytest.mark.parametrize("path", ["job/", "queue/", "worker/"])
def test_the_script_gets_little_else_of_a_list(at: clock.FrozenClock, path: str) -> None:
    make(3)
    worker()
    browser = login(superuser=True)
    text = ask(browser, path)
    assert "ojs-refresh" in text
    for around in ("<link", "<script", "changelist-search", "changelist-filter", 'name="action"'):
        assert around in page(browser, path) and around not in text, around


def test_little_is_read_when_nothing_was_counted(at: clock.FrozenClock) -> None:
    counted(at)
    browser = login(superuser=True)
    known = versions(page(browser, "dashboard/"))
    with CaptureQueriesContext(connection) as asked:
        ask(browser, "dashboard/", known)
    # MariaDB tells how it is by two statements more.
    assert len(reads(asked)) <= (9 if connection.vendor == "mysql" else 7), reads(asked)


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("dashboard/", {"ojs-work", "ojs-refresh", "ojs-troubles", "ojs-now", "ojs-past"}),
        ("failurestat/", {"ojs-work", "ojs-refresh", "ojs-troubles", "ojs-page"}),
        ("job/", {"ojs-work", "ojs-refresh", "ojs-tabs", "ojs-list", "ojs-pages"}),
        (
            "queue/",
            {"ojs-work", "ojs-refresh", "ojs-tabs", "ojs-board", "ojs-board-forms", "ojs-pages"},
        ),
        ("worker/", {"ojs-work", "ojs-refresh", "ojs-tabs", "ojs-board", "ojs-pages"}),
        ("queue/default/change/", ROW),
        ("job", ROW),
        ("worker", ROW),
    ],
)
def test_what_changes_is_in_parts(path: str, parts: set[str]) -> None:
    browser = login(superuser=True)
    (job,) = make(1)
    Queue.objects.filter(name="default").update(paused=True)
    worker()
    assert Worker.objects.count() == 1
    given = {"job": f"job/{job.id}/change/", "worker": f"{of_worker()}/change/"}
    text = page(browser, given.get(path, path))
    found = [name for name, _version in PART.findall(text)]
    assert set(found) == parts
    assert len(found) == len(parts)
    ids = re.findall(r' id="([^"]*)"', text)
    assert sorted(ids) == sorted(set(ids))


def test_a_version_that_nobody_has_is_not_known(at: clock.FrozenClock) -> None:
    counted(at)
    browser = login(superuser=True)
    for known in ("", "ojs-past=1h-0-0", "x" * 5000, "<script>"):
        text = ask(browser, "dashboard/", known)
        assert "<svg" in text
        assert "<script>" not in text
