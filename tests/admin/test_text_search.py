"""A text anywhere in the arguments, the result or the error of a job, but not where it is hidden."""

from __future__ import annotations

import html
import json
import random
import re
from typing import Any
from urllib.parse import parse_qsl

import pytest
from django.db import connection
from django.test import override_settings

from django_ojs.admin import search
from django_ojs.admin.redaction import redacted
from django_ojs.api import enqueue
from django_ojs.domain.job import Actor
from django_ojs.models import Job
from django_ojs.services import bulk
from tests.admin.support import across, login, page
from tests.admin.test_search import ids
from tests.services.support import ack, fail, make, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db", "no_users")]


def found(browser: Any, term: str, **query: str) -> set[str]:
    """The jobs that a search finds."""
    return set(ids(page(browser, "job/", q=term, **query)))


@pytest.mark.parametrize(
    ("term", "places"),
    [
        ('"declined"', {"args", "result", "error"}),
        ('"DECLINED"', {"args", "result", "error"}),
        ('"card was declined"', {"error"}),
        ('"by the bank"', {"args"}),
        ('"CardError"', {"error"}),
        ("3044", {"args"}),
        ("ada@example.org", {"result"}),
        ('"nowhere"', set()),
        ('"declined" type:other', {"args"}),
        ('"declined" "by the bank"', {"args"}),
        ("declined", set()),
    ],
)
def test_a_text_is_found_wherever_it_is(term: str, places: set[str]) -> None:
    browser = login("view_job", "view_args")
    jobs = {
        "args": enqueue("other", ["declined by the bank", {"order": 3044}]).row,
        "result": make()[0],
        "error": make(retry={"max_attempts": 1})[0],
    }
    completed, failed = take(2)
    ack(completed, result=json.dumps({"to": "ada@example.org", "state": "declined"}))
    fail(failed, type="app.CardError")
    Job.objects.filter(pk=failed.id).update(
        error={"type": "app.CardError", "message": "the card was declined", "backtrace": "by the bank"}
    )
    assert completed.id == jobs["result"].id
    assert found(browser, term) == {str(jobs[name].id) for name in places}


def test_the_cause_of_an_error_is_one_too() -> None:
    browser = login("view_job")
    job = make()[0]
    cause = {"type": "app.Broken", "message": "no route to host"}
    Job.objects.update(
        error={"type": "total_timeout", "message": "no time", "details": {"cause": cause}}
    )
    assert found(browser, '"no route"') == {str(job.id)}


@pytest.mark.parametrize("escaped", [False, True])
@pytest.mark.parametrize(
    ("term", "hits"),
    [
        ('"größe"', 1),
        ('"ключ"', 1),
        ('"😀"', 1),
        ('"50%"', 1),
        ('"5_%"', 0),
        ('"50_"', 0),
        (r'"C:\dir"', 1),
        (r'"C:dir"', 0),
        ("größe", 1),
        ('"%"', 1),
    ],
)
def test_letters_of_all_languages_and_signs_of_sql(
    term: str, hits: int, escaped: bool, vendor: str
) -> None:
    if escaped and vendor == "postgresql":
        pytest.skip("PostgreSQL stores what JSON means, not how it was written")
    args = ["größe ключ 😀", {"in": "50%", "path": r"C:\dir"}]
    job = enqueue("t", args)
    if vendor != "postgresql":
        with connection.cursor() as cur:
            cur.execute(
                "UPDATE django_ojs_job SET args = %s WHERE id = %s",
                [
                    json.dumps(args, ensure_ascii=escaped),
                    Job._meta.pk.get_db_prep_value(job.id, connection),
                ],
            )
    assert len(found(login("view_job", "view_args"), term)) == hits


def test_large_arguments_are_not_read() -> None:
    small, _large = (enqueue("t", ["needle", noise(size)]) for size in (2000, search.MOST_TEXT * 3))
    assert found(login("view_job", "view_args"), '"needle"') == {str(small.id)}


