"""The handlers of the benchmark."""

from __future__ import annotations

import os
import time
from importlib import import_module

from benchmarks.harness import config, records
from benchmarks.systems.on_ojs.adapter import TASKS
from django_ojs import job


@job("bench.noop")
def noop(number: int, label: str) -> None:
    records.note(number)


@job("bench.mixed")
def mixed(number: int, seconds: float) -> None:
    records.note(number)
    time.sleep(seconds)


@job("bench.payload")
def payload(number: int, text: str) -> None:
    records.note(number)


@job("bench.coroutine")
async def coroutine(number: int, label: str) -> None:
    records.note(number)


def _one_of_many(number: int, label: str) -> None:
    records.note(number)


if config.WORKLOAD in TASKS:
    import_module("benchmarks.systems.on_ojs.as_tasks")
for _place in range(int(os.environ.get("BENCH_TYPES", "0"))):
    # Many kinds of work that differ in name only.
    job(f"bench.t{_place}")(_one_of_many)
