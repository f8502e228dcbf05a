"""What a suspended process has locked comes free: its idle transaction is ended by the server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import DatabaseError, connection, connections, transaction
from django.db.backends.signals import connection_created

from django_ojs.models import Queue
from django_ojs.store import bounded
from tests.support import poll


@pytest.fixture
def limited(ojs_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A limit of one second on the connections of this test."""
    monkeypatch.setattr(bounded, "IDLE_LIMIT_S", 1)
    before = list(connection_created.receivers)
    bounded.end_idle_transactions("default")
    connection.close()
    yield
    connection_created.receivers[:] = before
    connection_created.sender_receivers_cache.clear()


def free(name: str) -> bool:
    """Whether another session can lock the row at once."""
    other = connections["default"].copy()
    try:
        with other.cursor() as cur:
            cur.execute("SELECT 1 FROM django_ojs_queue WHERE name = %s FOR UPDATE SKIP LOCKED", [name])
            return cur.fetchone() is not None
    finally:
        other.close()


def test_an_idle_transaction_is_ended(limited: None, vendor: str) -> None:
    if vendor == "sqlite":
        pytest.skip("SQLite has no limit on idle transactions")
    Queue.objects.create(name="held")
    transaction.set_autocommit(False)
    Queue.objects.select_for_update().get(name="held")
    assert not free("held")
    poll(lambda: free("held"), 5)
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
