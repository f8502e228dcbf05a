"""A month of figures as the roll-up would have stored them: minutes, hours, samples, job types."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django_ojs import clock
from django_ojs.domain import histogram
from django_ojs.models import (
    DeployMark,
    MaintenanceRun,
    MinuteStat,
    QueueSample,
    TypeStat,
    Worker,
)
from django_ojs.services import queue_samples, rollup, type_stats

QUEUES = 12
TYPES = 30
MONTH = timedelta(days=30)


def count_month(now: datetime, *, using: str, workers: int = 200) -> None:
    """Rows of each table that the screens read, as many as there can be in a month; and workers."""
    last = histogram.floor(now - rollup.LATE, rollup.MINUTE)
    MaintenanceRun.objects.using(using).create(name=rollup.NAME, last_run_at=now, watermark_at=last)
    counts = [0, *range(1, len(histogram.BUCKETS) + 1)]
    begin = last - rollup.KEPT
    moments = [(last - n * rollup.MINUTE, 60) for n in range(1, int(rollup.KEPT / rollup.MINUTE))]
    moments += [(histogram.floor(begin, rollup.HOUR) - n * rollup.HOUR, 3600) for n in range(24 * 29)]
    names = [rollup.ALL, *(f"tenant-{n}" for n in range(3))]
    _insert(
        MinuteStat,
        (
            MinuteStat(
                **{"at": at, "step": step, "queue": name, "durations": counts, "waits": counts},
                **{"completed": 300, "failed": 7, "discarded": 2, "timed_out": 1},
            )
            for at, step in moments
            for name in names
        ),
        using,
    )
    _insert(QueueSample, _samples(now), using)
    _insert(TypeStat, _types(last, counts), using)
    _insert(DeployMark, (DeployMark(at=now - n * MONTH / 20, name=f"v{n}") for n in range(20)), using)
    _insert(Worker, _workers(now, workers), using)


def _samples(now: datetime) -> Iterable[QueueSample]:
    for step, keep in queue_samples.STEPS.items():
        for number in range(int((keep or MONTH) / step) + 1):
            at, seconds = histogram.floor(now, step) - number * step, int(step.total_seconds())
            yield QueueSample(
                **{"at": at, "step": seconds, "queue": rollup.ALL, "waiting": 9000, "running": 90},
                **{"ages": [*range(len(histogram.BUCKETS) + 1)], "workers": 200, "slots": 800},
            )
            for place in range(QUEUES):
                waiting = (place * 7919 + number * 104_729) % 900
                yield QueueSample(
                    at=at, step=seconds, queue=f"tenant-{place}", waiting=waiting, running=place
                )


def _types(last: datetime, durations: list[int]) -> Iterable[TypeStat]:
    for step, keep in type_stats.STEPS.items():
        for number in range(int((keep or MONTH) / step) + 1):
            at = histogram.floor(last, step) - number * step
            for place in range(TYPES):
                yield TypeStat(
                    **{"at": at, "step": int(step.total_seconds()), "type": f"type.{place}"},
                    **{"completed": 90, "failed": 2, "busy_ms": 1000 * place, "durations": durations},
                )


def _workers(now: datetime, count: int) -> Iterable[Worker]:
    for number in range(count):
        yield Worker(
            **{
                "name": f"w{number + 1}",
                "incarnation": clock.new_lease(),
                "hostname": f"host-{number}",
            },
            **{"principal": "", "phase": "running", "beats": True, "concurrency": 4, "running": 3},
            **{"version": "shop 2", "rss_bytes": 300 * 2**20, "started_at": now, "heartbeat_at": now},
        )


def _insert(model: Any, rows: Iterable[Any], using: str) -> None:
    model.objects.using(using).bulk_create(rows, batch_size=1000)
