"""Columns, constraints and indexes; no behaviour."""

from __future__ import annotations

from django_ojs.models.attempt import Attempt
from django_ojs.models.attempt_log import AttemptLog
from django_ojs.models.audit import AuditEntry
from django_ojs.models.event import Event, EventStream
from django_ojs.models.job import Job
from django_ojs.models.lease import LeaseBeat
from django_ojs.models.maintenance import MaintenanceRun
from django_ojs.models.proxies import Dashboard, DeadLetter
from django_ojs.models.queue import Queue
from django_ojs.models.rate_limit import RateLimit, RateLimitDue, RateLimitPlace, RateLimitStart
from django_ojs.models.saved_view import SavedView
from django_ojs.models.schedule import Schedule, ScheduleRun
from django_ojs.models.schema import JobSchema
from django_ojs.models.stats import (
    DeployMark,
    FailureStat,
    Incident,
    MinuteStat,
    QueueSample,
    Total,
    TypeStat,
)
from django_ojs.models.token import ApiToken
from django_ojs.models.unique import UniqueKey
from django_ojs.models.worker import Worker
from django_ojs.models.workflow import Workflow, WorkflowStep

__all__ = [
    "ApiToken",
    "Attempt",
    "AttemptLog",
    "AuditEntry",
    "Dashboard",
    "DeadLetter",
    "DeployMark",
    "Event",
    "EventStream",
    "FailureStat",
    "Incident",
    "Job",
    "JobSchema",
    "LeaseBeat",
    "MaintenanceRun",
    "MinuteStat",
    "Queue",
    "QueueSample",
    "RateLimit",
    "RateLimitDue",
    "RateLimitPlace",
    "RateLimitStart",
    "SavedView",
    "Schedule",
    "ScheduleRun",
    "Total",
    "TypeStat",
    "UniqueKey",
    "Worker",
    "Workflow",
    "WorkflowStep",
]
