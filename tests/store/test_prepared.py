"""PostgreSQL parses and plans once what a session runs again and again (ADR 56)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from math import inf
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext

from django_ojs.models import ApiToken, Job
from django_ojs.services import tokens
from django_ojs.services.claim import claim, sources
from django_ojs.store import due_times, known_rows, selectors
from django_ojs.store.dialect import dialect
from django_ojs.store.sessions import prepared_statements
from tests.services.support import make

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]
_TWO = sources(None, ["test.job", "test.other"])


@pytest.fixture(autouse=True)
def few_events(settings: Any) -> Iterator[None]:
    """As by default, no event of a start is stored; the next test has a session of its own.

    Each enqueue notifies: sparsely, the statement would depend on how long ago the last one was.
    """
    if connection.vendor != "postgresql":
        pytest.skip("PostgreSQL only")
    settings.OJS = {**settings.OJS, "EVENTS": "problems", "NOTIFY": True}
    yield
    connection.close()


def prepared() -> list[str]:
    """What the server has prepared for this session."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement FROM pg_prepared_statements")
        return [statement for (statement,) in cursor.fetchall()]


def work(claims: int) -> list[str]:
    """What it has prepared after so many enqueues, claims and looks at what is due."""
    probe = due_times.DueProbe("default")
    for number in range(claims):
        probe.look()
        make()
        got = claim(_TWO, limit=1, immediate=1, worker_id=f"w{number}", beats=True)
        assert [job.worker_id for job in got] == [f"w{number}"]
    return prepared()


def test_a_worker_prepares_what_it_repeats() -> None:
    with prepared_statements("default"):
        connection.close()
        found = work(9)
    assert sum("UPDATE" in statement for statement in found) == 1
    assert sum("INSERT" in statement for statement in found) == 1
    assert sum(statement.startswith("SELECT (SELECT") for statement in found) == 1
    assert len(found) == 4


def test_what_flows_is_prepared() -> None:
    due_times.next_deadline(using="default")
    make(40)
    where = sources(None, ["test.job", "test.other"], resumes=True)
    with prepared_statements("default"):
        connection.close()
        for _ in range(10):
            where.flows_until = inf
            assert len(claim(where, limit=2, immediate=2, worker_id="w", beats=True)) == 2
        found = prepared()
    assert [statement.startswith("WITH served") for statement in found] == [True]


def test_a_look_outlives_what_the_server_has_forgotten() -> None:
    make(enqueue_ttl=60)
    probe = due_times.DueProbe("default")
    connection.close()
    with prepared_statements("default"), connection.cursor() as cursor:
        due = [probe.look() for _ in range(9)][-1]
        names = []
        for _ in range(2):
            assert probe.look() == due
            cursor.execute("SELECT name FROM pg_prepared_statements")
            names += [name for (name,) in cursor.fetchall()]
            cursor.execute("DEALLOCATE ALL")
            assert probe.look() == due
    assert due.deadline is not None
    assert len(set(names)) == 2


def test_other_sessions_prepare_enqueues() -> None:
    """Their plan does not depend on settings of the session."""
    connection.close()
    make(9)
    (statement,) = prepared()
    assert "INSERT INTO" in statement


def test_queries_that_django_logs_have_their_text() -> None:
    connection.close()
    make(9)
    with CaptureQueriesContext(connection) as seen:
        make(2, meta={"number": 4711})
    assert [query["sql"].count("4711") for query in seen] == [1, 1]


def test_other_sessions_prepare_no_claims() -> None:
    connection.close()
    found = work(9)
    assert found
    assert all("INSERT INTO" in statement for statement in found)


def test_other_sessions_prepare_what_they_read_by_keys() -> None:
    """With each request over HTTP a token is read, and with each report the jobs that it names."""
    token, _ = tokens.create("app", scopes=["work"])
    (job,) = make()
    connection.close()
    for _ in range(9):
        assert known_rows.TOKEN.read(token.prefix, using="default") == token
        assert set(selectors.jobs([job.id], using="default")) == {job.id}
    assert ["apitoken" in statement for statement in sorted(prepared())] == [True, False]


