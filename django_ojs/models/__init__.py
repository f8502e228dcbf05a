"""Columns, constraints and indexes; no behaviour."""

from __future__ import annotations

from django_ojs.models.attempt import Attempt
from django_ojs.models.chore import ChoreRun
from django_ojs.models.event import Event
from django_ojs.models.job import Job
from django_ojs.models.queue import Queue
from django_ojs.models.worker import Worker

__all__ = ["Attempt", "ChoreRun", "Event", "Job", "Queue", "Worker"]
