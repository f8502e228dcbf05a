"""Sessions of workers have PostgreSQL parse and plan once what they run again and again (ADR 56)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from django_ojs.services.claim import claim, sources
from django_ojs.store import due_times
from django_ojs.store.sessions import prepared_statements
from tests.services.support import make

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]
_TWO = sources(None, ["test.job", "test.other"])


@pytest.fixture(autouse=True)
def few_events(settings: Any) -> Iterator[None]:
    """As by default, no event of a start is stored; the next test has a session of its own."""
    if connection.vendor != "postgresql":
        pytest.skip("PostgreSQL only")
    settings.OJS = {**settings.OJS, "EVENTS": "problems"}
    yield
    connection.close()


def prepared(claims: int) -> list[str]:
    """What the server has prepared for this session after so many claims and looks at what is due."""
    probe = due_times.DueProbe("default")
    for number in range(claims):
        probe.look()
        make()
        got = claim(_TWO, limit=1, immediate=1, worker_id=f"w{number}", beats=True)
        assert [job.worker_id for job in got] == [f"w{number}"]
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement FROM pg_prepared_statements")
        return [statement for (statement,) in cursor.fetchall()]


def test_claims_and_looks_are_prepared() -> None:
    with prepared_statements("default"):
        connection.close()
        found = prepared(4)
    assert sum("UPDATE" in statement for statement in found) == 1
    assert sum(statement.startswith("SELECT (SELECT") for statement in found) == 1
    assert len(found) == 3


def test_a_look_outlives_what_the_server_has_forgotten() -> None:
    make(enqueue_ttl=60)
    probe = due_times.DueProbe("default")
    connection.close()
    with prepared_statements("default"), connection.cursor() as cursor:
        due = probe.look()
        names = []
        for _ in range(2):
            assert probe.look() == due
            cursor.execute("SELECT name FROM pg_prepared_statements")
            names += [name for (name,) in cursor.fetchall()]
            cursor.execute("DEALLOCATE ALL")
            assert probe.look() == due
    assert due.deadline is not None
    assert len(set(names)) == 2


def test_nothing_is_prepared_in_other_sessions() -> None:
    assert prepared(4) == []


def test_nothing_is_prepared_where_a_pooler_shares_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "DISABLE_SERVER_SIDE_CURSORS", True)
    with prepared_statements("default"):
        connection.close()
        assert prepared(4) == []


def test_a_threshold_of_the_project_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "prepare_threshold", 100)
    with prepared_statements("default"):
        connection.close()
        assert prepared(4) == []
        driver: Any = connection.connection
        assert driver.prepare_threshold == 100


def test_the_driver_remembers_no_values() -> None:
    """It would keep the text of the last hundred statements, with the arguments of all jobs in it."""
    with prepared_statements("default"):
        connection.close()
        prepared(4)
        for number in range(3):
            make(meta={"secret": f"value {number}"})
        driver: Any = connection.connection
        assert driver._prepared._names
        assert "secret" not in repr((driver._prepared._counts, driver._prepared._names))
