"""Sessions with a driver alone: for the judge, and for whoever holds rows and tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID


class Session:
    """A session in autocommit. Parameters are ``%s`` on every database."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.database = "pg" if parts.scheme.startswith("postgres") else "mariadb"
        name = unquote(parts.path[1:])
        self._connection: Any
        if parts.scheme == "sqlite":
            self.database = "sqlite"
            self._connection = sqlite3.connect(
                name, timeout=30, isolation_level=None, check_same_thread=False
            )
        elif self.database == "pg":
            import psycopg

            self._connection = psycopg.connect(url, autocommit=True)
        else:
            import pymysql

            self._connection = pymysql.connect(
                host=parts.hostname or "",
                port=parts.port or 3306,
                user=parts.username,
                database=name,
                charset="utf8mb4",
                autocommit=True,
            )

    def run(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Execute a statement; its rows, if it has any."""
        cursor = self._connection.cursor()
        try:
            if self.database == "sqlite":
                cursor.execute(statement.replace("%s", "?"), parameters)
            else:
                cursor.execute(statement, parameters or None)
            return list(cursor.fetchall()) if cursor.description else []
        finally:
            cursor.close()

    def id(self, job: str) -> str:
        """The id of a job as a parameter."""
        return UUID(job).hex if self.database == "sqlite" else job

    def close(self) -> None:
        """End it; what it held is free."""
        self._connection.close()


@contextmanager
def session(url: str) -> Iterator[Session]:
    """A session for the block."""
    made = Session(url)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def holding(url: str, statement: str, *parameters: object) -> Iterator[Session]:
    """A transaction that has run a statement, and is rolled back at the end of the block."""
    with session(url) as made:
        made.run("BEGIN")
        made.run(statement, *parameters)
        try:
            yield made
        finally:
            made.run("ROLLBACK")


def uuid(value: object) -> str:
    """A column of ids as text with hyphens, whatever the database returns."""
    return str(UUID(str(value)))
