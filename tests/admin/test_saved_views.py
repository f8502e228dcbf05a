"""Saved views: a filter of the job list under a name, of one user."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.test import Client, override_settings

from django_ojs.models import SavedView
from django_ojs.services import saved_views
from tests.admin.support import login, page
from tests.services.support import fail, make, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db", "no_users")]
LIST = "/admin/django_ojs/job/"
VIEWS = f"{LIST}views/"


def post(browser: Client, **fields: str) -> str:
    """Send the form; the list that is shown next, as text."""
    return browser.post(VIEWS, fields, follow=True).content.decode()


def shown(text: str) -> dict[str, str]:
    """The views above a list, by name, and their addresses."""
    part = text.partition('<div class="ojs-views">')[2].partition("</div>")[0]
    found = re.findall(r'<a href="([^"]*)"[^>]*>([^<]*)</a>', part)
    return {html.unescape(name): html.unescape(url) for url, name in found}


@pytest.mark.slow
def test_a_view_is_saved_shown_used_and_deleted() -> None:
    browser = login("view_job")
    make(2, queue="mail", retry={"max_attempts": 1})
    fail(*take(queues=("mail",)))
    text = page(browser, "job/", state="discarded", queue="mail", q="error:Error", refresh="off")
    (asked,) = re.findall(r'name="asked" value="([^"]*)"', text)
    answer = browser.post(VIEWS, {"asked": html.unescape(asked), "name": " Lost mail "})
    assert answer["Location"] == f"{LIST}?state=discarded&queue=mail&q=error%3AError"
    text = browser.get(answer["Location"]).content.decode()
    assert "The view “Lost mail” was saved." in text
    assert shown(text) == {"Lost mail": "?state=discarded&queue=mail&q=error%3AError"}
    found = browser.get(LIST + shown(page(browser, "job/"))["Lost mail"]).content.decode()
    assert found.count('<tbody class="ojs-job" ') == 1
    assert 'aria-current="page">Lost mail</a>' in found
    assert "Save this view" not in found
    text = post(browser, asked=html.unescape(asked), delete="Lost mail")
    assert "The view “Lost mail” was deleted." in text
    assert shown(text) == {}
    assert not SavedView.objects.exists()


@pytest.mark.slow
def test_views_belong_to_their_user() -> None:
    ada, eve = login("view_job"), login("view_job", name="eve")
    post(ada, asked="state=discarded", name="broken")
    assert shown(page(eve, "job/")) == {}
    post(eve, asked="state=active", name="broken")
    assert shown(page(ada, "job/")) == {"broken": "?state=discarded"}
    post(eve, delete="broken")
    assert shown(page(ada, "job/")) == {"broken": "?state=discarded"}
    assert SavedView.objects.count() == 1


def test_a_name_that_is_used_again_means_the_new_filter() -> None:
    browser = login("view_job")
    post(browser, asked="state=discarded", name="mine")
    assert shown(post(browser, asked="lens=overdue", name="mine")) == {"mine": "?lens=overdue"}


def test_only_what_selects_jobs_is_kept() -> None:
    browser = login("view_job")
    post(browser, asked="state=active&after=x&refresh=5&type__startswith=m&_list=y", name="mine")
    assert SavedView.objects.get().query == {"state": "active"}


@pytest.mark.parametrize(
    ("asked", "name", "said"),
    [
        ("", "x", "no filter here"),
        ("after=1", "x", "no filter here"),
        ("q=a%00b", "x", "no filter here"),
        ("q=" + "a" * 501, "x", "no filter here"),
        ("state=active", "", "needs a name"),
        ("state=active", "  ", "needs a name"),
        ("state=active", "a" * 61, "needs a name"),
        ("state=active", "a\0b", "needs a name"),
    ],
)
def test_what_cannot_be_saved_is_said(asked: str, name: str, said: str) -> None:
    browser = login("view_job")
    assert said in post(browser, asked=asked, name=name)
    assert not SavedView.objects.exists()


@pytest.mark.slow
def test_there_is_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_views, "MOST", 2)
    browser = login("view_job")
    for name in "abc":
        text = post(browser, asked="state=active", name=name)
    assert "You have 2 views already: delete one first." in text
    assert set(shown(text)) == {"a", "b"}
    post(browser, asked="state=discarded", name="b")
    assert SavedView.objects.get(name="b").query == {"state": "discarded"}


def test_who_may_not_see_jobs_has_no_views() -> None:
    browser = login("view_queue")
    assert browser.post(VIEWS, {"asked": "state=active", "name": "x"}).status_code == 403
    assert Client().post(VIEWS, {"asked": "state=active", "name": "x"}).status_code == 302
    assert not SavedView.objects.exists()
    assert login("view_job", name="eve").get(VIEWS).status_code == 405


@pytest.mark.slow
def test_read_only_is_for_views_too() -> None:
    browser = login(superuser=True)
    post(browser, asked="state=active", name="mine")
    with override_settings(OJS={"ADMIN": {"READ_ONLY": True}}):
        for change in ({"asked": "q=x", "name": "other"}, {"delete": "mine"}):
            assert browser.post(VIEWS, change).status_code == 403
        text = page(browser, "job/", state="active")
        assert shown(text) == {"mine": "?state=active"}
        assert "Delete this view" not in text
        assert "Save this view" not in page(browser, "job/", state="discarded")


def test_a_name_is_only_text() -> None:
    browser = login("view_job")
    name = "<script>alert(1)</script>"
    text = post(browser, asked="state=active", name=name)
    assert "<script>alert(1)" not in text
    assert set(shown(text)) == {name}


def test_the_dead_letter_has_no_views() -> None:
    browser = login("view_job", "view_deadletter")
    post(browser, asked="state=active", name="mine")
    assert "ojs-views" not in page(browser, "deadletter/", q="type:x")


def test_a_view_needs_a_token_of_the_form() -> None:
    login("view_job")
    strict: Any = Client(enforce_csrf_checks=True)
    assert strict.login(username="ada", password="x")
    assert strict.post(VIEWS, {"asked": "state=active", "name": "x"}).status_code == 403
