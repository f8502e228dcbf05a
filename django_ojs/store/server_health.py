"""What the database server says of itself: connections, long transactions, dead rows, vacuuming."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from django.db import DatabaseError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

_PREFIX = "django_ojs\\_%"


class Connections(NamedTuple):
    """Open connections to the server, and how many an application may open."""

    used: int
    most: int


class OldTransaction(NamedTuple):
    """The oldest open transaction that keeps dead rows from being removed; ``who`` says whose it is."""

    seconds: float
    who: str


class DeadRows(NamedTuple):
    """Dead rows of a table, or of the whole server (MariaDB), that are still stored."""

    table: str
    dead: int
    live: int | None


class ServerHealth(NamedTuple):
    """``None`` or empty where the database has no such thing, or does not show it to this user.

    ``autovacuum`` is the server's setting, ``not_vacuumed`` names the tables for which it is off.
    ``wal_bytes`` is the size of SQLite's write-ahead log.
    """

    connections: Connections | None = None
    oldest: OldTransaction | None = None
    dead: Sequence[DeadRows] = ()
    autovacuum: bool | None = None
    not_vacuumed: Sequence[str] = ()
    wal_bytes: int | None = None


def read(using: str) -> ServerHealth:
    """Ask the server, in at most three statements that read no table of ours."""
    connection = connections[using]
    ask = _VENDORS.get(connection.vendor)
    return ServerHealth() if ask is None else ask(connection)


def _postgresql(connection: BaseDatabaseWrapper) -> ServerHealth:
    ((used, most, seconds, who),) = _rows(
        connection,
        "SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),"
        " current_setting('max_connections')::int"
        " - current_setting('superuser_reserved_connections')::int, seconds, who"
        " FROM (VALUES (1)) AS one LEFT JOIN ("
        "SELECT extract(epoch FROM clock_timestamp() - since)::float AS seconds, who FROM ("
        "SELECT xact_start AS since, concat_ws(', ', 'process ' || pid, nullif(application_name, ''),"
        " usename, state) AS who FROM pg_stat_activity"
        " WHERE backend_xmin IS NOT NULL AND xact_start IS NOT NULL AND pid <> pg_backend_pid()"
        " UNION ALL SELECT prepared, 'prepared transaction ' || gid FROM pg_prepared_xacts"
        ") AS open ORDER BY since LIMIT 1) AS oldest ON true",
    )
    tables = _rows(
        connection,
        "SELECT s.relname, s.n_dead_tup, s.n_live_tup, current_setting('autovacuum')::bool"
        " AND current_setting('track_counts')::bool, coalesce((SELECT option_value::bool"
        " FROM pg_options_to_table(c.reloptions) WHERE option_name = 'autovacuum_enabled'), true)"
        " FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid"
        " WHERE s.relname LIKE %s AND pg_table_is_visible(s.relid) ORDER BY s.relname",
        [_PREFIX],
    )
    return ServerHealth(
        connections=Connections(used, most),
        oldest=None if seconds is None else OldTransaction(seconds, who),
        dead=[DeadRows(name, dead, live) for name, dead, live, _, _ in tables],
        autovacuum=all(row[3] for row in tables),
        not_vacuumed=[row[0] for row in tables if not row[4]],
    )


def _mysql(connection: BaseDatabaseWrapper) -> ServerHealth:
    ((used, most),) = _rows(
        connection,
        "SELECT (SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS"
        " WHERE VARIABLE_NAME = 'THREADS_CONNECTED'), @@max_connections"
        if getattr(connection, "mysql_is_mariadb", False)
        else "SELECT (SELECT VARIABLE_VALUE FROM performance_schema.global_status"
        " WHERE VARIABLE_NAME = 'Threads_connected'), @@max_connections",
    )
    oldest, dead = None, []
    # Both ask for the PROCESS privilege.
    with suppress(DatabaseError), transaction.atomic(using=connection.alias, savepoint=True):
        open_ = _rows(
            connection,
            "SELECT TIMESTAMPDIFF(MICROSECOND, trx_started, SYSDATE(6)) / 1000000e0,"
            " CONCAT('connection ', trx_mysql_thread_id) FROM information_schema.INNODB_TRX"
            " WHERE trx_mysql_thread_id <> CONNECTION_ID() ORDER BY trx_started LIMIT 1",
        )
        oldest = OldTransaction(*open_[0]) if open_ else None
        history = _rows(
            connection,
            "SELECT COUNT FROM information_schema.INNODB_METRICS WHERE NAME = 'trx_rseg_history_len'",
        )
        dead = [DeadRows("*", int(count), None) for (count,) in history]
    return ServerHealth(connections=Connections(int(used), int(most)), oldest=oldest, dead=dead)


def _sqlite(connection: BaseDatabaseWrapper) -> ServerHealth:
    files = [file for _, name, file in _rows(connection, "PRAGMA database_list") if name == "main"]
    log = Path(f"{files[0]}-wal") if files and files[0] else None
    return ServerHealth(wal_bytes=log.stat().st_size if log is not None and log.exists() else None)


_VENDORS: Mapping[str, Callable[[BaseDatabaseWrapper], ServerHealth]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
    "sqlite": _sqlite,
}


def _rows(
    connection: BaseDatabaseWrapper, statement: str, parameters: Sequence[Any] | None = None
) -> list[tuple[Any, ...]]:
    with connection.cursor() as cur:
        cur.execute(statement, parameters)
        return list(cur.fetchall())
