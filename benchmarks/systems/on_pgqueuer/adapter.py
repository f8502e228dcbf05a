"""PgQueuer on PostgreSQL. Its entry points are coroutines on the worker's event loop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.harness import adapter, config

_PGQ = str(Path(sys.executable).with_name("pgq"))


class Adapter(adapter.Adapter):
    """``tuned`` takes a thousand jobs at a time."""

    _queries: Any = None

    def install(self) -> None:
        parts = urlsplit(config.server("pg"))
        environment = os.environ | {
            "PGHOST": parts.hostname or "127.0.0.1",
            "PGPORT": str(parts.port or 5432),
            "PGUSER": parts.username or "",
            "PGPASSWORD": parts.password or "",
            "PGDATABASE": self.dbname,
        }
        subprocess.run([_PGQ, "install"], env=environment, check=True, stdout=subprocess.DEVNULL)

    def queries(self) -> Any:
        """Its synchronous producer."""
        if self._queries is None:
            import psycopg
            from pgqueuer.db import SyncPsycopgDriver
            from pgqueuer.queries import SyncQueries

            connection = psycopg.connect(config.pg_dsn(self.dbname), autocommit=True)
            self._queries = SyncQueries(SyncPsycopgDriver(connection))
        return self._queries

    def reset(self) -> None:
        self.sql("TRUNCATE pgqueuer, pgqueuer_log")

    def enqueue(self, number: int) -> None:
        self.queries().enqueue("noop", json.dumps([number, "two"]).encode())

    def enqueue_batch(self, numbers: range) -> None:
        payloads = [json.dumps([number, "two"]).encode() for number in numbers]
        self.queries().enqueue(["noop"] * len(payloads), payloads, [0] * len(payloads))

    def worker_commands(self, concurrency: int) -> list[list[str]]:
        command = [_PGQ, "run", f"{self.package}.tasks:main"]
        if config.TUNED:
            command += ["--batch-size", "1000", "--log-level", "WARNING"]
        return [command] * concurrency

    def remaining(self) -> int:
        return self.scalar("SELECT count(*) FROM pgqueuer")
