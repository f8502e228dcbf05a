"""Celery's app and handlers."""

from __future__ import annotations

import os

from celery import Celery

from benchmarks.harness import records

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.harness.settings")
app = Celery("bench")
app.config_from_object("django.conf:settings", namespace="CELERY")


@app.task
def noop(number: int, label: str) -> None:
    records.note(number)