def noise(size: int) -> str:
    """A text of that size that cannot be compressed to a tenth."""
    return "".join(random.Random(size).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=size))


def test_an_order_of_the_admin_is_not_looked_in() -> None:
    browser = login(superuser=True)
    bulk.start("cancel", bulk.Filter(queue="x"), {}, Actor("admin", "ada"), user=1)
    (args,) = Job.objects.values_list("args", flat=True)
    assert found(browser, f'"{args[0][:12]}"') == set()


def test_empty_quotes_are_not_understood() -> None:
    browser = login("view_job", "view_args")
    enqueue("t", ["x"])
    text = page(browser, "job/", q='""')
    assert ids(text) == []
    assert "Not understood: &quot;&quot;" in text


# What is hidden


def test_without_the_permission_only_errors_are_looked_in() -> None:
    browser = login("view_job")
    enqueue("t", ["needle"])
    make(2, retry={"max_attempts": 1})
    completed, failed = take(2)
    ack(completed, result='"needle"')
    fail(failed, type="app.Needle")
    text = page(browser, "job/", q='"needle"')
    assert ids(text) == [str(failed.id)]
    assert "Only errors are searched: arguments need the permission “view args”." in text
    text = page(login("view_job", "view_args", name="eve"), "job/", q='"needle"')
    assert len(ids(text)) == 3
    assert "Only errors are searched" not in text


HIDDEN: list[Any] = [
    {"password": "needle"},
    {"password": "a needle, and more"},
    {"my_API_TOKEN": "needle"},
    {"pin": {"secret": "needle"}},
    {"secret": {"pin": "needle"}},
    {"secret": ["x", {"y": "needle"}]},
    {"password": 'quoted \\" needle'},
    {"password": "\\\\", "token": "needle"},
    {"password": "x", "a": "\\", "secret": "needle"},
    {'odd"password': "needle"},
    {'password"odd': "needle"},
    {"password": [], "secret": {"needle": 1}},
    [[[{"cookie": ["needle"]}]]],
]


@pytest.mark.slow
@pytest.mark.parametrize("value", HIDDEN, ids=str)
def test_what_is_redacted_is_not_found(value: Any) -> None:
    assert "needle" not in json.dumps(redacted(value))
    browser = login("view_job", "view_args")
    job = enqueue("t", [value])
    make()
    (claimed,) = take()
    ack(claimed, result=json.dumps(value))
    assert found(browser, '"needle"') == set()
    enqueue("t", [value, "needle"], tags=["both"])
    assert str(job.id) not in found(browser, '"needle"')


SHOWN: list[Any] = [
    {"password": "x", "to": "needle"},
    {"to": "needle", "password": "x"},
    {"token": 12.5, "to": "a needle"},
    {"token": None, "to": "needle"},
    {"token": 'x", "to": "', "to": "needle"},
    {"note": "password: needle"},
    {"note": '"password": "needle"'},
    [{"password": "needle"}, "needle"],
    {"password": "needle", "to": "needle"},
    {"secret": "x\\", "to": "needle"},
    {"to": "the secret is a needle"},
]


@pytest.mark.parametrize("value", SHOWN, ids=str)
def test_what_is_shown_beside_it_is_found(value: Any) -> None:
    assert "needle" in json.dumps(redacted(value))
    browser = login("view_job", "view_args")
    job = enqueue("t", [value])
    assert found(browser, '"needle"') == {str(job.id)}


@pytest.mark.slow
def test_the_words_that_hide_are_settings() -> None:
    browser = login("view_job", "view_args")
    job = enqueue("t", [{"GRÖSSE": "needle", "password": "pin"}])
    with override_settings(OJS={"ADMIN": {"REDACT": ["größe", "grösse"]}}):
        assert found(browser, '"needle"') == set()
        assert found(browser, '"pin"') == {str(job.id)}
    with override_settings(OJS={"ADMIN": {"REDACT": ["a.c"]}}):
        assert found(browser, '"needle"') == {str(job.id)}
    with override_settings(OJS={"ADMIN": {"REDACT": []}}):
        assert found(browser, '"pin"') == {str(job.id)}


