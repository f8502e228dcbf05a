"""What a suspended process has locked comes free: its idle transaction is ended by the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext, suppress

import pytest
from django.db import DatabaseError, OperationalError, connection, connections, transaction

from django_ojs.models import Queue
from django_ojs.store import sessions
from tests.support import poll

pytestmark = pytest.mark.every_database


@pytest.fixture
def limited(ojs_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A limit of one second on the connections of this test."""
    monkeypatch.setattr(sessions, "IDLE_TRANSACTION_S", 1)
    with sessions.idle_transaction_timeout("default"):
        connection.close()
        yield


def free(name: str) -> bool:
    """Whether another session can lock the row at once."""
    other = connections["default"].copy()
    try:
        with other.cursor() as cur:
            cur.execute("SELECT 1 FROM django_ojs_queue WHERE name = %s FOR UPDATE SKIP LOCKED", [name])
            return cur.fetchone() is not None
    finally:
        other.close()


@pytest.mark.slow
@pytest.mark.fault("F79")
def test_an_idle_transaction_is_ended(limited: None, vendor: str) -> None:
    if vendor == "sqlite":
        pytest.skip("SQLite has no limit on idle transactions")
    Queue.objects.create(name="held")
    transaction.set_autocommit(False)
    Queue.objects.select_for_update().get(name="held")
    assert not free("held")
    poll(lambda: free("held"))
    with pytest.raises(DatabaseError, match=r"idle|gone away|Lost connection|closed"):
        Queue.objects.update(paused=True)
    connection.close()
    assert not Queue.objects.get(name="held").paused


def test_sessions_of_a_pool_are_left_alone(
    limited: None, vendor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if vendor == "sqlite":
        pytest.skip("SQLite has no limit on idle transactions")
    show = {"postgresql": "SHOW idle_in_transaction_session_timeout"}.get(
        vendor, "SELECT @@SESSION.idle_transaction_timeout"
    )

    def shown() -> str:
        connection.close()
        with connection.cursor() as cur:
            cur.execute(show)
            return str(cur.fetchone()[0])

    assert shown() in ("1s", "1")
    monkeypatch.setitem(connection.settings_dict, "DISABLE_SERVER_SIDE_CURSORS", True)
    assert shown() == "0"


_SETTINGS = {
    "postgresql": (
        "SELECT current_setting('statement_timeout'), current_setting('enable_seqscan'),"
        " current_setting('lock_timeout')"
    ),
    "mysql": "SELECT @@SESSION.max_statement_time",
}


def settings_of(vendor: str) -> tuple[object, ...]:
    """What is set in the session."""
    with connection.cursor() as cur:
        cur.execute(_SETTINGS[vendor])
        return tuple(cur.fetchone())


@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_a_limit_ends_with_its_block(outer: bool, fails: bool, vendor: str) -> None:
    if vendor == "sqlite":
        pytest.skip("SQLite has no limit")
    with connection.cursor() as cur:
        # What an init_command or the options of a connection may have set.
        if vendor == "postgresql":
            cur.execute("SET statement_timeout = '77s'")
        else:
            cur.execute("SET SESSION max_statement_time = 77.5")
    with transaction.atomic() if outer else nullcontext():
        before = settings_of(vendor)
        with suppress(DatabaseError), sessions.statement_timeout(2000, using="default", by_index=True):
            within = settings_of(vendor)
            with sessions.statement_timeout(1000, using="default"):
                assert settings_of(vendor) not in (before, within)
            assert settings_of(vendor) == within
            if fails:
                Queue.objects.raw("SELECT nonsense")[0]
        assert within != before
        assert settings_of(vendor) == before
    assert settings_of(vendor) == before
    connection.close()


def test_a_limit_ends_without_autocommit(vendor: str) -> None:
    if vendor == "sqlite":
        pytest.skip("SQLite has no limit")
    transaction.set_autocommit(False)
    before = settings_of(vendor)
    with sessions.statement_timeout(2000, using="default", by_index=True):
        assert settings_of(vendor) != before
    assert settings_of(vendor) == before
    connection.close()


@pytest.mark.fault("F79")
def test_a_slow_statement_is_cancelled(vendor: str) -> None:
    if vendor == "sqlite":
        pytest.skip("SQLite has no limit")
    sleep = "SELECT pg_sleep(5)" if vendor == "postgresql" else "SELECT SLEEP(5) FROM DUAL"
    with (
        transaction.atomic(),
        pytest.raises(OperationalError),
        sessions.statement_timeout(100, using="default"),
        connection.cursor() as cur,
    ):
        cur.execute(sleep)
