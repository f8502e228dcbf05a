"""What ``pgq run`` loads."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job

from benchmarks.harness import config, records
from benchmarks.systems import adapter_of


@asynccontextmanager
async def main() -> AsyncIterator[PgQueuer]:
    connection = await asyncpg.connect(config.pg_dsn(adapter_of(config.SYSTEM).dbname))
    queuer = PgQueuer(AsyncpgDriver(connection))

    @queuer.entrypoint("noop")
    async def noop(job: Job) -> None:
        number, _ = json.loads(job.payload)
        records.note(number)

    try:
        yield queuer
    finally:
        await connection.close()
