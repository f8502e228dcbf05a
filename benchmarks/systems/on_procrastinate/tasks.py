"""Procrastinate's handlers."""

from __future__ import annotations

from procrastinate.contrib.django import app

from benchmarks.harness import records


@app.task
def noop(number: int, label: str) -> None:
    records.note(number)