@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_session_goes_on_when_a_table_is_altered(in_transaction: bool) -> None:
    """What was prepared returns another type then: the server refuses it, once."""
    token, _ = tokens.create("app", scopes=["work"])
    connection.close()

    def read() -> None:
        for _ in range(9):
            assert known_rows.TOKEN.read(token.prefix, using="default") == token

    read()
    try:
        alter(300)
        if in_transaction:
            with pytest.raises(DatabaseError, match="cached plan"), transaction.atomic():
                read()
        read()
        assert len(prepared()) == 1
    finally:
        alter(200)


def alter(length: int) -> None:
    """Give a column of tokens another type."""
    table = ApiToken._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} ALTER COLUMN name TYPE varchar({length})")


def test_a_short_session_is_not_asked_about() -> None:
    make()
    connection.close()
    sql: Any = dialect("default")
    make(5)
    assert sql._direct is None
    make(1)
    assert sql._direct is True


def test_enqueues_go_on_after_a_rollback() -> None:
    """psycopg has the server forget what is prepared then."""
    connection.close()
    make(9)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        make(3)
        raise ZeroDivisionError
    assert prepared() == []
    make(9)
    assert len(prepared()) == 1
    assert Job.objects.count() == 18


def forget_all() -> None:
    """As a pool does that hands a session to somebody else."""
    with connection.cursor() as cursor:
        cursor.execute("DISCARD ALL")


def test_an_enqueue_goes_on_when_the_project_has_all_forgotten() -> None:
    connection.close()
    make(9)
    forget_all()
    make(9)
    assert prepared() == []
    assert Job.objects.count() == 18


def test_a_transaction_in_which_all_is_forgotten_is_the_last_one_that_fails() -> None:
    connection.close()
    with transaction.atomic():
        make(9)
    forget_all()
    with pytest.raises(DatabaseError), transaction.atomic():
        make()
    with transaction.atomic():
        make(9)
    assert prepared() == []
    assert Job.objects.count() == 18


def test_a_session_that_cannot_be_asked_is_used_as_ever() -> None:
    """In pipeline mode, which psycopg offers, nobody may ask in between."""
    make()
    connection.close()
    make(5)
    driver: Any = connection.connection
    with driver.pipeline():
        make()
    assert dialect("default")._direct is None  # type: ignore[attr-defined]
    assert Job.objects.count() == 7


def test_a_session_is_asked_again_after_a_transaction_that_had_failed() -> None:
    connection.close()
    make(5)
    with transaction.atomic():
        with suppress(DatabaseError), connection.cursor() as cursor:
            cursor.execute("SELECT 1 / 0")
        with pytest.raises(DatabaseError):
            make()
        transaction.set_rollback(True)
    make(9)
    assert len(prepared()) == 1


def test_nothing_is_prepared_where_a_pooler_shares_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "DISABLE_SERVER_SIDE_CURSORS", True)
    with prepared_statements("default"):
        connection.close()
        assert work(9) == []


def test_a_threshold_of_the_project_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "prepare_threshold", 100)
    with prepared_statements("default"):
        connection.close()
        assert work(9) == []
        driver: Any = connection.connection
        assert driver.prepare_threshold == 100


def test_a_cursor_that_traces_is_kept() -> None:
    connection.close()
    make()
    driver: Any = connection.connection
    traced: list[str] = []

    class Traced(driver.cursor_factory):  # type: ignore[misc]
        def execute(self, query: Any, *arguments: Any, **options: Any) -> Any:
            traced.append(str(query))
            return super().execute(query, *arguments, **options)

    driver.cursor_factory = Traced
    make(9)
    assert sum(query.startswith("INSERT") for query in traced) == 9
    assert prepared() == []


def test_the_driver_remembers_no_values() -> None:
    """It would keep the text of the last hundred statements, with the arguments of all jobs in it."""
    with prepared_statements("default"):
        connection.close()
        work(9)
        for number in range(9):
            make(meta={"secret": f"value {number}"})
            list(Job.objects.filter(meta__secret=f"value {number}"))
        driver: Any = connection.connection
        assert driver._prepared._names
        assert "secret" not in repr((driver._prepared._counts, driver._prepared._names))
