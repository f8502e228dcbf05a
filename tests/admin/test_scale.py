"""With 200,000 rows every page of the admin reads little, by index, in few queries.

Asserted of the plans and of the rows that they read, which do not flake as a clock does. The rows
are counted on the servers, in ``make test-all``; SQLite only plans, for which 70,000 will do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.test import Client

from benchmarks.rows import MINE
from django_ojs import clock
from django_ojs.admin import bulk as bulk_pages
from django_ojs.admin.sorting import SORTS, Reach, Sort
from django_ojs.domain.incidents import identify
from django_ojs.domain.job import Actor
from django_ojs.models import Job, QueueSample, Worker
from django_ojs.services import bulk, queue_samples
from django_ojs.store import selectors
from tests.admin.support import MANY, login, many_jobs

pytestmark = pytest.mark.timeout(900)
"""The table takes seconds; a busy machine has them all the same."""
WINDOW = 100_000
PAGE = 50
CAPPED = 11_000
WINDOWED = WINDOW + 20_000
LISTED, SEARCHED = 9, 11
"""Statements of the job list: session, user, counts, queues, incidents, saved views, the rows, what is
small of them, and the workers that could take those that wait; of a search also the ends of its window.
"""
INCIDENT = identify("mail.digest", "timeout", "")
JOBS = ("django_ojs_job",)
EXPLAIN = {
    "postgresql": "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON)",
    "sqlite": "EXPLAIN QUERY PLAN",
    "mysql": "EXPLAIN",
}


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement with its parameters as the driver got them, and the plan of it there and then.

    Written out it would not do: SQLite proves less of a parameter than of a literal. Nor later: a
    list plans within the limits that it sets.
    """

    sql: str
    params: Any
    plan: list[dict[str, Any]]


@pytest.fixture(scope="module")
def browser(django_db_setup: None, django_db_blocker: Any) -> Iterator[Client]:
    """A browser over many jobs with fresh statistics."""
    with many_jobs(django_db_blocker) as now:
        Worker.objects.create(name="w1", incarnation=clock.new_id(), started_at=now, heartbeat_at=now)
        found = login(superuser=True)
        found.get("/admin/django_ojs/job/")
        yield found


class Asked:
    """The reads of a page, with the plans of those that are about some tables."""

    def __init__(self, tables: Sequence[str] = JOBS) -> None:
        self.all: list[Statement] = []
        self._tables = re.compile(rf"\b({'|'.join(tables)})\b")

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if re.match(r"\(?\s*SELECT", sql, re.I) and "set_config" not in sql:
            plan: list[dict[str, Any]] = []
            if self._tables.search(sql):
                execute(f"{EXPLAIN[connection.vendor]} {sql}", params, many, context)
                cursor = context["cursor"]
                names = [column[0] for column in cursor.description]
                plan = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
            self.all.append(Statement(sql, params, plan))
        return execute(sql, params, many, context)


