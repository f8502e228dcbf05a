"""The conditions of partial indexes, in the words in which claims name them: SQLite proves no more."""

from __future__ import annotations

import pytest
from django.db import connection


@pytest.mark.skipif(connection.vendor != "sqlite", reason="about SQLite")
@pytest.mark.parametrize("name", ["ojs_job_claim", "ojs_job_claim_any", "ojs_job_claim_type"])
def test_the_claim_indexes_say_not_held(ojs_db: None, name: str) -> None:
    """Whatever version of Django has made them."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT sql FROM sqlite_master WHERE name = %s", [name])
        (sql,) = cursor.fetchone()
    assert sql.endswith("""WHERE (NOT "held" AND "state" = 'available')""")
