"""Figures by job type: of each minute once, in steps of every length, bounded, as SQL would count."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_ojs import clock
from django_ojs.domain import histogram
from django_ojs.models import MaintenanceRun, TypeStat
from django_ojs.services import rollup, type_stats
from django_ojs.services.reap import reap
from django_ojs.services.totals import REST
from django_ojs.services.type_stats import MINUTE
from tests.services.support import ack, fail, make, take
from tests.services.test_rollup import START
from tests.services.test_rollup import at as at

pytestmark = pytest.mark.every_database
STEPS = [int(step.total_seconds()) for step in type_stats.STEPS]


def work(at: clock.FrozenClock, job_type: str, took: float, *, fails: int = 0, **options: Any) -> None:
    """Jobs of a type, as many as fail and one more, each of which takes so long."""
    make(fails + 1, job_type, **options)
    done, *broken = take(fails + 1, types=(job_type,))
    at.advance(took)
    ack(done)
    if broken:
        fail(*broken)


def stored(step: int) -> dict[str, tuple[int, int, int]]:
    """Of each type: completed, failed, and for how long they ran."""
    rows = TypeStat.objects.filter(step=step)
    return {row.type: (row.completed, row.failed, row.busy_ms) for row in rows}


def test_each_step_has_what_happened(at: clock.FrozenClock) -> None:
    work(at, "mail.send", 2, fails=2)
    work(at, "report", 3)
    at.time = START + 3 * MINUTE
    rollup.rollup()
    for step in STEPS:
        assert stored(step) == {"mail.send": (1, 2, 6000), "report": (1, 0, 3000)}
    work(at, "mail.send", 4)
    at.time = START + 6 * MINUTE
    rollup.rollup()
    assert stored(3600) == {"mail.send": (2, 2, 10_000), "report": (1, 0, 3000)}
    assert TypeStat.objects.filter(step=60).count() == 3
    found = type_stats.read(START, MINUTE)
    assert found["mail.send"].attempts == 4
    assert [histogram.BUCKETS[n] for n, count in enumerate(found["mail.send"].durations) if count] == [
        2000,
        5000,
    ]
    assert set(type_stats.read(START + 2 * MINUTE, MINUTE)) == {"mail.send"}
    assert type_stats.read(START - timedelta(hours=1), timedelta(hours=1)).keys() == found.keys()


def test_what_never_started_has_failed_too(at: clock.FrozenClock) -> None:
    make(1, "late", enqueue_ttl="1s")
    at.advance(5)
    reap()
    at.time = START + 3 * MINUTE
    rollup.rollup()
    assert stored(60) == {"late": (0, 1, 0)}


def test_many_types_share_a_row(at: clock.FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type_stats, "MOST_TYPES", 2)
    for number in range(1, 5):
        work(at, f"t{number}", number)
    at.time = START + 3 * MINUTE
    rollup.rollup()
    expected = {"t4": (1, 0, 4000), "t3": (1, 0, 3000), REST: (2, 0, 3000)}
    assert stored(60) == stored(86_400) == expected
    work(at, "t4", 1)
    work(at, "t5", 9)
    at.time = START + 6 * MINUTE
    rollup.rollup()
    assert stored(86_400) == {"t4": (2, 0, 5000), "t3": (1, 0, 3000), REST: (3, 0, 12_000)}


def test_a_minute_counts_once_when_the_mark_is_lost(at: clock.FrozenClock) -> None:
    work(at, "t", 1)
    at.time = START + 3 * MINUTE
    rollup.rollup()
    MaintenanceRun.objects.all().delete()
    while rollup.rollup()["minutes"]:
        pass
    assert stored(86_400) == {"t": (1, 0, 1000)}


@pytest.mark.slow
def test_short_steps_are_forgotten(at: clock.FrozenClock) -> None:
    for hours in (0, 3, 27, 200):
        at.time = START + timedelta(hours=hours)
        work(at, "t", 1)
        at.advance(180)
        rollup.rollup(most=3)
    assert [TypeStat.objects.filter(step=step).count() for step in STEPS] == [1, 1, 2, 3]
