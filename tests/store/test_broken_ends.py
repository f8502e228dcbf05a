"""The end of a transaction may fail, too, and leave a session that is still in one."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from django.db import OperationalError, connections

from django_ojs.models import Queue
from django_ojs.store.contention import atomically, impatient

pytestmark = [pytest.mark.usefixtures("ojs_db"), pytest.mark.every_database]


def lost(code: int) -> OperationalError:
    """The error of a race that was lost, as any driver reports it."""
    error = OperationalError(code, "a race was lost")
    error.__cause__ = Exception(code, "a race was lost")
    return error


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The session of now, on which autocommit cannot be turned on again."""
    connection: Any = connections["default"]
    connection.ensure_connection()
    session, real = connection.connection, connection._set_autocommit

    def set_autocommit(on: bool) -> None:
        if on and connection.connection is session:
            raise lost(1213)
        real(on)

    monkeypatch.setattr(connection, "_set_autocommit", set_autocommit)
    return connection


def test_what_is_run_again_is_committed(endless: Any) -> None:
    """With autocommit off it would be a part of a transaction that nobody ends."""
    tries = count()

    def work() -> None:
        Queue.objects.create(name="q")
        if not next(tries):
            raise lost(1213)

    atomically("default", work)
    assert next(tries) == 2
    endless.close()
    assert Queue.objects.filter(name="q").exists()


def test_the_next_transaction_is_one(endless: Any) -> None:
    """A caller that knows what a lock timeout means keeps the connection."""

    def work() -> None:
        raise lost(1205)

    with impatient(1), pytest.raises(OperationalError):
        atomically("default", work)
    atomically("default", lambda: Queue.objects.create(name="q"))
    assert not endless.in_atomic_block
    endless.close()
    assert Queue.objects.filter(name="q").exists()


def test_a_caller_who_has_turned_autocommit_off_keeps_his_session() -> None:
    connection: Any = connections["default"]
    connection.set_autocommit(False)
    session = connection.connection
    try:
        with pytest.raises(ZeroDivisionError):
            atomically("default", lambda: 1 / 0)
        assert connection.connection is session
    finally:
        connection.rollback()
        connection.set_autocommit(True)