def made_up(dice: random.Random, depth: int = 0) -> Any:
    """Some JSON value, with ``needle`` in some of its texts."""
    kind = dice.random()
    if depth > 3 or kind < 0.5:
        return dice.choice(["needle", 'a "needle"', "x\\", "key: needle", "", 7, None, True, "ok", "ü"])
    if kind < 0.7:
        return [made_up(dice, depth + 1) for _ in range(dice.randrange(3))]
    names = ["to", "pass", "a key", 'se"cret', "token\\", "größe", "ref", "n"]
    return {dice.choice(names): made_up(dice, depth + 1) for _ in range(dice.randrange(4))}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_found_that_is_not_shown(seed: int) -> None:
    """Of many values; and nearly all that is shown is found."""
    browser = login("view_job", "view_args")
    dice = random.Random(seed)
    values = [made_up(dice) for _ in range(400)]
    jobs = [enqueue("t", [value]) for value in values]
    shown = {
        str(job.id)
        for job, value in zip(jobs, values, strict=True)
        if "needle" in json.dumps(redacted([value]))
    }
    with pytest.MonkeyPatch.context() as patch:
        from django.contrib.admin import site

        patch.setattr(site._registry[Job], "list_per_page", 500)
        hits = found(browser, '"needle"')
    assert hits <= shown
    assert len(hits) > 0.8 * len(shown) > 50


# Far and wide


@override_settings(OJS={"ADMIN": {"SEARCH_WINDOW": 3}})
def test_a_text_is_looked_for_window_by_window() -> None:
    browser = login("view_job", "view_args")
    old = enqueue("t", ["needle"])
    for _number in range(7):
        enqueue("t", ["hay"])
    query, texts = {"q": '"needle"'}, []
    while query:
        texts.append(page(browser, "job/", **query))
        link = re.search(r'<a href="\?([^"]*)">Go on', texts[-1])
        query = dict(parse_qsl(html.unescape(link[1]))) if link else {}
    assert [ids(text) for text in texts] == [[], [], [str(old.id)]]
    assert "Looked among the newest 3 jobs" in texts[0]


@pytest.mark.slow
def test_a_word_that_begins_no_type_can_be_looked_for_as_text() -> None:
    browser = login("view_job", "view_args")
    job = enqueue("t", [{"currency": "EUR"}], queue="shop")
    text = page(browser, "job/", q="currency* queue:shop", state="available")
    assert ids(text) == []
    link = re.search(r'<a href="\?([^"]*)">Look for it in arguments, results and errors', text)
    assert link is not None
    query = dict(parse_qsl(html.unescape(link[1])))
    assert query == {"q": '"currency" queue:shop', "state": "available"}
    text = page(browser, "job/", **query)
    assert ids(text) == [str(job.id)]
    assert "Look for it in" not in text
    for term in ("t", '"nothing"', "id:x", "order:1", "0123456789ab"):
        assert "Look for it in" not in page(browser, "job/", q=term), term


def test_a_text_narrows_bulk_work_too() -> None:
    browser = login("view_job", "view_args", "cancel_job")
    mine, other = enqueue("t", ["needle"]), enqueue("t", [{"password": "needle"}])
    across(browser, "cancel", "?q=%22needle%22", _confirmed="1", _many="0", reason="why")
    assert {str(job.pk): job.state for job in Job.objects.all()} == {
        str(mine.id): "cancelled",
        str(other.id): "available",
    }
    viewer = login("view_job", "cancel_job", name="eve")
    across(viewer, "cancel", "?q=%22needle%22", _confirmed="1", _many="0", reason="why")
    assert Job.objects.get(pk=other.id).state == "available"
