"""What people type into the search and the address of a list: no word of it may hurt."""

from __future__ import annotations

import html
import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.test import RequestFactory, override_settings
from django.utils import translation

from django_ojs.admin import search
from django_ojs.admin.changelists import KeysetChangeList
from django_ojs.api import enqueue
from django_ojs.models import Job, MaintenanceRun, Queue, Worker
from django_ojs.store.selectors import COUNT_CAP
from tests.admin.support import login, page, worker
from tests.services.support import ack, fail, make, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("no_users")]
KEY = "12345678-1234-7234-8234-123456789abc"


def ids(text: str) -> list[str]:
    """The jobs of a list, in order."""
    return re.findall(r'title="([0-9a-f-]{36})"', text)


@pytest.mark.parametrize(
    "term",
    [
        "args.x:NaN",
        "args.x:Infinity",
        "meta.x:-Infinity",
        "args.x:1e999",
        "args.x:-1e999",
        f"args.x:{'9' * 3000}",
        "args.99999999999:1",
        f"args.{'9' * 30}:1",
        f"meta.{'9' * 5000}:1",
        "args.2147483648:1",
        "args.-1:1",
        "meta.1_0:1",
        "args..:1",
        "meta..:1",
        "meta.x:null",
        f"args.x:{'[' * 3000}",
        f"meta.{'a.' * 2000}a:1",
    ],
)
def test_a_search_that_somebody_typed_is_no_error(term: str) -> None:
    browser = login("view_job", "view_args")
    enqueue("t", [{"x": 1}], meta={"x": "y"})
    text = page(browser, "job/", q=term)
    assert ids(text) == []
    assert "This took too long" not in text


def test_a_search_with_nul_is_no_error() -> None:
    browser = login("view_job", "view_args")
    for term in ("type:\0", "args.x:a\0", "\0"):
        page(browser, "job/", q=term)


def test_words_that_are_no_json_numbers_are_text() -> None:
    browser = login("view_job", "view_args")
    enqueue("t", [{"x": "NaN", "y": "1e999"}])
    for term in ("args.x:NaN", "args.y:1e999"):
        assert len(ids(page(browser, "job/", q=term))) == 1, term


def test_a_long_number_is_a_name() -> None:
    browser = login("view_job", "view_args")
    enqueue("t", [{"99999999999": 1}])
    enqueue("t", [[5, 6]])
    assert len(ids(page(browser, "job/", q="args.99999999999:1"))) == 1
    assert len(ids(page(browser, "job/", q="args.1:6"))) == 1
    assert ids(page(browser, "job/", q="args.-1:6")) == []


@pytest.mark.parametrize(
    "path", ["worker/", "queue/", "maintenancerun/", "job/", "attempt/", "event/", "auditentry/"]
)
@pytest.mark.parametrize("name", ["after", "before"])
@pytest.mark.parametrize("typed", ["\0", "a\0b", "~", "9" * 500])
def test_a_cursor_that_somebody_typed_is_no_error(path: str, name: str, typed: str) -> None:
    browser = login(superuser=True)
    worker("w1")
    page(browser, path, **{name: typed})


@pytest.mark.parametrize(
    "time",
    [
        "9999-12-31T23:59:59-10:00",
        "0001-01-01T00:00:00+10:00",
        "9999-12-31T23:59:59+00:00",
        "0001-01-01T00:00:00+00:00",
        "2999-01-01T00:00:00",
        "2999-01-01",
        "2999-13-01T00:00:00Z",
    ],
)
def test_a_time_that_somebody_typed_is_no_error(time: str) -> None:
    browser = login("view_job")
    make(1)
    ack(*take(1))
    for name in ("before", "after"):
        found = ids(page(browser, "job/", state="completed", **{name: f"{time}~{KEY}"}))
        assert len(found) == 1, name


def test_a_time_with_a_zone_is_a_cursor() -> None:
    browser = login("view_job")
    make(1)
    ack(*take(1))
    for time, name, found in (("2999", "before", 0), ("1999", "after", 0), ("1999", "before", 1)):
        cursor = f"{time}-01-01T00:00:00+10:00~{KEY}"
        assert len(ids(page(browser, "job/", state="completed", **{name: cursor}))) == found


