"""Migrations say what the models say, and go forwards and backwards."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations import (
    AddConstraint,
    AddField,
    AddIndex,
    AlterField,
    AlterModelOptions,
    CreateModel,
    DeleteModel,
    RemoveField,
    RenameField,
    RunPython,
)
from django.db.migrations.loader import MigrationLoader
from django.db.models import IntegerField, UniqueConstraint
from django.db.utils import DatabaseError, IntegrityError

from django_ojs import clock
from django_ojs.models import Job
from tests.process.tools import Start

pytestmark = pytest.mark.every_database

APP = "django_ojs"


def test_nothing_is_missing(ojs_db: None) -> None:
    call_command("makemigrations", "django_ojs", check=True, dry_run=True, stdout=StringIO())


def _steps() -> list[tuple[Any, Any, Any]]:
    """Every migration but the first, with the states before and after it."""
    loader = MigrationLoader(None)
    names = [key for key in loader.graph.forwards_plan(("django_ojs", _newest())) if key[0] == APP]
    states = [loader.project_state([key]) for key in names]
    return [
        (loader.get_migration(*key), before, after)
        for key, before, after in zip(names[1:], states, states[1:], strict=False)
    ]


def _newest() -> str:
    return str(MigrationLoader(None).graph.leaf_nodes(APP)[0][1])


def _harmless(operation: Any, before: Any, after: Any, new: set[str]) -> bool:
    """Whether the statements of the release before go on working."""
    if isinstance(operation, AddField):
        field = operation.field
        return bool(field.null or field.has_db_default())
    if isinstance(operation, AlterField):
        one, other = (
            state.models[APP, operation.model_name_lower].fields[operation.name]
            for state in (before, after)
        )
        same = one.db_parameters(connection) == other.db_parameters(connection)
        same = same and one.null == other.null
        return bool(same and one.has_db_default() == other.has_db_default())
    if isinstance(operation, AddConstraint):
        return operation.model_name_lower in new
    return isinstance(operation, CreateModel | AddIndex | AlterModelOptions | RunPython)


@pytest.mark.fault("F95")
def test_migrations_only_add(ojs_db: None) -> None:
    """Workers of the release before run on while a migration is applied, and after it."""
    steps = _steps()
    assert len(steps) >= 3
    for migration, before, after in steps:
        new = {op.name_lower for op in migration.operations if isinstance(op, CreateModel)}
        for operation in migration.operations:
            assert _harmless(operation, before, after, new), (migration.name, operation.describe())


@pytest.mark.fault("F95")
def test_a_migration_that_takes_away_would_be_noticed(ojs_db: None) -> None:
    state = MigrationLoader(None).project_state()
    number = IntegerField()
    for wrong in (
        RemoveField("job", "args"),
        RenameField("job", "args", "arguments"),
        AddField("job", "later", number),
        DeleteModel("Job"),
        AddConstraint("job", UniqueConstraint(fields=["queue"], name="one")),
    ):
        assert not _harmless(wrong, state, state, set()), wrong.describe()
    assert _harmless(AddField("job", "later", IntegerField(db_default=1)), state, state, set())


@pytest.mark.process
@pytest.mark.fault("F96")
def test_a_schema_of_the_release_before_is_refused(manage: Start, tmp_path: Path) -> None:
    """New workers before the migration: they say what is missing, and claim nothing."""
    migration = _steps()[-1][0]
    url = f"sqlite:///{tmp_path}/old.sqlite3"
    previous = next(name for app, name in migration.dependencies if app == APP)
    made = manage("migrate", APP, previous, "-v0", DATABASE_URL=url)
    assert made.wait(60) == 0, made.stderr
    for process in [manage(command, DATABASE_URL=url) for command in ("runworker", "reap_timeouts")]:
        assert process.wait(60) == 1
        assert f"(missing: {migration.name}): run `manage.py migrate`" in process.stderr
        assert "Traceback" not in process.stderr


def test_backwards_and_forwards(ojs_db: None) -> None:
    try:
        call_command("migrate", "django_ojs", "zero", verbosity=0)
        assert "django_ojs_job" not in connection.introspection.table_names()
    finally:
        call_command("migrate", "django_ojs", verbosity=0)
    assert "django_ojs_job" in connection.introspection.table_names()


@pytest.mark.fault("F95")
def test_a_table_made_by_migrations_has_database_defaults(ojs_db: None) -> None:
    """An older version of the code that does not know a column must still be able to insert."""
    job_id = clock.new_id()
    fields = {f.attname for f in Job._meta.local_fields if f.db_default is not None}
    assert {"attempt", "lease_seq", "timeout_ms", "created_at"} <= fields
    Job.objects.create(id=job_id, state="pending", queue="q", type="t")
    assert Job.objects.get(pk=job_id).timeout_ms == 1_800_000


@pytest.mark.fault("F97")
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
