"""The PostgreSQL server behind a system, from outside: processor time, statements, sizes of tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.harness.adapter import Adapter
from benchmarks.harness.processes import below, parent_of, spent_seconds

_SIZES = """
    SELECT relname, pg_table_size(relid), pg_indexes_size(relid), n_live_tup, n_dead_tup, n_tup_del
    FROM pg_stat_user_tables ORDER BY relname
"""
_LARGE = 1 << 20


class Server:
    """The server of an adapter's database."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._pid = self._postmaster()
        self._counts = bool(
            adapter.sql("SELECT 1 FROM pg_settings WHERE name = 'pg_stat_statements.max'")
        )
        if self._counts:
            adapter.sql("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")

    def _postmaster(self) -> int | None:
        pid = self._adapter.scalar("SELECT pg_backend_pid()")
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            return None  # it runs elsewhere, or where its processes cannot be seen
        return parent_of(pid) if name.startswith("postgres") else None

    @property
    def is_here(self) -> bool:
        """Whether its processes can be seen: it runs on this machine."""
        return self._pid is not None

    def cpu_seconds(self) -> float:
        """Processor time of all processes of the server so far; 0 if they cannot be seen."""
        return 0.0 if self._pid is None else spent_seconds([self._pid, *below(self._pid)])

    def statements(self) -> int:
        """Statements that have ended so far, by ``pg_stat_statements`` where it is loaded; otherwise
        transactions: outside of a transaction each statement is one.
        """
        counter = "SELECT sum(calls) FROM pg_stat_statements"
        if not self._counts:
            counter = "SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database"
        return self._adapter.scalar(counter)

    def deleted(self, table: str) -> int:
        """Rows of a table that were deleted so far, as of a second ago."""
        return self._adapter.scalar(
            "SELECT n_tup_del FROM pg_stat_user_tables WHERE relname = %s", (table,)
        )

    def sizes(self) -> dict[str, dict[str, int]]:
        """Of each table: bytes of its rows and of its indexes, rows that live, that are dead, that
        were deleted. By the statistics: nothing is counted.
        """
        names = ("rows", "indexes", "live", "dead", "deleted")
        return {
            name: dict(zip(names, map(int, figures), strict=True))
            for name, *figures in self._adapter.sql(_SIZES)
        }


class Sizes:
    """Sizes of the tables in the course of a measurement."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.samples: list[tuple[float, dict[str, dict[str, int]]]] = []

    def take(self, at: float) -> None:
        """One sample."""
        self.samples.append((at, self._server.sizes()))

    def bytes(self, begin: float, end: float) -> int:
        """The most that all tables with their indexes took in a span of time."""
        return max(
            sum(table["rows"] + table["indexes"] for table in tables.values())
            for at, tables in self.samples
            if begin <= at <= end
        )

    def columns(self) -> dict[str, Any]:
        """For the JSON: ``at`` in seconds, and a list of each figure of each table that was ever
        large.
        """
        large = {
            name
            for _, tables in self.samples
            for name, table in tables.items()
            if table["rows"] + table["indexes"] > _LARGE
        }
        return {
            "at": [round(at, 1) for at, _ in self.samples],
            **{
                name: {
                    figure: [tables[name][figure] for _, tables in self.samples]
                    for figure in self.samples[0][1][name]
                }
                for name in sorted(large)
            },
        }


class Processors:
    """Processor time of a system: its workers with all processes below them, and its server.

    ``known`` is false where the server's cannot be seen, or is not looked for.
    """

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._server = Server(adapter) if adapter.database == "pg" else None
        self.known = adapter.database == "sqlite" or bool(self._server and self._server.is_here)

    def spent(self) -> float:
        """Seconds so far."""
        own = spent_seconds(self._adapter.workers.pids())
        return own + (self._server.cpu_seconds() if self._server else 0.0)

    def per_million(self, seconds: float, jobs: int) -> float | None:
        """Seconds for a million jobs, if they are known."""
        return 1e6 * seconds / jobs if self.known and jobs else None
