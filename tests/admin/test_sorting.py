"""The orders of the job list: by an index over a whole tab, by other columns within a window."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from urllib.parse import parse_qs, parse_qsl

import pytest
from django.contrib.admin import site
from django.test import Client, override_settings

from benchmarks.rows import load
from django_ojs import clock
from django_ojs.admin import tabs
from django_ojs.admin.clocks import clocks
from django_ojs.admin.sorting import SORTS, Reach, Sort
from django_ojs.admin.tabs import Tab
from django_ojs.api import enqueue
from django_ojs.clock import FrozenClock
from django_ojs.models import Job
from django_ojs.services import operate
from django_ojs.services.promote import promote
from tests.admin.support import login, page, worker
from tests.admin.test_search import KEY, ids
from tests.services.support import ack, fail, make, now_stored, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db", "no_users")]
LIST = "/admin/django_ojs/job/"
TABS = [name for name in SORTS if name != "dead_letter"]


@pytest.fixture
def various(ojs_db: None) -> None:
    """Jobs in every state that differ in what they can be sorted by."""
    load(800, clock.now("default"), using="default")
    keys = list(Job.objects.order_by("pk").values_list("pk", flat=True))
    for column, several in (("attempt", 5), ("priority", 4)):
        for value in range(several):
            Job.objects.filter(pk__in=keys[value::several]).update(**{column: value})


def query_of(name: str) -> dict[str, str]:
    """The parameters of a tab."""
    return {"lens": name} if name == "overdue" else {"state": name} if name else {}


def expected(name: str, sort: Sort) -> list[str]:
    """The jobs of a tab in an order, as Python sorts them."""
    asked = query_of(name)
    tab = Tab(asked.get("state"), asked.get("lens"))
    rows = tab.rows(Job.objects.all(), "default")
    if sort.value is not None:
        rows = rows.annotate(**{sort.keys[0][0]: sort.value})
    found = list(rows)
    for column, down in reversed(sort.keys):
        found.sort(key=lambda row: getattr(row, column), reverse=down)
    return [str(row.pk) for row in found]


def pages(browser: Client, query: dict[str, str], rel: str = "next") -> Iterator[str]:
    """The pages of a list, from one to the next or to the one before."""
    while query:
        text = page(browser, "job/", **query)
        yield text
        query = linked(text, rel)


def linked(text: str, rel: str) -> dict[str, str]:
    """The parameters of the next page, or of the one before; none where there is no such page."""
    link = re.search(rf'href="\?([^"]*)" rel="{rel}"', text)
    return dict(parse_qsl(html.unescape(link[1]))) if link else {}


def ids_of_rows(text: str) -> list[str]:
    """The jobs of a list, in order."""
    return re.findall(r'class="ojs-id" href="[^"]*" title="([0-9a-f-]{36})"', text)


def headings(text: str) -> dict[str, tuple[str, str]]:
    """The headings that are links: where they lead, and how the list is sorted by them."""
    found = re.findall(
        r'<th scope="col" class="column-(\w+)[^"]*"(?: aria-sort="(\w+)")?><div class="text">'
        r'<a href="\?([^"]*)">',
        text,
    )
    return {name: (html.unescape(url), way) for name, way, url in found}


def orders(text: str) -> dict[str, tuple[str, bool]]:
    """The orders that are offered: where they lead, and whether the list has it."""
    part = text.partition("<summary>Sorted: ")[2].partition("</details>")[0]
    found = re.findall(r'<li( class="selected")?><a href="([^"]*)">([^<]*)</a>', part)
    return {label: (html.unescape(url), bool(on)) for on, url, label in found}


def said(text: str) -> str:
    """What a list says about how far it reaches."""
    return html.unescape(text.partition('class="ojs-looked" role="status">')[2].partition("<")[0])


OFTEN = ("available", "discarded")
"""The tabs whose orders the fast tests go through."""


@pytest.mark.usefixtures("various")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, id=name or "all", marks=() if name in OFTEN else pytest.mark.long)
        for name in TABS
    ],
)
def test_every_order_is_kept_over_all_pages_forth_and_back(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = login("view_job")
    for sort in SORTS[name]:
        wanted = expected(name, sort)
        assert len(wanted) > 6
        monkeypatch.setattr(site._registry[Job], "list_per_page", len(wanted) // 4 + 1)
        forth = list(pages(browser, {**query_of(name), "sort": sort.name}))
        parts = [ids_of_rows(text) for text in forth]
        assert [key for part in parts for key in part] == wanted, sort.name
        back = list(pages(browser, linked(forth[-1], "prev"), "prev"))
        assert [ids_of_rows(text) for text in reversed(back)] == parts[:-1], sort.name


def test_names_of_orders_are_those_of_one_tab_and_the_first_is_natural() -> None:
    for sorts in SORTS.values():
        assert len({sort.name for sort in sorts}) == len(sorts)
        assert sorts[0].reach is Reach.TAB
        paired = sorts[len(sorts) % 2 :]
        for first, second in zip(paired[::2], paired[1::2], strict=True):
            assert first.descends is not second.descends
            assert [column for column, _down in first.keys] == [column for column, _down in second.keys]
            assert all(a[1] is not b[1] for a, b in zip(first.keys, second.keys, strict=True))


@pytest.mark.slow
def test_a_heading_sorts_both_ways_and_keeps_the_rest() -> None:
    browser = login("view_job")
    make(60)
    text = page(browser, "job/", state="available", queue="default", q="type:test.job", after=KEY)
    assert set(headings(text)) == {"job", "queue", "attempts", "when"}
    assert {way for _url, way in headings(text).values()} == {""}
    kept = {"state": ["available"], "queue": ["default"], "q": ["type:test.job"]}
    url = headings(text)["attempts"][0]
    assert parse_qs(url) == {**kept, "sort": ["-attempts"]}
    text = browser.get(f"{LIST}?{url}").content.decode()
    url, way = headings(text)["attempts"]
    assert (parse_qs(url), way) == ({**kept, "sort": ["attempts"]}, "descending")
    text = browser.get(f"{LIST}?{url}").content.decode()
    url, way = headings(text)["attempts"]
    assert (parse_qs(url), way) == ({**kept, "sort": ["-attempts"]}, "ascending")


def test_the_natural_order_is_that_of_the_plain_address() -> None:
    browser = login("view_job")
    make()
    ack(*take())
    text = page(browser, "job/", state="completed")
    url, way = headings(text)["when"]
    assert (url, way) == ("sort=ended&state=completed", "descending")
    text = browser.get(f"{LIST}?{url}").content.decode()
    assert headings(text)["when"] == ("state=completed", "ascending")


def test_the_orders_are_listed_and_the_one_that_is_on_is_named() -> None:
    browser = login("view_job")
    make(2)
    found = orders(page(browser, "job/", state="available", q="type:test.job"))
    assert list(found)[:3] == ["newest first", "next in line first", "last in line first"]
    assert [label for label, (_url, on) in found.items() if on] == ["newest first"]
    assert parse_qs(found["last in line first"][0].lstrip("?")) == {
        "state": ["available"],
        "q": ["type:test.job"],
        "sort": ["-line"],
    }
    text = page(browser, "job/", state="available", sort="line")
    assert "<summary>Sorted: <b>next in line first</b></summary>" in text
    assert orders(text)["newest first"] == ("?state=available", False)


@pytest.mark.parametrize("sort", ["", "nothing", "-", "\0", "state", "x" * 500])
def test_an_order_that_there_is_not_is_the_natural_one(sort: str) -> None:
    browser = login("view_job")
    jobs = make(3)
    text = page(browser, "job/", sort=sort)
    assert ids_of_rows(text) == [str(job.id) for job in reversed(jobs)]
    assert orders(text)["newest first"][1]


@pytest.mark.slow
@pytest.mark.parametrize("typed", ["\0", "~", "9" * 500, f"{'9' * 500}~{KEY}", f"x~{KEY}", f"~{KEY}"])
@pytest.mark.parametrize("sort", ["-duration", "waited", "-attempts", "queue", "-ended"])
def test_a_place_that_somebody_typed_is_no_error(sort: str, typed: str) -> None:
    browser = login("view_job")
    make(1)
    ack(*take())
    for name in ("after", "before", "from"):
        page(browser, "job/", state="completed", sort=sort, **{name: typed})


@pytest.mark.slow
def test_pages_are_called_newer_and_older_only_where_they_are() -> None:
    browser = login("view_job")
    make(51)
    assert 'rel="next">older' in page(browser, "job/")
    assert 'rel="next">next' in page(browser, "job/", sort="created")
    assert 'rel="next">next' in page(browser, "job/", sort="-attempts")


# Within a window


@pytest.mark.slow
@override_settings(OJS={"ADMIN": {"SEARCH_WINDOW": 10}})
def test_what_no_index_sorts_is_sorted_window_by_window(frozen: FrozenClock) -> None:
    browser = login("view_job")
    jobs = []
    for number in range(25):
        frozen.advance(1)
        jobs += make(1)
        Job.objects.filter(pk=jobs[-1].id).update(attempt=number * 7 % 4)
    newest = sorted(range(15, 25), key=lambda number: (number * 7 % 4, number), reverse=True)
    text = page(browser, "job/", sort="-attempts")
    assert ids_of_rows(text) == [str(jobs[number].id) for number in newest]
    assert said(text).startswith("Sorted among the newest 10 jobs, to ")
    assert "<span>25 jobs</span>" in text
    seen, texts = list[str](), list[str]()
    query = {"sort": "-attempts"}
    while query:
        texts.append(page(browser, "job/", **query))
        seen += ids_of_rows(texts[-1])
        link = re.search(r'<a href="\?([^"]*)">Go on', texts[-1])
        query = dict(parse_qsl(html.unescape(link[1]))) if link else {}
    assert len(texts) == 3
    assert sorted(seen) == sorted(str(job.id) for job in jobs)
    assert all(said(text).startswith("Sorted among the next 10 jobs, to ") for text in texts[1:])
    oldest = sorted(range(5), key=lambda number: (number * 7 % 4, number), reverse=True)
    assert ids_of_rows(texts[-1]) == [str(jobs[number].id) for number in oldest]


@pytest.mark.slow
@override_settings(OJS={"ADMIN": {"SEARCH_WINDOW": 60}})
def test_a_window_that_has_the_whole_tab_is_not_spoken_of() -> None:
    browser = login("view_job")
    make(60)
    for query in ({}, {"after": f"0~{KEY}"}):
        text = page(browser, "job/", sort="-attempts", **query)
        assert said(text) == ""
        assert "<span>60 jobs</span>" in text
    make(1)
    assert said(page(browser, "job/", sort="-attempts")).startswith("Sorted among the newest 60 jobs")


@override_settings(OJS={"ADMIN": {"SEARCH_WINDOW": 2}})
@pytest.mark.parametrize("sort", ["-attempts", "line"])
def test_what_an_index_finds_is_sorted_as_a_whole(sort: str) -> None:
    browser = login("view_job")
    jobs = make(6)
    for number, job in enumerate(jobs[:4]):
        Job.objects.filter(pk=job.id).update(
            incident="a" * 16, attempt=number % 2 * 4 + number, priority=number % 2 * 4 + number
        )
    text = page(browser, "job/", state="available", q=f"incident:{'a' * 16}", sort=sort)
    assert ids_of_rows(text) == [str(jobs[place].id) for place in (3, 1, 2, 0)]
    assert said(text) == ""
    assert "<span>4 jobs</span>" in text


@override_settings(OJS={"ADMIN": {"SEARCH_WINDOW": 6}})
def test_a_search_is_sorted_within_what_it_looked_at() -> None:
    browser = login("view_job")
    names = ["b", "a", "c", "b", "a", "c", "d", "b"]
    jobs = [enqueue(f"t.{name}", [], tags=["x"] if name != "c" else []) for name in names]
    text = page(browser, "job/", q="tag:x", sort="type")
    wanted = [jobs[place] for place in (4, 7, 3, 6)]
    assert ids_of_rows(text) == [str(job.id) for job in wanted]
    assert said(text).startswith("Looked among the newest 6 jobs, to ")
    assert "≥ 4 jobs" in text


@override_settings(OJS={"ADMIN": {"SEARCH_WINDOW": 3}})
@pytest.mark.parametrize(
    ("state", "sort", "words"),
    [
        ("", "created", "the oldest 3 jobs"),
        ("scheduled", "-due", "the 3 jobs that are due last"),
        ("scheduled", "due", "the 3 jobs that are due first"),
    ],
)
def test_the_window_of_a_search_begins_where_the_list_does(state: str, sort: str, words: str) -> None:
    browser = login("view_job")
    jobs = [
        enqueue("t", [], tags=["x"] if place in (0, 4) else [], delay=100 + place if state else None)
        for place in range(5)
    ]
    first = jobs[4] if sort == "-due" else jobs[0]
    text = page(browser, "job/", q="tag:x", sort=sort, **({"state": state} if state else {}))
    assert ids_of_rows(text) == [str(first.id)]
    assert said(text).startswith(f"Looked among {words}, to ")
    link = re.search(r'<a href="\?([^"]*)">Go on', text)
    assert link is not None
    text = page(browser, "job/", **dict(parse_qsl(html.unescape(link[1]))))
    assert ids_of_rows(text) == [str((jobs[0] if sort == "-due" else jobs[4]).id)]


def test_what_ran_longest_and_what_waited_longest(frozen: FrozenClock) -> None:
    browser = login("view_job")
    for waited, ran in ((5, 30), (50, 10), (20, 20)):
        make()
        frozen.advance(waited)
        (job,) = take()
        frozen.advance(ran)
        ack(job)
    slow, waiting, middle = (str(job.pk) for job in Job.objects.order_by("created_at"))
    found = {
        sort: ids_of_rows(page(browser, "job/", state="completed", sort=sort))
        for sort in ("-duration", "-waited", "duration")
    }
    assert found == {
        "-duration": [slow, middle, waiting],
        "-waited": [waiting, middle, slow],
        "duration": [waiting, middle, slow],
    }


def test_a_job_that_never_ran_took_no_time(frozen: FrozenClock) -> None:
    browser = login("view_job", "cancel_job")
    job, never = make(2, retry={"max_attempts": 1})
    (claimed,) = take()
    frozen.advance(3)
    fail(claimed)
    Job.objects.filter(pk=never.id).update(state="discarded", finished_at=frozen.time)
    found = ids_of_rows(page(browser, "job/", state="discarded", sort="-duration"))
    assert found == [str(job.id), str(never.id)]


@pytest.mark.parametrize("promoted", [False, True])
def test_what_waited_again_after_it_ran_did_not_run_for_so_long(
    frozen: FrozenClock, promoted: bool
) -> None:
    browser = login("view_job")
    (waited,) = make()
    (claimed,) = take()
    frozen.advance(1)
    fail(claimed)
    frozen.advance(3600)
    if promoted:
        assert promote() == 1
    frozen.advance(3600)
    operate.discard([waited.id])
    (ran,) = make(retry={"max_attempts": 1})
    (claimed,) = take()
    frozen.advance(3)
    fail(claimed)
    text = page(browser, "job/", state="discarded", sort="-duration")
    assert ids_of_rows(text) == [str(ran.id), str(waited.id)]
    assert re.findall(r'class="field-duration">(?:<span[^>]*>)?([^<]*)<', text) == ["3 s", ""]
    used = {one.name: one.used for one in clocks(now_stored(waited), frozen.time)}
    assert used["execution"] is None
    text = page(browser, f"job/{ran.id}/change/").partition("The last runs of this type")[2]
    assert str(waited.id) in text
    assert "2 h" not in text


# The line


def test_the_line_is_in_the_order_of_claims(frozen: FrozenClock) -> None:
    browser = login("view_job")
    for number in range(6):
        frozen.advance(1)
        make(1, queue="mail" if number % 2 else "default", priority=number % 3)
    in_line = ids_of_rows(page(browser, "job/", state="available", sort="line"))
    of_mail = ids_of_rows(page(browser, "job/", state="available", sort="line", queue="mail"))
    backwards = ids_of_rows(page(browser, "job/", state="available", sort="-line"))
    assert len(in_line) == 6
    assert backwards == in_line[::-1]
    mail = {str(job.pk) for job in Job.objects.filter(queue="mail")}
    assert of_mail == [key for key in in_line if key in mail]
    assert [str(job.id) for job in take(3, queues=("mail",))] == of_mail


def test_of_a_long_line_the_first_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tabs, "MOST_IN_LINE", 4)
    monkeypatch.setattr("django_ojs.admin.job_changelist.MOST_IN_LINE", 4)
    browser = login("view_job")
    jobs = make(6)
    Job.objects.filter(pk=jobs[1].id).update(held=True)
    make(3, queue="other")
    text = page(browser, "job/", state="available", sort="line")
    assert ids_of_rows(text) == [str(jobs[place].id) for place in (0, 2, 3, 4)]
    assert said(text) == "At most 4 jobs of the line are shown, and none that a rate limit holds."
    assert "<span>4 jobs</span>" in text
    text = page(browser, "job/", state="available", sort="line", q="args.0:3", queue="default")
    assert ids_of_rows(text) == []
    browser = login("view_job", "view_args", name="eve")
    text = page(browser, "job/", state="available", sort="line", q="args.0:3")
    assert ids_of_rows(text) == [str(jobs[3].id)]
    assert "<span>1 job</span>" in text


def test_a_queue_of_an_impossible_name_has_no_line() -> None:
    browser = login("view_job")
    make()
    assert ids(page(browser, "job/", state="available", sort="line", queue="\0")) == []


# What is done with it


def test_a_saved_view_keeps_the_order() -> None:
    browser = login("view_job")
    make()
    ack(*take())
    asked = "state=completed&sort=-duration"
    text = page(browser, "job/", **dict(parse_qsl(asked)))
    assert f'name="asked" value="{html.escape(asked)}"' in text
    browser.post(f"{LIST}views/", {"asked": asked, "name": "slow"})
    text = page(browser, "job/")
    assert f'<a href="?{html.escape(asked)}">slow</a>' in text
    text = page(browser, "job/", **dict(parse_qsl(asked)))
    assert f'<a href="?{html.escape(asked)}" aria-current="page">slow</a>' in text


def test_another_tab_keeps_an_order_that_it_has() -> None:
    browser = login("view_job")
    text = page(browser, "job/", state="completed", sort="-duration")
    links = dict(re.findall(r'<li><a href="\?([^"]*)"[^>]*>(\w+)', text.partition('"ojs-tabs"')[2]))
    found = {label: html.unescape(url) for url, label in links.items()}
    assert found["discarded"] == "state=discarded&sort=-duration"
    assert found["available"] == "state=available"
    assert found["All"] == ""


def test_a_click_on_a_value_keeps_the_order() -> None:
    browser = login("view_job")
    make(1, queue="mail")
    text = page(browser, "job/", sort="-attempts")
    assert 'href="?sort=-attempts&amp;queue=mail"' in text


@pytest.mark.slow
def test_the_dead_letter_has_orders_too(frozen: FrozenClock) -> None:
    browser = login("view_job", "view_deadletter")
    for seconds in (3, 9, 6):
        make(retry={"max_attempts": 1, "on_exhaustion": "dead_letter"})
        (job,) = take()
        frozen.advance(seconds)
        fail(job)
    first, second, third = (str(job.pk) for job in Job.objects.order_by("created_at"))
    for sort, wanted in (
        ("-duration", [second, third, first]),
        ("ended", [first, second, third]),
        ("", [third, second, first]),
    ):
        assert ids_of_rows(page(browser, "deadletter/", sort=sort)) == wanted


def test_selected_rows_of_a_sorted_list_are_acted_on() -> None:
    browser = login("view_job", "cancel_job")
    jobs = make(3)
    keys: Sequence[str] = [str(jobs[0].id), str(jobs[2].id)]
    data = {"action": "cancel", "_selected_action": keys, "select_across": "0", "index": "0"}
    done = browser.post(
        f"{LIST}?sort=-attempts", {**data, "_confirmed": "1", "_many": "0", "reason": "why"}
    )
    assert done.status_code == 302
    assert set(Job.objects.filter(state="cancelled").values_list("pk", flat=True)) == {
        jobs[0].id,
        jobs[2].id,
    }


@pytest.mark.slow
def test_a_span_is_compared_exactly(frozen: FrozenClock) -> None:
    """Two that differ by a microsecond are on two pages, once each."""
    browser = login("view_job")
    for span in (1_000_001, 1_000_000, 1_000_002):
        make()
        (job,) = take()
        frozen.advance(2)
        ack(job)
        started = Job.objects.get(pk=job.id).finished_at
        assert started is not None
        Job.objects.filter(pk=job.id).update(started_at=started - timedelta(microseconds=span))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site._registry[Job], "list_per_page", 1)
        query = {"state": "completed", "sort": "-duration"}
        seen = [key for text in pages(browser, query) for key in ids_of_rows(text)]
    first, second, third = (str(job.pk) for job in Job.objects.order_by("created_at"))
    assert seen == [third, first, second]


# Boards


def on_board(text: str) -> list[str]:
    """The rows of a board, by name, in order."""
    return re.findall(r'<th class="field-name[^"]*"><a href="[^"]*">([^<]*)</a>', text)


@pytest.mark.slow
def test_the_board_of_queues_is_sorted_by_a_column(frozen: FrozenClock) -> None:
    browser = login("view_queue")
    for queue, count, delay in (("few", 1, None), ("many", 3, None), ("later", 2, "1h")):
        make(count, queue=queue, delay=delay)
        frozen.advance(5)
    text = page(browser, "queue/")
    assert headings(text)["available"] == ("sort=-available", "")
    assert "badges" not in headings(text)
    found = {
        sort: on_board(page(browser, "queue/", sort=sort, paused__exact="0"))
        for sort in ("-available", "available", "-oldest", "-scheduled", "nothing", "")
    }
    assert found["-available"] == ["many", "few", "later"]
    assert found["available"] == ["later", "few", "many"]
    assert found["-oldest"] == ["few", "many", "later"]
    assert found["-scheduled"][0] == "later"
    assert found["nothing"] == found[""] == on_board(text)
    text = page(browser, "queue/", sort="-available", paused__exact="0")
    url, way = headings(text)["available"]
    assert (parse_qs(url), way) == ({"sort": ["available"], "paused__exact": ["0"]}, "descending")


@pytest.mark.slow
def test_the_board_of_workers_is_sorted_by_a_column() -> None:
    browser = login("view_worker")
    worker("a", running=1, concurrency=4, rss_bytes=300, age=9)
    worker("b", running=3, concurrency=4, rss_bytes=None)
    worker("c", running=2, concurrency=4, rss_bytes=200, age=4)
    found = {
        sort: on_board(page(browser, "worker/", sort=sort))
        for sort in ("-slots", "slots", "-memory", "-heartbeat", "-version")
    }
    assert found == {
        "-slots": ["b", "c", "a"],
        "slots": ["a", "c", "b"],
        "-memory": ["a", "c", "b"],
        "-heartbeat": ["a", "c", "b"],
        "-version": ["b", "c", "a"],
    }
    text = page(browser, "worker/", sort="slots", status="all")
    assert headings(text)["slots"] == ("sort=-slots&status=all", "ascending")
