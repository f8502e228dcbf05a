"""Operations for our own migrations that leave the job table usable while they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import DatabaseError, NotSupportedError
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.models import AddIndex
from django.db.models import Index, Model

from django_ojs import clock
from django_ojs.engines import EngineFamily, family_of
from django_ojs.store.contention import is_contention

_IN_PLACE = "ALGORITHM=INPLACE{0} LOCK=NONE"
_LOCK_WAIT_S = 1
"""How long a statement may wait for the table, and hold up those that come after it, on MariaDB."""
_TRIES = 60


class AddIndexOnline(AddIndex):
    """``AddIndex`` that blocks no reader and no writer of the table, in either direction.

    ``CONCURRENTLY`` on PostgreSQL, in place and without a lock on MariaDB and MySQL, plainly on
    SQLite. On PostgreSQL the index that an interrupted run has left unfinished is removed first. On
    MariaDB the table is asked for a second at a time, up to a minute: while it is waited for, every
    later statement on it waits too.

    The migration needs ``atomic = False``; raises :class:`NotSupportedError` otherwise.
    """

    atomic = False

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: Any, to_state: Any
    ) -> None:
        """Create the index online."""
        self._change(app_label, schema_editor, to_state, _add)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: Any, to_state: Any
    ) -> None:
        """Drop the index online."""
        self._change(app_label, schema_editor, from_state, _remove)

    def _change(
        self,
        app_label: str,
        editor: BaseDatabaseSchemaEditor,
        state: Any,
        change: Callable[[type[Model], Index, Any], None],
    ) -> None:
        connection = editor.connection
        if connection.in_atomic_block:
            raise NotSupportedError(f"AddIndexOnline ({self.index.name}): set atomic = False")
        model = state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(connection.alias, model):
            change(model, self.index, editor)


def _add(model: type[Model], index: Index, editor: Any) -> None:
    family = family_of(editor.connection)
    if family is EngineFamily.POSTGRESQL:
        _remove_unfinished(index, editor)
        editor.add_index(model, index, concurrently=True)
    elif family is EngineFamily.MYSQL:
        _patiently(editor, f"{index.create_sql(model, editor)} {_IN_PLACE.format('')}")
    else:
        editor.add_index(model, index)


def _remove(model: type[Model], index: Index, editor: Any) -> None:
    family, quote = family_of(editor.connection), editor.quote_name
    if family is EngineFamily.POSTGRESQL:
        editor.remove_index(model, index, concurrently=True)
    elif family is EngineFamily.MYSQL:
        table, name = quote(model._meta.db_table), quote(index.name)
        _patiently(editor, f"ALTER TABLE {table} DROP INDEX {name}, {_IN_PLACE.format(',')}")
    else:
        editor.remove_index(model, index)


def _remove_unfinished(index: Index, editor: Any) -> None:
    with editor.connection.cursor() as cur:
        cur.execute(
            "SELECT 1 FROM pg_index WHERE indexrelid = to_regclass(%s) AND NOT indisvalid",
            [editor.quote_name(index.name)],
        )
        unfinished = cur.fetchone()
    if unfinished:
        editor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {editor.quote_name(index.name)}")


def _patiently(editor: Any, statement: str) -> None:
    """Run a statement with a short wait for the table, again and again."""
    with editor.connection.cursor() as cur:
        cur.execute("SET @ojs_wait = @@SESSION.lock_wait_timeout")
        cur.execute("SET SESSION lock_wait_timeout = %s", [_LOCK_WAIT_S])
        try:
            for tries_left in range(_TRIES - 1, -1, -1):
                try:
                    editor.execute(statement, params=None)
                    return
                except DatabaseError as error:
                    if not tries_left or not is_contention(error):
                        raise
                # Let the statements that queued behind it run.
                clock.pause(_LOCK_WAIT_S * (0.5 + clock.jitter()))
        finally:
            cur.execute("SET SESSION lock_wait_timeout = @ojs_wait")
