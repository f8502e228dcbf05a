"""Migrations say what the models say, and go forwards and backwards."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

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
    Migration,
    RemoveField,
    RenameField,
    RunPython,
    RunSQL,
)
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ProjectState
from django.db.models import Index, IntegerField, UniqueConstraint
from django.db.utils import DatabaseError, IntegrityError
from django.test import override_settings

from django_ojs import clock
from django_ojs.models import Job
from django_ojs.store.migration_operations import AddIndexOnline
from tests import next_release
from tests.process.tools import Start

pytestmark = pytest.mark.every_database

APP = "django_ojs"
NEXT = ["0002_next_columns", "0003_next_indexes"]


def test_nothing_is_missing(ojs_db: None) -> None:
    call_command("makemigrations", "django_ojs", check=True, dry_run=True, stdout=StringIO())


class Step(NamedTuple):
    """A migration with the states before and after it."""

    migration: Migration
    before: ProjectState
    after: ProjectState


def _steps(modules: dict[str, str] | None = None) -> list[Step]:
    """Every migration but the first."""
    with override_settings(MIGRATION_MODULES=modules or {}):
        loader = MigrationLoader(None)
        names = [key for key in loader.graph.forwards_plan(_newest(loader)) if key[0] == APP]
        states = [loader.project_state([key]) for key in names]
    return [
        Step(loader.get_migration(*key), before, after)
        for key, before, after in zip(names[1:], states, states[1:], strict=False)
    ]


def _newest(loader: MigrationLoader) -> tuple[str, str]:
    app, name = loader.graph.leaf_nodes(APP)[0]
    return str(app), str(name)


def _harmful(step: Step) -> list[str]:
    """The operations after which, or while which, the release before does not go on working."""
    operations = step.migration.operations
    new = {op.name_lower for op in operations if isinstance(op, CreateModel)}
    return [op.describe() for op in operations if not _harmless(op, step, new)]


def _harmless(operation: Any, step: Step, new: set[str]) -> bool:
    if getattr(operation, "model_name_lower", None) in new:
        return isinstance(operation, AddField | AddIndex | AddConstraint)
    if isinstance(operation, AddIndex):
        # Any other way locks a table that is in use.
        return isinstance(operation, AddIndexOnline) and not step.migration.atomic
    if isinstance(operation, AddField):
        field = operation.field
        return bool(field.null or field.has_db_default()) and not _indexed(field)
    if isinstance(operation, AlterField):
        one, other = (
            state.models[APP, operation.model_name_lower].fields[operation.name]
            for state in (step.before, step.after)
        )
        same = one.db_parameters(connection) == other.db_parameters(connection)
        same = same and one.null == other.null and _indexed(one) == _indexed(other)
        return bool(same and one.has_db_default() == other.has_db_default())
    return isinstance(operation, CreateModel | AlterModelOptions | RunPython)


def _indexed(field: Any) -> bool:
    return bool(field.db_index or field.unique)


def _only(*operations: Any, atomic: bool = True) -> Step:
    """A migration with these operations and nothing else."""
    made = type("Migration", (Migration,), {"operations": operations, "atomic": atomic})
    before = MigrationLoader(None).project_state()
    return Step(made("next", APP), before, before)


@pytest.mark.fault("F95")
def test_migrations_only_add(ojs_db: None) -> None:
    """Workers of the release before run on while a migration is applied, and after it: nothing is
    taken away, and what is added to a table in use is added without locking it.
    """
    for step in _steps():
        assert _harmful(step) == [], step.migration.name
    following = _steps(next_release.MODULES)
    assert [step.migration.name for step in following[-2:]] == NEXT
    for step in following:
        assert _harmful(step) == [], step.migration.name


@pytest.mark.fault("F95")
@pytest.mark.parametrize(
    "wrong",
    [
        RemoveField("job", "args"),
        RenameField("job", "args", "arguments"),
        AddField("job", "later", IntegerField()),
        AddField("job", "later", IntegerField(null=True, db_index=True)),
        AddField("job", "later", IntegerField(null=True, unique=True)),
        DeleteModel("Job"),
        AddConstraint("job", UniqueConstraint(fields=["queue"], name="one")),
        AddIndex("job", Index(fields=["queue"], name="one")),
        AddIndexOnline("job", Index(fields=["queue"], name="one")),
        RunSQL("CREATE INDEX one ON django_ojs_job (queue)"),
    ],
    ids=lambda operation: type(operation).__name__,
)
def test_a_migration_that_does_harm_would_be_noticed(ojs_db: None, wrong: Any) -> None:
    assert _harmful(_only(wrong)) == [wrong.describe()]


@pytest.mark.fault("F95")
def test_what_may_be_added(ojs_db: None) -> None:
    index = Index(fields=["queue"], name="one")
    assert _harmful(_only(AddField("job", "later", IntegerField(db_default=1)))) == []
    assert _harmful(_only(AddIndexOnline("job", index), atomic=False)) == []
    # A table that nobody uses yet.
    later = CreateModel("Later", [("queue", IntegerField())])
    assert _harmful(_only(later, AddIndex("later", index))) == []


@pytest.mark.process
@pytest.mark.fault("F96")
def test_a_schema_of_the_release_before_is_refused(manage: Start, tmp_path: Path) -> None:
    """New workers before the migration: they say what is missing, and claim nothing."""
    url = f"sqlite:///{tmp_path}/old.sqlite3"
    made = manage("migrate", APP, "-v0", DATABASE_URL=url)
    assert made.wait(60) == 0, made.stderr
    new = {"DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "tests.next_release.settings"}
    for process in [manage(command, **new) for command in ("runworker", "reap_timeouts")]:
        assert process.wait(60) == 1
        assert f"(missing: {', '.join(NEXT)}): run `manage.py migrate`" in process.stderr
        assert "Traceback" not in process.stderr


@pytest.mark.slow
@pytest.mark.fault("F95")
def test_the_next_release_and_back(ojs_db: None) -> None:
    with override_settings(MIGRATION_MODULES=next_release.MODULES):
        try:
            call_command("migrate", APP, verbosity=0)
            assert "job_next" in _constraints()
            Job.objects.create(id=clock.new_id(), state="pending", queue="q", type="t")
        finally:
            Job.objects.all().delete()
            call_command("migrate", APP, "0001", verbosity=0)
    assert "job_next" not in _constraints()


def _constraints() -> dict[str, Any]:
    with connection.cursor() as cursor:
        return dict(connection.introspection.get_constraints(cursor, Job._meta.db_table))


@pytest.mark.slow
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