@pytest.mark.parametrize("path", ["worker/", "queue/"])
def test_names_with_a_tilde_turn_pages(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.contrib.admin import site

    names = ["w~1", "w~2~", "w~3", "w~4%7E"]
    for name in names:
        worker(name) if path == "worker/" else Queue.objects.create(name=name)
    model = Worker if path == "worker/" else Queue
    monkeypatch.setattr(site._registry[model], "list_per_page", 1)
    browser = login("view_worker", "view_queue")
    seen, query = [], ""
    for _turn in names:
        text = browser.get(f"/admin/django_ojs/{path}{query}").content.decode()
        seen += re.findall(r">(w~\d[~%7E]*)</a></th>", text)
        link = re.search(r'href="(\?[^"]*)" rel="next"', text)
        query = link[1].replace("&amp;", "&") if link else ""
    assert seen == names
    assert not query


class _Pair(KeysetChangeList):
    """Ordered by a time and a name."""

    model = MaintenanceRun

    def __init__(self) -> None:
        """Without a list."""

    def keys(self) -> Any:
        """A time and a name."""
        return [("last_run_at", True), ("pk", True)]


def test_each_of_several_keys_may_hold_a_tilde(ojs_db: None) -> None:
    row = MaintenanceRun(name="a~b%7E+ %", last_run_at=datetime(2026, 1, 1, tzinfo=UTC))
    request = RequestFactory().get("/", {"after": _Pair()._name(row)})
    assert _Pair()._cursor(request, "after") == [row.last_run_at, row.name]


def test_arguments_are_searched_only_by_those_who_may_see_them() -> None:
    asked = search.parse("args.x:1 type:t meta.y:2", shows_args=False)
    assert asked.unknown == ["args.x:1", "meta.y:2"]
    assert not asked.places
    assert not search.parse("args.x:1 meta.y:2").unknown


@pytest.mark.parametrize(
    "word", ["args.password:x", "meta.user.API_TOKEN:x", "args.my_secret.x:1", 'args.0.Password:"a b"']
)
def test_what_is_hidden_is_not_found_either(word: str) -> None:
    asked = search.parse(word)
    assert asked.unknown == [word]
    assert not asked.places
    browser = login("view_job", "view_args")
    enqueue("t", [{"password": "x"}])
    text = page(browser, "job/", q=word)
    assert ids(text) == []
    assert "Not understood" in text


def test_the_words_that_hide_are_settings() -> None:
    with override_settings(OJS={"ADMIN": {"REDACT": ["tenant"]}}):
        assert search.parse("meta.tenant_id:1").unknown
        assert not search.parse("meta.password:1").unknown


@pytest.mark.slow
def test_a_bare_word_is_how_a_type_begins_or_the_end_of_an_id() -> None:
    browser = login("view_job")
    sent, other = enqueue("mail.send", []), enqueue("video.mail", [])
    for word in (
        "mail.",
        "mail",
        "mail.send",
        "mail.*",
        f"…{str(sent.id)[-12:]}",
        str(sent.id)[-12:].upper(),
    ):
        assert ids(page(browser, "job/", q=word)) == [str(sent.id)], word
    found = browser.get("/admin/django_ojs/job/", {"q": str(other.id)})
    found = browser.get("/admin/django_ojs/job/", {"q": str(other.id)})
    assert found["Location"].endswith(f"/{other.id}/change/")
    assert ids(page(browser, "job/", q="mail queue:other")) == []


def test_an_error_is_found_by_its_last_name() -> None:
    browser = login("view_job")
    jobs = make(3, retry={"max_attempts": 1})
    for claimed, name in zip(
        take(3), ("builtins.KeyError", "app.errors.MyKeyError", "KeyError"), strict=True
    ):
        fail(claimed, type=name)
    found = {
        word: set(ids(page(browser, "job/", q=word, state="discarded")))
        for word in ("error:KeyError", "error:builtins.KeyError", "error:MyKeyError")
    }
    first, second, third = (str(job.id) for job in jobs)
    assert found == {
        "error:KeyError": {first, third},
        "error:builtins.KeyError": {first},
        "error:MyKeyError": {second},
    }


@pytest.mark.parametrize("escaped", [False, True])
@pytest.mark.parametrize(
    ("term", "found"),
    [
        ("tag:é", 1),
        ("tag:ü", 0),
        ("tag:😀", 1),
        ("tag:plain", 1),
        ("tag:50%", 1),
        ("tag:5_%", 0),
        ("args.x:é", 1),
        ("args.x:ü", 0),
        ("args.größe:groß", 1),
        ("args.größe:klein", 0),
        ("args.größe.ä:1", 0),
        ("meta.k:😀", 1),
        ('meta.k2:"a é"', 1),
        ("meta.ключ.ключ:да", 1),
    ],
)
def test_letters_of_all_languages(term: str, found: int, escaped: bool, vendor: str) -> None:
    if escaped and vendor == "postgresql":
        pytest.skip("PostgreSQL stores what JSON means, not how it was written")
    columns: dict[str, Any] = {
        "args": [{"x": "é", "größe": "groß"}],
        "meta": {"k": "😀", "k2": "a é", "ключ": {"ключ": "да"}},
        "tags": ["é", "😀", "plain", "50%"],
    }
    job = enqueue("t", columns["args"], meta=columns["meta"], tags=columns["tags"])
    if vendor != "postgresql":
        with connection.cursor() as cur:
            for name, value in columns.items():
                text = json.dumps(value, ensure_ascii=escaped)
                cur.execute(
                    f"UPDATE django_ojs_job SET {name} = %s WHERE id = %s",
                    [text, Job._meta.pk.get_db_prep_value(job.id, connection)],
                )
    browser = login("view_job", "view_args")
    assert len(ids(page(browser, "job/", q=term))) == found


@pytest.mark.parametrize(
    ("language", "count", "shown"),
    [
        ("en", COUNT_CAP + 1, "≥ 10,000"),
        ("en", 1234, "1,234"),
        ("de", COUNT_CAP + 1, "≥ 10.000"),
        ("de", 1234, "1.234"),
        ("de", 12, "12"),
        ("en", 0, "0"),
    ],
)
def test_counts_are_written_in_the_language(language: str, count: int, shown: str) -> None:
    shows = _Pair()
    shows.result_count = count
    with translation.override(language):
        assert shows.shown_count == shown


@pytest.mark.slow
def test_another_filter_begins_at_its_first_page() -> None:
    """Nor does a search: what is above a page in the middle of the list is not left out."""
    browser = login("view_job")
    make(60)
    make(1, queue="other")
    text = page(browser, "job/")
    link = re.search(r'href="(\?[^"]*)" rel="next"', text)
    assert link is not None
    second = browser.get(f"/admin/django_ojs/job/{html.unescape(link[1])}").content.decode()
    assert len(ids(second)) == 11
    (other,) = re.findall(r'<a href="(\?queue=other[^"]*)"', second)
    assert "after" not in other
    assert 'name="after"' not in second
