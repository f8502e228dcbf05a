"""A migration of ours that adds an index, beside a writer and a transaction that stays open."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DatabaseError, NotSupportedError, connection, connections, transaction
from django.db.migrations import AddIndex, Migration
from django.db.migrations.loader import MigrationLoader
from django.db.models import Index, Q

from django_ojs.models import Job
from django_ojs.models.indexes import HotIndex
from django_ojs.store.migration_operations import AddIndexOnline
from tests.services.support import make
from tests.support import family, poll

pytestmark = [pytest.mark.usefixtures("ojs_db"), pytest.mark.every_database]

TABLE = Job._meta.db_table
NAME = "ojs_job_of_test"
PLAIN = Index(fields=["max_attempts", "id"], name=NAME)
HOT = HotIndex(fields=["max_attempts"], within=["state"], only=Q(state="pending"), name=NAME)
_WAITING = {
    "postgresql": "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
    " AND wait_event_type = 'Lock' AND query ~ '^(CREATE|DROP) INDEX'",
    "mysql": "SELECT 1 FROM information_schema.processlist WHERE db = DATABASE()"
    " AND state = 'Waiting for table metadata lock'",
}
_IMPATIENT = {
    "postgresql": "SET lock_timeout = '3s'",
    "mysql": "SET SESSION lock_wait_timeout = 3, SESSION innodb_lock_wait_timeout = 3",
}


def migration(operation: Any, *, atomic: bool = False) -> Migration:
    """The next migration of ours, with this operation."""

    class Next(Migration):
        operations = [operation]

    Next.atomic = atomic
    return Next("next", "django_ojs")


def apply(step: Migration, *, backwards: bool = False) -> None:
    """Run it as ``migrate`` does."""
    state = MigrationLoader(None).project_state()
    with connection.schema_editor(atomic=step.atomic) as editor:
        if backwards:
            step.unapply(state, editor)
        else:
            step.apply(state, editor)


def there() -> bool:
    """Whether the index is."""
    with connection.cursor() as cursor:
        return NAME in connection.introspection.get_constraints(cursor, TABLE)


@pytest.fixture(autouse=True)
def _removed(ojs_db: None) -> Iterator[None]:
    yield
    if there():
        apply(migration(AddIndex("job", PLAIN)), backwards=True)


class Beside(threading.Thread):
    """A migration in a thread of its own."""

    def __init__(self, step: Migration, *, backwards: bool = False) -> None:
        super().__init__()
        self._step, self._backwards = step, backwards
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        """Keep the error for the test."""
        try:
            apply(self._step, backwards=self._backwards)
        except Exception as error:
            self.error = error
        finally:
            connections["default"].close()

    def ended(self) -> None:
        """Wait, and fail with its error."""
        self.join(30)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error


class OpenTransaction(threading.Thread):
    """Has written to a row, and does not commit until told to."""

    def __init__(self, job: Any) -> None:
        super().__init__()
        self._job, self.wrote, self._end = job, threading.Event(), threading.Event()
        self.start()
        assert self.wrote.wait(15)

    def run(self) -> None:
        """Hold the row."""
        try:
            with transaction.atomic():
                Job.objects.filter(pk=self._job.id).update(progress_message="open")
                self.wrote.set()
                self._end.wait(60)
        finally:
            connections["default"].close()

    def commit(self) -> None:
        """Let go."""
        self._end.set()
        self.join(15)


def _write(job: Any) -> None:
    """A writer that waits three seconds for a lock, and no longer."""
    with connection.cursor() as cursor:
        cursor.execute(_IMPATIENT[family()])
    Job.objects.filter(pk=job.id).update(progress_message="written")


def _waits() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(_WAITING[family()])
        return cursor.fetchone() is not None


@pytest.mark.slow
@pytest.mark.parametrize("index", [PLAIN, HOT], ids=["plain", "hot"])
def test_forwards_and_backwards(index: Index) -> None:
    step = migration(AddIndexOnline("job", index))
    apply(step)
    assert there()
    apply(step, backwards=True)
    assert not there()


def test_it_needs_a_migration_without_a_transaction() -> None:
    if not connection.features.can_rollback_ddl:
        pytest.skip("migrations have no transaction on this database")
    with pytest.raises(NotSupportedError, match="atomic = False"):
        apply(migration(AddIndexOnline("job", PLAIN), atomic=True))
    assert not there()


@pytest.mark.slow
def test_writers_go_on(vendor: str) -> None:
    if vendor == "sqlite":
        pytest.skip("one writer at a time")
    held, free = make(2)
    for backwards in (False, True):
        open_one = OpenTransaction(held)
        beside = Beside(migration(AddIndexOnline("job", PLAIN)), backwards=backwards)
        poll(_waits, 15)
        for _ in range(20):
            _write(free)
        open_one.commit()
        beside.ended()
        assert there() is not backwards


@pytest.mark.slow
def test_they_would_not_beside_djangos_own(vendor: str) -> None:
    if vendor == "sqlite":
        pytest.skip("one writer at a time")
    held, free = make(2)
    open_one = OpenTransaction(held)
    beside = Beside(migration(AddIndex("job", PLAIN)))
    poll(_waits, 15)
    with pytest.raises(DatabaseError, match="timeout"):
        _write(free)
    open_one.commit()
    beside.ended()


def test_an_unfinished_index_is_made_again(vendor: str) -> None:
    if vendor != "postgresql":
        pytest.skip("nothing is left behind")
    (held,) = make()
    with connection.cursor() as cursor:
        open_one = OpenTransaction(held)
        cursor.execute("SET lock_timeout = '100ms'")
        with pytest.raises(DatabaseError, match="lock timeout"):
            cursor.execute(f"CREATE INDEX CONCURRENTLY {NAME} ON {TABLE} (id)")
        open_one.commit()
        cursor.execute("RESET lock_timeout")
        apply(migration(AddIndexOnline("job", PLAIN)))
        cursor.execute("SELECT indisvalid FROM pg_index WHERE indexrelid = %s::regclass", [NAME])
        assert cursor.fetchone() == (True,)
