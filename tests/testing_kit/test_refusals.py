"""A worker says in a sentence that it cannot run in a test."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command
from django.db import connections


def test_a_worker_inside_a_transaction(in_test_case: None) -> None:
    with pytest.raises(CommandError, match=r"cannot run inside atomic\(\).*django_ojs.testing.drain"):
        call_command("runworker", drain=True)


def test_a_worker_on_a_database_in_memory(ojs_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = connections["default"]
    if connection.vendor != "sqlite":
        pytest.skip("SQLite has databases in memory")
    monkeypatch.setitem(
        connection.settings_dict, "NAME", "file:memorydb_default?mode=memory&cache=shared"
    )
    with pytest.raises(CommandError, match=r"is SQLite in memory.*django_ojs.testing.drain"):
        call_command("runworker", drain=True)
