"""Numbers of lists and confirmations are exact, or say that they are not."""

from __future__ import annotations

import pytest
from django.test import override_settings

from django_ojs.admin import base
from django_ojs.admin import bulk as pages
from django_ojs.admin import jobs as jobs_admin
from tests.admin.support import across, login, page
from tests.services.support import make

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db", "no_users")]


@override_settings(OJS={"ADMIN": {"SEARCH_WINDOW": 5}})
@pytest.mark.fault("S35")
@pytest.mark.parametrize(
    ("query", "number", "words"),
    [
        ("?queue=default", "20 jobs.", "queue: default"),
        ("", "30 jobs.", "every job"),
        ("?state=available&q=type:test.job", "30 jobs.", "q: type:test.job"),
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
    answer = across(browser, "cancel", "?state=completed")
    assert answer.status_code == 302
    assert "Nothing matches any more." in browser.get(answer["Location"]).content.decode()


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
