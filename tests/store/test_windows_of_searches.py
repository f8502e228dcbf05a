"""What the screens read of many rows at once: the edge of a search window, and moments cut to hours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import TruncHour, TruncMinute
from django.test.utils import CaptureQueriesContext

from django_ojs.admin.tabs import Tab
from django_ojs.models import FailureStat, Job
from django_ojs.store import selectors
from django_ojs.store.truncation import CutToHour, CutToMinute
from tests.services.support import make
from tests.support import family

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]


def last(down: bool, size: int) -> Any:
    return selectors.last_of_first(Job.objects.all(), "pk", down=down, size=size, using="default")


def test_the_last_of_the_first_in_either_order() -> None:
    assert last(True, 3) is None
    ids = sorted(job.id for job in make(5))
    assert (last(True, 3), last(False, 3)) == (ids[2], ids[2])
    assert (last(True, 2), last(False, 2)) == (ids[3], ids[1])
    assert (last(True, 99), last(False, 99)) == (ids[0], ids[4]), "fewer than asked for"


def test_a_moment_is_cut_as_django_does() -> None:
    start = datetime(2026, 11, 25, 22, 59, tzinfo=UTC)
    for number, at in enumerate((start, start + timedelta(seconds=61), start + timedelta(hours=3))):
        FailureStat.objects.create(at=at, step=60, queue=f"q{number}", type="t", error="e", count=1)
    rows = FailureStat.objects.order_by("at")
    for ours, django in ((CutToHour, TruncHour), (CutToMinute, TruncMinute)):
        (mine, theirs) = (
            list(rows.annotate(cut=cut("at", tzinfo=UTC)).values_list("cut", flat=True))
            for cut in (ours, django)
        )
        assert mine == theirs
        assert all(moment.tzinfo is not None for moment in mine)


@pytest.mark.parametrize(
    ("tab", "index"), [(Tab(dead_letter=True), "dead"), (Tab("discarded"), "finished")]
)
def test_the_edge_of_a_window_is_read_from_its_index_without_sorting(tab: Tab, index: str) -> None:
    if family() != "sqlite":
        pytest.skip("the plan of SQLite")
    with CaptureQueriesContext(connection) as asked:
        tab.edge("default")
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {asked[0]['sql']}")
        plan = " ".join(str(row[3]) for row in cursor.fetchall())
    assert f"ojs_job_{index}" in plan
    assert "TEMP B-TREE" not in plan


def test_the_depth_of_queues_is_read_from_the_index_of_what_is_due() -> None:
    """Its thousands of rows are not looked up one by one."""
    if family() != "sqlite":
        pytest.skip("the plan of SQLite")
    with CaptureQueriesContext(connection) as asked:
        selectors.depths(["a", "b"], using="default")
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {asked[0]['sql']}")
        plan = [str(row[3]) for row in cursor.fetchall()]
    assert sum("USING COVERING INDEX ojs_job_due" in step for step in plan) == 2, plan
