"""Migrations say what the models say, and go forwards and backwards."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.utils import DatabaseError, IntegrityError

from django_ojs import clock
from django_ojs.models import Job


def test_nothing_is_missing(ojs_db: None) -> None:
    call_command("makemigrations", "django_ojs", check=True, dry_run=True, stdout=StringIO())


def test_backwards_and_forwards(ojs_db: None) -> None:
    try:
        call_command("migrate", "django_ojs", "zero", verbosity=0)
        assert "django_ojs_job" not in connection.introspection.table_names()
    finally:
        call_command("migrate", "django_ojs", verbosity=0)
    assert "django_ojs_job" in connection.introspection.table_names()


def test_a_table_made_by_migrations_has_database_defaults(ojs_db: None) -> None:
    """An older version of the code that does not know a column must still be able to insert."""
    job_id = clock.new_id()
    fields = {f.attname for f in Job._meta.local_fields if f.db_default is not None}  # type: ignore[attr-defined]
    assert {"attempt", "lease_seq", "timeout_ms", "created_at"} <= fields
    Job.objects.create(id=job_id, state="pending", queue="q", type="t")
    assert Job.objects.get(pk=job_id).timeout_ms == 1_800_000


def test_beats_touch_no_index(ojs_db: None) -> None:
    """PostgreSQL keeps a write from the indexes when none has a column of it and its page has room."""
    if connection.vendor != "postgresql":
        pytest.skip("PostgreSQL only")
    with connection.cursor() as cursor:
        cursor.execute("SELECT reloptions FROM pg_class WHERE relname = %s", [Job._meta.db_table])
        assert cursor.fetchone()[0] == ["fillfactor=70"]
        cursor.execute("SELECT indexdef FROM pg_indexes WHERE tablename = %s", [Job._meta.db_table])
        definitions = " ".join(row[0] for row in cursor.fetchall())
    assert "deadline_at" in definitions
    for column in ("heartbeat_", "lease_expires_at", "lease_visibility_ms", "progress", "checkpoint"):
        assert column not in definitions


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "lost"},
        {"state": "active"},
        {"state": "pending", "lease_id": clock.new_lease()},
        {"state": "active", "lease_id": clock.new_lease()},
    ],
)
def test_constraints_refuse_what_cannot_be(ojs_db: None, wrong: dict[str, Any]) -> None:
    with pytest.raises((IntegrityError, DatabaseError)):
        Job.objects.create(id=clock.new_id(), queue="q", type="t", **wrong)
    assert not Job.objects.exists()