def look(browser: Client, path: str) -> tuple[str, Asked]:
    """A page, and what it asked, of a process that has shown others."""
    ContentType.objects.get_for_model(Job)
    asked = Asked()
    with connection.execute_wrapper(asked):
        response = browser.get(f"/admin/django_ojs/{path}")
    assert response.status_code == 200, (path, response.status_code)
    return response.content.decode(), asked


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A plan of PostgreSQL, node by node."""
    yield node
    for child in node.get("Plans", ()):
        yield from nodes(child)


def tree(statement: Statement) -> Iterator[dict[str, Any]]:
    """The plan of PostgreSQL, node by node."""
    plan = statement.plan[0]["QUERY PLAN"]
    yield from nodes((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"])


def scans(statement: Statement, tables: Sequence[str] = JOBS) -> list[str]:
    """The parts of a plan that read a whole table."""
    if connection.vendor == "postgresql":
        return [
            str(node)
            for node in tree(statement)
            if node["Node Type"] == "Seq Scan" and node["Relation Name"] in tables
        ]
    if connection.vendor == "sqlite":
        details = [row["detail"] for row in statement.plan]
        names = "|".join(("j", *tables))
        return [detail for detail in details if re.match(rf"SCAN (?:{names})\b(?!.*USING)", detail)]
    return [
        str(row)
        for row in statement.plan
        if row["table"] in ("j", *tables) and (row["type"] == "ALL" or not row["key"])
    ]


def rows_read(statement: Statement, tables: Sequence[str] = JOBS) -> int:
    """How many rows of tables and their indexes a statement reads; SQLite keeps no count."""
    if connection.vendor == "postgresql":
        return sum(
            (
                node["Actual Rows"]
                + node.get("Rows Removed by Filter", 0)
                + node.get("Rows Removed by Index Recheck", 0)
            )
            * node["Actual Loops"]
            for node in tree(statement)
            if node.get("Relation Name") in tables
        )
    if connection.vendor == "mysql":
        with connection.cursor() as cursor:
            cursor.execute("FLUSH STATUS")
            cursor.execute(statement.sql, statement.params)
            cursor.fetchall()
            names = (
                "'Handler_read_key', 'Handler_read_next', 'Handler_read_prev', 'Handler_read_rnd_next'"
            )
            cursor.execute(f"SHOW SESSION STATUS WHERE Variable_name IN ({names})")
            return sum(int(value) for _name, value in cursor.fetchall())
    return 0


def unbounded(sql: str) -> list[str]:
    """The words in a statement about jobs that read without bound."""
    upper = sql.upper()
    # What is passed over is read: no more than a window, for the last of its rows.
    found = [size for size in re.findall(r" OFFSET (\S*\b)", upper) if not 0 < int(size) < WINDOW]
    found += re.findall("DISTINCT", upper)
    if "LIMIT" not in upper:
        found += [word for word in ("COUNT(", "GROUP BY") if word in upper]
    return found


def check(asked: Asked, most: int, limit: int = CAPPED) -> None:
    """Few queries; of jobs by index only, bounded by their words and by the rows that they read.

    MariaDB counts the rows of a derived table when they are written and read: there the bound of a
    statement that has some is looser.
    """
    # Every page asks for the bulk work under way, too.
    assert len(asked.all) <= most + 1, "\n".join(statement.sql for statement in asked.all)
    for statement in asked.all:
        if not statement.plan:
            continue
        assert not unbounded(statement.sql), statement
        assert not scans(statement), statement
        copied = 2 if connection.vendor == "mysql" and "FROM (SELECT" in statement.sql else 1
        others = statement.sql.count("UNION ALL") * CAPPED
        assert rows_read(statement) <= (limit + others) * copied, statement


def link(text: str, rel: str) -> str:
    """Where a page leads."""
    found = re.search(rf'href="(\?[^"]*)" rel="{rel}"', text)
    assert found is not None, f"no {rel}"
    return found[1].replace("&amp;", "&")


def shown(text: str) -> list[str]:
    """The jobs of a list."""
    return re.findall(r'class="ojs-id" href="[^"]*" title="([0-9a-f-]{36})"', text)


STATES = [state.value for state in Job.States]


@pytest.mark.slow
@pytest.mark.parametrize(
    "query", ["", *(f"?state={state}" for state in STATES), "?lens=overdue"], ids=lambda q: q or "all"
)
def test_tabs_forth_and_back(browser: Client, query: str) -> None:
    text, asked = look(browser, f"job/{query}")
    check(asked, LISTED)
    first = shown(text)
    assert len(first) == PAGE
    text, asked = look(browser, "job/" + link(text, "next"))
    check(asked, LISTED)
    second = shown(text)
    assert second
    assert not set(first) & set(second)
    text, asked = look(browser, "job/" + link(text, "prev"))
    check(asked, LISTED)
    assert shown(text) == first


SORTED = [(name, sort) for name, sorts in SORTS.items() if name != "dead_letter" for sort in sorts[1:]]


@pytest.mark.parametrize(
    ("name", "sort"),
    [
        pytest.param(
            name,
            sort,
            id=f"{name or 'all'}:{sort.name}",
            marks=() if name in ("available", "discarded") else pytest.mark.long,
        )
        for name, sort in SORTED
    ],
)
def test_every_order_of_a_tab_reads_no_more_than_its_reach(
    browser: Client, name: str, sort: Sort
) -> None:
    """By an index no more than the page; otherwise a window, and whether there are rows after it."""
    limit = WINDOWED if sort.reach is Reach.WINDOW else CAPPED
    most = LISTED if sort.reach is Reach.TAB else SEARCHED
    tab = {"lens": name} if name == "overdue" else {"state": name} if name else {}
    text, asked = look(browser, f"job/?{urlencode({**tab, 'sort': sort.name})}")
    check(asked, most, limit)
    first = shown(text)
    assert len(first) == PAGE
    text, asked = look(browser, "job/" + link(text, "next"))
    check(asked, most, limit)
    assert shown(text)
    assert not set(first) & set(shown(text))
    text, asked = look(browser, "job/" + link(text, "prev"))
    check(asked, most, limit)
    assert shown(text) == first


@pytest.mark.parametrize("query", ["q=type:mail.send", "queue=default", "queue=rare", "queue=none"])
@pytest.mark.parametrize("sort", ["line", "-line", "-attempts"])
def test_a_search_in_another_order_reads_the_window(browser: Client, sort: str, query: str) -> None:
    _, asked = look(browser, f"job/?state=available&sort={sort}&{query}")
    check(asked, SEARCHED, WINDOWED if sort == "-attempts" else CAPPED)


@pytest.mark.parametrize("state", ["", "completed", "discarded", "available", "scheduled"])
def test_a_page_deep_in_a_tab_reads_no_more_than_the_first(browser: Client, state: str) -> None:
    by = {"": "pk", "available": "pk", "scheduled": "scheduled_at"}.get(state, "finished_at")
    rows = Job.objects.filter(state=state) if state else Job.objects.all()
    row = rows.order_by(by)[rows.count() // 2]
    cursor = str(row.pk) if by == "pk" else f"{getattr(row, by).isoformat()}~{row.pk}"
    query = {"state": state} if state else {}
    for way in ("after", "before"):
        asked = Asked()
        with connection.execute_wrapper(asked):
            response = browser.get("/admin/django_ojs/job/", {**query, way: cursor})
        assert len(shown(response.content.decode())) == PAGE
        check(asked, LISTED)


@pytest.mark.parametrize("query", ["lens=timed_out", "queue=default", "queue=rare", "queue=none"])
def test_what_no_index_serves_reads_the_window(browser: Client, query: str) -> None:
    _, asked = look(browser, f"job/?{query}")
    check(asked, SEARCHED, WINDOWED)


@pytest.mark.parametrize("state", ["", "available", "active", "scheduled", "completed", "discarded"])
@pytest.mark.parametrize("term", ["type:mail.send", "queue:nowhere", "error:app.Broken"])
def test_searches_in_tabs(browser: Client, term: str, state: str) -> None:
    query = f"&state={state}" if state else ""
    text, asked = look(browser, f"job/?q={term}{query}")
    check(asked, SEARCHED, WINDOWED)
    if term == "type:mail.send":
        assert len(shown(text)) == PAGE
        text, asked = look(browser, "job/" + link(text, "next"))
        check(asked, SEARCHED, WINDOWED)
        assert shown(text)


@pytest.mark.parametrize(
    ("term", "count"),
    [
        (f"type:{MINE}", 1),
        ("type:mail.*", PAGE),
        ("type:nothing", 0),
        ("worker:w1", PAGE),
        ("worker:w9", 0),
        (f"args.order:{MANY - 1}", 1),
        ("args.order:-1", 0),
        ("meta.tenant:acme", PAGE),
        ("tag:none", 0),
        ("error:timeout type:mail.send", PAGE),
        ("queue:default type:nothing", 0),
        (f'"user{MANY - 1}@"', 1),
        ('"no such words"', 0),
        ('"no luck with number"', PAGE),
    ],
)
def test_searches(browser: Client, term: str, count: int) -> None:
    text, asked = look(browser, f"job/?q={term}")
    assert len(shown(text)) == count
    check(asked, SEARCHED, WINDOWED)


def test_search_by_id(browser: Client) -> None:
    row = Job.objects.filter(state="completed").order_by("pk").first()
    assert row is not None
    for term in (f"id:{row.pk}", f"{row.pk}+type:{row.type}"):
        text, asked = look(browser, f"job/?q={term}")
        assert shown(text) == [str(row.pk)]
        check(asked, LISTED)
    assert browser.get("/admin/django_ojs/job/", {"q": str(row.pk)}).status_code == 302


@pytest.mark.parametrize("state", STATES)
def test_job_page(browser: Client, state: str) -> None:
    row = Job.objects.filter(state=state).order_by("-pk")[20]
    _, asked = look(browser, f"job/{row.pk}/change/")
    check(asked, 11)


@pytest.mark.parametrize("path", ["queue/", "worker/", "deadletter/", "dashboard/", "failurestat/"])
def test_other_lists(browser: Client, path: str) -> None:
    text, asked = look(browser, path)
    # The dashboard asks the server about itself, too.
    check(asked, 12 if path == "dashboard/" else 8)
    if path == "deadletter/":
        text, asked = look(browser, path + link(text, "next"))
        check(asked, LISTED)
        text, asked = look(browser, path + "?q=error:nothing")
        check(asked, SEARCHED, WINDOWED)
        assert not shown(text)


def test_counting_a_queue_ends_at_the_cap(browser: Client) -> None:
    asked = Asked()
    with connection.execute_wrapper(asked):
        found = selectors.depths(["bulk", "default"], cap=100, among=100, states=(), using="default")
    assert {name: sum(depth.counts.values()) for name, depth in found.items()} == {
        "bulk": 100,
        "default": 100,
    }
    (statement,) = asked.all
    assert rows_read(statement) <= 500 * (3 if connection.vendor == "mysql" else 1), statement


def test_a_sample_of_what_waits_reads_no_backlog(browser: Client) -> None:
    """However many wait, it counts a bounded number, by ranges of the index of claims."""
    asked = Asked()
    with pytest.MonkeyPatch.context() as patch, connection.execute_wrapper(asked):
        patch.setattr(queue_samples, "COUNTED", 3000)
        assert queue_samples.sample() > 0
    whole = QueueSample.objects.get(step=60, queue=queue_samples.ALL)
    assert whole.capped and 2500 < whole.waiting <= 4500
    QueueSample.objects.all().delete()
    for statement in asked.all:
        if statement.plan:
            assert not scans(statement), statement
            copied = 3 if connection.vendor == "mysql" else 1
            assert rows_read(statement) <= 4500 * copied, statement


@pytest.mark.slow
def test_incidents_and_their_lists(browser: Client) -> None:
    for window in ("24h", "7d"):
        text, asked = look(browser, f"failurestat/?window={window}")
        check(asked, 9, 60_000)
        assert text.count('ojs-incident"') == 12
    row = Job.objects.filter(state="discarded").order_by("pk")[0]
    assert row.incident is not None
    for query in ("", "&state=discarded", "&state=retryable"):
        text, asked = look(browser, f"job/?q=incident:{row.incident}{query}")
        check(asked, LISTED)
        assert shown(text)
        if 'rel="next"' in text:
            text, asked = look(browser, f"job/{link(text, 'next')}")
            assert shown(text)
            check(asked, LISTED)


NARROWED = [
    bulk.Filter(),
    *(bulk.Filter(state=state) for state in STATES),
    *(bulk.Filter(state=state, search="type:nope") for state in STATES),
    bulk.Filter(search="type:nope"),
    bulk.Filter(queue="default"),
    bulk.Filter(state="discarded", search=f"incident:{INCIDENT}"),
    bulk.Filter(lens="timed_out"),
    bulk.Filter(lens="overdue"),
    bulk.Filter(dead_letter=True),
    bulk.Filter(dead_letter=True, search="error:nothing"),
]


@pytest.mark.parametrize("narrowed", NARROWED, ids=str)
def test_actions_and_bulk_work_read_little(browser: Client, narrowed: bulk.Filter) -> None:
    """The confirmation of an action on all that match, the count of a bulk job and two of its pages."""
    asked = {"state": narrowed.state, "lens": narrowed.lens, "queue": narrowed.queue}
    asked |= {"q": narrowed.search}
    query = urlencode({name: value for name, value in asked.items() if value})
    model = "deadletter" if narrowed.dead_letter else "job"
    key = str(clock.new_id())
    action = {"action": "purge", "_selected_action": [key], "select_across": "1", "index": "0"}
    reads = Asked()
    with connection.execute_wrapper(reads):
        browser.post(f"/admin/django_ojs/{model}/?{query}", action)
    check(reads, 16, WINDOWED)
    user = User.objects.get()
    actor = Actor("admin", user.username)
    # It is for no job that has ended, so that every page leaves all as they are.
    operation = "run_now" if narrowed.state not in ("scheduled", "retryable") else "retry"
    ended = narrowed.state in ("completed", "cancelled", "discarded") or narrowed.dead_letter
    given_at = (clock.now("default") + timedelta(days=1)).isoformat()
    order = bulk.Order(str(clock.new_id()), operation, narrowed, {}, actor, str(user.pk), given_at)
    reads = Asked()
    with connection.execute_wrapper(reads):
        walk = bulk_pages.work(order, after=None)
        if ended:
            assert all(page.changed == 0 for page in islice(walk, 2))
        elif narrowed.search:
            assert all(page.changed == 0 for page in walk)
    check(reads, 40, WINDOWED)


@pytest.mark.parametrize("query", ["type=mail.send", "type__icontains=x", "error__type=y"])
def test_no_other_lookup_comes_by_the_address(browser: Client, query: str) -> None:
    assert browser.get(f"/admin/django_ojs/job/?{query}").status_code == 400


def test_a_scan_would_be_noticed(browser: Client) -> None:
    asked = Asked()
    with connection.execute_wrapper(asked):
        list(Job.objects.filter(progress_message="x")[:1])
        Job.objects.filter(progress_message="x").count()
    assert all(scans(statement) for statement in asked.all)
    assert unbounded(asked.all[1].sql) == ["COUNT("]
    if connection.vendor != "sqlite":
        assert all(rows_read(statement) >= MANY for statement in asked.all)


def test_rows_are_of_every_state(browser: Client) -> None:
    now = datetime.now(UTC)
    for state in STATES:
        assert Job.objects.filter(state=state).count() > PAGE, state
    assert Job.objects.filter(deadline_at__lt=now + timedelta(days=1)).count() > PAGE
