"""What a scrape of ``/metrics`` costs in an installation that is in use.

::

    python -m benchmarks.scrape --rows 3000000 --database-url postgres://user@127.0.0.1:5432/any

makes a PostgreSQL database of its own (the name in the address is not used), fills it as
:mod:`benchmarks.admin_pages` does, with 60 queues, 500 types of which 300 pairs with a queue have
waiting jobs and totals, asks ``/metrics`` through Django's test client, and drops it. The goals are
100 ms (the median) and fewer than ten statements beside BEGIN and COMMIT.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time

from benchmarks import admin_pages

TRIES = 15
GOAL_MS, GOAL_STATEMENTS = 100.0, 10
QUEUES, TYPES, PAIRS = 60, 500, 300
_TOKEN = "of-the-scraper"


def fill(rows: int) -> None:
    """Rows, queues, jobs that wait in 300 pairs, and totals as a roll-up leaves them."""
    from benchmarks.rows import load
    from django_ojs import api, clock
    from django_ojs.services import totals
    from django_ojs.services.totals import Increments, Key, Metric

    now = clock.now("default")
    load(rows, now, using="default")
    admin_pages.more_queues(now)
    increments = Increments()
    for number in range(TYPES):
        queue, job_type = f"tenant-{number % (QUEUES - 3)}", f"work.kind-{number}"
        if number >= PAIRS:
            continue
        api.enqueue_many(job_type, [[n] for n in range(20)], queue=queue)
        for metric in (Metric.ENQUEUED, Metric.COMPLETED, Metric.DISCARDED, Metric.RETRIED):
            increments[Key(metric, queue, job_type)].add(1000 + number)
        increments[Key(Metric.TIMEOUT, queue, job_type, "execution")].add(3)
        for outcome in ("completed", "failed", "timeout"):
            for place in range(20):
                key = Key(Metric.EXECUTION, queue, job_type, outcome)
                increments[key].add_to(place, 50, 50 * (place + 1))
        for place in range(20):
            increments[Key(Metric.WAIT, queue, job_type)].add_to(place, 50, 50)
            increments[Key(Metric.FIRST_WAIT, queue, "")].add_to(place, 50, 50)
    totals.store(increments, using="default")


def measure() -> bool:
    """Scrape, print, and say whether the goals are met."""
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    client, headers = Client(), {"Authorization": f"Bearer {_TOKEN}"}
    took, statements, size = [], 0, 0
    for _ in range(TRIES):
        begun = time.perf_counter()
        answer = client.get("/metrics", headers=headers)
        took.append((time.perf_counter() - begun) * 1000)
        size = len(answer.content)
        if answer.status_code != 200:
            sys.exit(f"/metrics answered {answer.status_code}")
    with CaptureQueriesContext(connection) as asked:
        client.get("/metrics", headers=headers)
    statements = sum(one["sql"] not in ("BEGIN", "COMMIT") for one in asked.captured_queries)
    median = statistics.median(took)
    print(f"median {median:.1f} ms (goal {GOAL_MS:g}), most {max(took):.1f} ms of {TRIES}")
    print(f"statements {statements} (goal: fewer than {GOAL_STATEMENTS}), {size / 1024:.0f} KiB")
    met = median < GOAL_MS and statements < GOAL_STATEMENTS
    print("met" if met else "not met")
    return met


def main() -> None:
    """Load, measure, drop."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scrape", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument(
        "--database-url", default=os.environ.get("DATABASE_URL", "postgres://127.0.0.1:5432/postgres")
    )
    options = parser.parse_args()
    admin_pages.prepare(options.database_url)
    from django.conf import settings
    from django.db import connection
    from django.test import override_settings

    settings.ROOT_URLCONF = "example_project.urls"
    try:
        begun = time.perf_counter()
        fill(options.rows)
        print(f"{options.rows} rows, loaded in {time.perf_counter() - begun:.0f} s", flush=True)
        with override_settings(OJS={"HTTP": {"METRICS_TOKEN": _TOKEN}}):
            met = measure()
    finally:
        connection.close()
        admin_pages._administer(
            options.database_url, f'DROP DATABASE IF EXISTS "{admin_pages.NAME}" WITH (FORCE)'
        )
    sys.exit(not met)


if __name__ == "__main__":
    main()
