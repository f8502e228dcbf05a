"""huey's handlers."""

from __future__ import annotations

from huey.contrib.djhuey import task

from benchmarks.harness import records


@task()
def noop(number: int, label: str) -> None:
    records.note(number)
