"""A worker on PostgreSQL has the server plan once what it runs again and again."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from tests.process.tools import StartWorker, in_state, sabotaged
from tests.workload import jobs

pytestmark = [pytest.mark.every_database, pytest.mark.process]


def _alter(length: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE django_ojs_job ALTER COLUMN worker_id TYPE varchar({length})")


def test_a_worker_goes_on_when_a_table_is_altered(settings: Any, worker: StartWorker) -> None:
    """Its prepared claims return other columns then: refused by the server, they are made again."""
    if connection.vendor != "postgresql":
        pytest.skip("PostgreSQL only")
    # As by default. It holds for the check after the test too.
    settings.OJS = {**settings.OJS, "EVENTS": "problems"}
    # Where Django logs queries nothing is prepared.
    quiet = {"DJANGO_DEBUG": "0", "DJANGO_SECRET_KEY": "secret"}
    running = worker("--concurrency", "1", **quiet, **sabotaged("", EVENTS="problems"))
    for number in range(12):
        in_state(jobs.echo.enqueue(number), "completed")
    _alter(300)
    try:
        in_state(jobs.echo.enqueue(12), "completed")
    finally:
        _alter(255)
    in_state(jobs.echo.enqueue(13), "completed")
    assert running.running
    assert "cached plan" not in running.stderr
