"""PostgreSQL as a distributed engine looks to its clients.

The backend has a vendor of its own, as that of CockroachDB has, and therefore no NOTIFY. In addition:

- *Refused*: each transaction that django_ojs commits, and each statement that it runs outside of one,
  is refused once with 40001 by the server before it is let through. Nothing is refused of what a test
  itself commits, or runs.
- *Passed over*: a claim overlooks rows that nobody holds, at random (cockroachdb/cockroach#121917).
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
from pathlib import Path
from typing import Any, ClassVar

import django
import psycopg
from django.db.backends.postgresql import base
from django.db.backends.utils import CursorWrapper
from django.db.models.expressions import Func
from django.db.models.lookups import Lookup

from django_ojs.store.contention import repeating_statements

OURS = str(Path(__file__).resolve().parents[3] / "django_ojs") + "/"
_BETWEEN = (
    str(Path(django.__file__).parent),
    str(Path(psycopg.__file__).parent),
    contextlib.__file__,
    functools.__file__,
    __file__,
)
"""Code that runs the statements of others."""
COMMIT = "COMMIT"
_REFUSE = "DO $$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '40001'; END $$"
_SESSION = ("SET", "SHOW", "LISTEN", "CREATE", "DROP", "ALTER", "TRUNCATE", "ANALYZE", "VACUUM")
_CLAIM = re.compile(r"( ORDER BY (?:(?! ORDER BY ).)* LIMIT %s FOR UPDATE SKIP LOCKED)$", re.DOTALL)
_JOBS = " django_ojs_job j"


class Behaviour:
    """What the engine does beside PostgreSQL; tests switch it."""

    refuses: ClassVar[bool] = True
    overlooks: ClassVar[float] = float(os.environ.get("OJS_TEST_OVERLOOKS") or 0)
    """The part of free rows that a claim overlooks. Processes that a test starts get it so."""
    refused: ClassVar[int] = 0
    """How often something was refused."""


def _is_ours() -> bool:
    """Whether it is code of django_ojs that runs the statement, or commits."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        place = frame.f_code.co_filename
        if not place.startswith(_BETWEEN):
            return bool(place.startswith(OURS))
        frame = frame.f_back
    return False


class Cursor(CursorWrapper):
    """Refuses what is in no transaction, and overlooks rows."""

    db: DatabaseWrapper

    def _execute(self, sql: Any, params: Any, *ignored: Any) -> Any:
        if not self.db.in_atomic_block and _is_ours() and self.db.may_refuse(str(sql)):
            self.db.refuse_once(str(sql))
        if Behaviour.overlooks and _JOBS in str(sql):
            sql = _CLAIM.sub(rf" AND random() >= {Behaviour.overlooks}\1", str(sql))
        return super()._execute(sql, params, *ignored)  # type: ignore[misc]


class DatabaseWrapper(base.DatabaseWrapper):
    """A backend that is built on Django's for PostgreSQL."""

    vendor = "cockroachdb"
    display_name = "PostgreSQL as a distributed engine"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._let_through = {True: "", False: ""}
        """What was refused last, and is let through next: of commits, and of statements."""

    def make_cursor(self, cursor: Any) -> Cursor:
        """A cursor that refuses."""
        return Cursor(cursor, self)

    def may_refuse(self, statement: str) -> bool:
        """Whether to refuse a statement outside a transaction: one that writes, and one that reads in a
        thread, a request or a command of ours. Elsewhere to read again is left to the caller.
        """
        if statement.lstrip().startswith(_SESSION):
            return False
        repeated = repeating_statements.__qualname__
        wrappers = (getattr(one, "__qualname__", "") for one in self.execute_wrappers)
        within = any(name.startswith(repeated) for name in wrappers)
        return within or not statement.lstrip().startswith("SELECT")

    def refuse_once(self, what: str) -> None:
        """Refuse ``what``, unless it was refused a moment ago."""
        if not Behaviour.refuses or self.queries_logged:
            # Of a test that counts statements, none is refused.
            return
        commits = what == COMMIT
        if self._let_through[commits] == what:
            self._let_through[commits] = ""
            return
        self._let_through[commits] = what
        Behaviour.refused += 1
        with self.wrap_database_errors, self.connection.cursor() as cursor:
            cursor.execute(_REFUSE)

    def _commit(self) -> None:
        if _is_ours():
            self.refuse_once(COMMIT)
        super()._commit()  # type: ignore[misc]


def _register() -> None:
    """As django-cockroachdb does: expressions are written as for PostgreSQL."""
    waiting: list[type[Any]] = [Func, Lookup]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        own = kind.__dict__.get("as_postgresql")
        if own is not None and "as_cockroachdb" not in kind.__dict__:
            kind.as_cockroachdb = own


_register()
