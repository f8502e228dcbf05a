"""A search that forgives: arguments by name, windows that move on, suggestions, and first pages."""

from __future__ import annotations

import html
import re
from typing import Any
from urllib.parse import parse_qsl

import pytest
from django.test import override_settings

from django_ojs.admin import limits
from django_ojs.api import enqueue
from django_ojs.clock import FrozenClock
from django_ojs.handlers import registry
from django_ojs.handlers.registry import JobHandler
from django_ojs.models import Incident, Queue
from tests.admin.support import login, page
from tests.admin.test_search import KEY, ids
from tests.services.support import ack, make, take
from tests.support import family

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("no_users")]


@pytest.mark.slow
def test_an_argument_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """In an object, or at the place that a handler has a parameter of that name."""
    handler: Any = JobHandler(lambda tenant, order_id=0: None, "shop.total")
    monkeypatch.setitem(registry._handlers, "shop.total", handler)
    browser = login("view_job", "view_args")
    jobs = {
        "object": enqueue("other", [{"order_id": 42, "größe": {"in": "m"}}]),
        "place": enqueue("shop.total", ["acme", 42]),
        "neither": enqueue("other", ["acme", 42]),
    }
    for word, found in (
        ("order_id:42", {"object", "place"}),
        ("args.order_id:42", {"object", "place"}),
        ("order_id:41", set()),
        ("tenant:acme", {"place"}),
        ("größe.in:m", {"object"}),
        ("order_id:42 type:other", {"object"}),
        ("args.1:42", {"place", "neither"}),
        ("args.1:42 type:other", {"neither"}),
    ):
        expected = {str(jobs[name].id) for name in found}
        assert set(ids(page(browser, "job/", q=word))) == expected, word


def test_who_may_not_see_arguments_is_told_what_is_missing() -> None:
    browser = login("view_job")
    enqueue("t", [{"order_id": 42}])
    for word in ("order_id:42", "args.order_id:42", "meta.tenant:acme"):
        text = page(browser, "job/", q=word)
        assert ids(text) == []
        assert "needs the permission “view args”" in text
    text = page(login("view_job", "view_args", name="eve"), "job/", q="id:3044")
    assert "Not understood: 3044 An argument is found by its name" in text


@override_settings(OJS={"ADMIN": {"SEARCH_WINDOW": 3}})
@pytest.mark.parametrize("state", ["", "completed", "scheduled"])
def test_a_search_can_be_moved_on(state: str, frozen: FrozenClock) -> None:
    browser = login("view_job")
    made = []
    for number in range(8):
        frozen.advance(1)
        if state == "scheduled":
            made.append(enqueue("t", [], tags=["x"] if number % 4 == 0 else [], delay=100 + number).id)
            continue
        made.append(enqueue("t", [], tags=["x"] if number % 4 == 0 else []).id)
        if state:
            ack(*take(types=None))
    wanted = [str(made[4]), str(made[0])]
    if state == "scheduled":
        wanted.reverse()
    seen, texts = [], []
    query: dict[str, str] = {"q": "tag:x", **({"state": state} if state else {})}
    while query:
        texts.append(page(browser, "job/", **query))
        seen.append(ids(texts[-1]))
        link = re.search(r'<a href="\?([^"]*)">Go on', texts[-1])
        query = dict(parse_qsl(html.unescape(link[1]))) if link else {}
    assert [key for part in seen for key in part] == wanted
    assert len(texts) == 3
    first = "due first" if state == "scheduled" else "newest 3 jobs"
    assert first in texts[0].partition('class="ojs-looked"')[2][:100]
    assert all("Looked among the next 3 jobs, to 20" in text for text in texts[1:])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "is_text"),
    [
        *(("tag:none", False), ("nothing", False), ("…116a455ef9de", False)),
        *(('"no such words"', True), ("3044", True), ('type:t "x"', True), ("ada@example.org", True)),
    ],
)
def test_a_window_has_fewer_rows_where_rows_take_longer(
    word: str, is_text: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is on SQLite, in the tab of a state, and where a text is looked for; unless it is set."""
    monkeypatch.setattr(limits, "WINDOW", 6)
    monkeypatch.setattr(limits, "SMALL_WINDOW", 4)
    browser = login("view_job", "view_args")
    make(10)
    size = 4 if is_text or family() == "sqlite" else 6
    assert f"Looked among the newest {size} jobs" in page(browser, "job/", q=word)
    assert "Looked among the newest 4 jobs" in page(browser, "job/", q=word, state="available")
    size = 4 if family() == "sqlite" else 6
    assert f"Sorted among the newest {size} jobs" in page(browser, "job/", sort="-attempts")
    with override_settings(OJS={"ADMIN": {"SEARCH_WINDOW": 5}}):
        assert "Looked among the newest 5 jobs" in page(browser, "job/", q=word)


@pytest.mark.slow
@override_settings(OJS={"ADMIN": {"SEARCH_WINDOW": 60}})
def test_pages_of_a_window_stay_in_it() -> None:
    browser = login("view_job")
    make(130)
    text = page(browser, "job/", q="type:test.job")
    seen = ids(text)
    assert "Go on" not in text
    for _page in range(2):
        link = re.search(r'href="(\?[^"]*)" rel="next"|<a href="(\?[^"]*)">Go on', text)
        assert link is not None
        text = browser.get(
            f"/admin/django_ojs/job/{html.unescape(link[1] or link[2])}"
        ).content.decode()
        seen += ids(text)
    assert len(seen) == len(set(seen)) == 110


@pytest.mark.slow
@pytest.mark.parametrize("start", ["x", "\0", "~", "9" * 500, "9999-12-31T23:59:59-10:00", KEY])
def test_a_start_that_somebody_typed_is_no_error(start: str) -> None:
    browser = login("view_job")
    make()
    ack(*take())
    for state in ("", "completed", "scheduled"):
        page(browser, "job/", q="type:t", state=state, **{"from": start})
    page(login("view_deadletter", "view_job", name="eve"), "deadletter/", q="type:t", **{"from": start})


def test_words_are_suggested(frozen: FrozenClock) -> None:
    browser = login("view_job")
    make(1, queue="mail")
    Queue.objects.create(name='odd"one', created_at=frozen.time)
    now = frozen.time
    Incident.objects.create(id="0" * 16, type="t", error="app.Broken", first_seen=now, last_seen=now)
    part = (
        page(browser, "job/")
        .partition('<datalist id="ojs-suggestions">')[2]
        .partition("</datalist>")[0]
    )
    found = set(map(html.unescape, re.findall(r'value="([^"]*)"', part)))
    assert {"queue:mail", "error:app.Broken"} < found
    assert any(word.startswith("type:") for word in found)
    assert not any('"' in word or word.startswith("type:ojs.") for word in found)
