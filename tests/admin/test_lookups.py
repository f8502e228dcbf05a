"""The address of a list: no column can be asked for but by a filter, and no list takes for ever."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.sites import site
from django.db import connection

from django_ojs.admin import changelists, limits
from django_ojs.api import enqueue
from django_ojs.models import FailureStat, MinuteStat, Queue
from django_ojs.services import tokens
from tests.admin.support import login, page
from tests.services.support import ack, make, take

pytestmark = pytest.mark.usefixtures("ojs_db", "no_users")
PAGES = {"dashboard", "failurestat"}
"""They are no lists of rows: no column is asked for there, whatever the address says."""
LOOKUPS = ("", "__startswith", "__regex", "__gte", "__isnull", "__key__startswith")
LISTS = {
    str(model._meta.model_name): model
    for model in site._registry
    if model._meta.app_label == "django_ojs" and model._meta.model_name not in PAGES
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LISTS)
def test_no_column_is_looked_up_by_the_address(name: str) -> None:
    browser, screen = login(superuser=True), site._registry[LISTS[name]]
    declared = {getattr(item, "parameter_name", None) for item in screen.list_filter}
    declared |= set(getattr(screen, "own_parameters", ()))
    for field in LISTS[name]._meta.get_fields():
        for lookup in LOOKUPS:
            asked = f"{field.name}{lookup}"
            answer = browser.get(f"/admin/django_ojs/{name}/", {asked: "x"})
            assert answer.status_code == 400 or asked in declared, asked


def test_the_filters_work() -> None:
    browser = login(superuser=True)
    for name, paused in (("a", True), ("b", False)):
        Queue.objects.create(name=name, paused=paused, created_at="2026-01-01T00:00:00Z")
    text = page(browser, "queue/", paused__exact="1")
    assert 'href="/admin/django_ojs/queue/a/change/' in text
    assert 'href="/admin/django_ojs/queue/b/change/' not in text
    for path, query in (("job", "queue"), ("worker", "status"), ("auditentry", "did")):
        page(browser, f"{path}/", **{query: "x"})
    answer = browser.get("/admin/django_ojs/workflow/", {"state__exact": "\0"})
    assert (answer.status_code, answer["Location"]) == (302, "/admin/django_ojs/workflow/?e=1")


@pytest.mark.every_database
@pytest.mark.skipif(connection.vendor == "sqlite", reason="it has no time limit of statements")
@pytest.mark.parametrize("name", LISTS)
def test_every_list_has_a_time_limit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked of the session in the midst of the list's statements."""
    browser = login(superuser=True)
    tokens.create("c", scopes=["produce"])
    enqueue("t", [])
    monkeypatch.setattr(changelists, "TIME_LIMIT_MS", 4321)
    table = LISTS[name]._meta.db_table
    found: list[Any] = []

    def look(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if table in sql and "ORDER BY" in sql:
            with connection.cursor() as cursor:
                setting = "SHOW statement_timeout"
                if connection.vendor == "mysql":
                    setting = "SELECT @@SESSION.max_statement_time"
                if not found or found[-1] is not None:
                    found.append(None)
                    cursor.execute(setting)
                    found[-1] = float(str(cursor.fetchone()[0]).removesuffix("ms"))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(look):
        page(browser, f"{name}/")
    assert set(found) & {4321.0, 4.321}, found


@pytest.mark.parametrize("name", [name for name in LISTS if name != "apitoken"])
def test_no_header_offers_an_order_that_there_is_not(name: str) -> None:
    browser = login(superuser=True)
    make()
    ack(*take())
    Queue.objects.update(paused=False)
    assert "?o=" not in page(browser, f"{name}/")


@pytest.mark.parametrize("name", LISTS)
def test_a_key_that_no_database_has_is_no_error(name: str) -> None:
    browser = login(superuser=True)
    for path in ("%00/change/", "%00/history/", "a_00b/change/", "%00/do/retry/", "%00/do/quiet/"):
        answer = browser.get(f"/admin/django_ojs/{name}/{path}")
        assert answer.status_code in (302, 403, 404), path


@pytest.mark.skipif(connection.vendor == "sqlite", reason="it has no time limit of statements")
@pytest.mark.parametrize("path", ["dashboard/", "failurestat/", "queue/q/change/"])
def test_a_page_that_takes_too_long_says_so(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = login(superuser=True)
    Queue.objects.create(name="q", created_at="2026-01-01T00:00:00Z")
    monkeypatch.setattr(limits, "TIME_LIMIT_MS", 20)
    tables = [MinuteStat._meta.db_table, FailureStat._meta.db_table]
    slow = "SELECT pg_sleep(5)" if connection.vendor == "postgresql" else "SELECT SLEEP(5) FROM DUAL"

    def delay(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if any(table in sql for table in tables):
            return execute(slow, None, False, context)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(delay):
        answer = browser.get(f"/admin/django_ojs/{path}")
    assert answer.status_code == 503
    assert "This took too long." in answer.content.decode()
