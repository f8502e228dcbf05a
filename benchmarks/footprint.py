"""What a job leaves on the disk and in the log of PostgreSQL, and what idle workers ask of the server.

::

    python -m benchmarks.footprint --database-url postgres://user@127.0.0.1:5432/any

makes a PostgreSQL database of its own (the name in the address is not used), enqueues, claims and
completes jobs with two small arguments in batches as a worker does, looks at the empty front as an
idle worker does, prunes, and drops it. ``docs/performance.md`` has the figures, and
``docs/howto/scale.md`` what they come to in a large installation. The server must be on this machine:
its processor time is read from ``/proc``.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import admin_pages

JOBS = 50_000
AT_ONCE = 50
LOOKS = 20_000
BEATS = 2_000


def _row(statement: str) -> tuple[Any, ...]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement)
        return tuple(cursor.fetchone())


def sizes() -> dict[str, int]:
    """Bytes of the tables of jobs and attempts, with their indexes apart."""
    return {
        name: int(
            _row(f"SELECT pg_table_size('django_ojs_{table}'), pg_indexes_size('django_ojs_{table}')")[
                place
            ]
        )
        for table in ("job", "attempt")
        for place, name in enumerate((f"rows of {table}", f"indexes of {table}"))
    }


@contextmanager
def written(what: str) -> Iterator[None]:
    """Print the bytes of write-ahead log per job that the block writes."""
    (before,) = _row("SELECT pg_current_wal_insert_lsn()")
    yield
    (size,) = _row(f"SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '{before}')")
    print(f"log, {what}: {int(size) / JOBS:,.0f} bytes a job", flush=True)


def _server_ticks() -> int:
    from django.db import connection

    pid = connection.connection.info.backend_pid
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def server_us(work: Callable[[], object], times: int) -> float:
    """Microseconds of processor time that the server takes for one call of ``work``."""
    work()
    before = _server_ticks()
    for _ in range(times):
        work()
    return (_server_ticks() - before) / os.sysconf("SC_CLK_TCK") * 1e6 / times


def _lease(job: Any) -> Any:
    from django_ojs.domain.leases import Lease

    return Lease(job.id, job.lease_id)


def measure() -> None:
    """Live through all states, and print what that came to."""
    from django.db import connection

    from django_ojs import api, clock
    from django_ojs.services import claim, prune, settle, workers
    from django_ojs.store.due_times import DueProbe

    empty = sizes()
    with written("enqueued by the thousand"):
        for start in range(0, JOBS, 1000):
            api.enqueue_many("footprint", [[n, "of work"] for n in range(start, start + 1000)])
    waiting = sizes()
    where = claim.sources(None, ["footprint"])
    with written(f"claimed and completed, {AT_ONCE} a commit"):
        while got := claim.claim(where, limit=AT_ONCE, worker_id="w1", beats=True):
            reports = [settle.Outcome(_lease(job), settle.Report.ACK, '"done"') for job in got]
            settle.settle(reports)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM (ANALYZE) django_ojs_job")
        cursor.execute("VACUUM (ANALYZE) django_ojs_attempt")
    done = sizes()
    for name, size in waiting.items():
        print(f"{name}: {(size - empty[name]) / JOBS:,.0f} bytes a job that waits,"
              f" {(done[name] - empty[name]) / JOBS:,.0f} a job that is over")  # fmt: skip
    probe = DueProbe("default")
    info = workers.WorkerInfo("w1", clock.new_id())
    workers.register(info)
    print(f"server, a look at what is due: {server_us(probe.look, LOOKS):.0f} us")
    print(f"server, an idle claim: {server_us(lambda: claim.has_work(where), LOOKS):.0f} us")
    beat = server_us(lambda: workers.report(info, phase="running", running=0), BEATS)
    print(f"server, a report of a worker: {beat:.0f} us")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE django_ojs_job SET finished_at = finished_at - interval '30 days'")
        cursor.execute("VACUUM django_ojs_job")
    begun = time.perf_counter()
    gone = prune.prune().counts["completed"]
    print(f"pruned: {gone / (time.perf_counter() - begun):,.0f} jobs/s")


def main() -> None:
    """Make, measure, drop."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.footprint", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--database-url", default=os.environ.get("DATABASE_URL", "postgres://127.0.0.1:5432/postgres")
    )
    options = parser.parse_args()
    admin_pages.prepare(options.database_url)
    from django.db import connection
    from django.test import override_settings

    try:
        # Events as by default: none of a healthy job.
        with override_settings(OJS={}):
            measure()
    finally:
        connection.close()
        admin_pages._administer(
            options.database_url, f'DROP DATABASE IF EXISTS "{admin_pages.NAME}" WITH (FORCE)'
        )


if __name__ == "__main__":
    main()
