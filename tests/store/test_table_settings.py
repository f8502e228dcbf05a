"""The settings of tables that the ladder (docs/howto/scale.md) asks for are known to the server."""

from __future__ import annotations

import re

import pytest
from django.db import connection

from tests.support import ROOT, family

pytestmark = pytest.mark.every_database

_NAME = re.compile(r"autovacuum\w+")


def settings_of(table: str) -> set[str]:
    """What is set for a table."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT reloptions FROM pg_class WHERE relname = %s", [table])
        return set(cursor.fetchone()[0] or ())


def test_they_can_be_set(ojs_db: None) -> None:
    if family() != "postgresql":
        pytest.skip("PostgreSQL only")
    page = (ROOT / "docs/howto/scale.md").read_text()
    (statements,) = re.findall(r"```sql\n(ALTER.*?)```", page, re.DOTALL)
    tables = dict(re.findall(r"ALTER TABLE (\w+) SET \((.*?)\);", statements, re.DOTALL))
    assert len(tables) == 2
    before = {table: settings_of(table) for table in tables}
    with connection.cursor() as cursor:
        cursor.execute(statements)
        for table, names in tables.items():
            assert before[table] < settings_of(table)
            cursor.execute(f"ALTER TABLE {table} RESET ({', '.join(_NAME.findall(names))})")
            assert settings_of(table) == before[table]
