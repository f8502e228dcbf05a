"""The handlers of the benchmark."""

from __future__ import annotations

import time

from benchmarks.harness import records
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
