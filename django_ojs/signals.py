"""Django signals sent after commit, one per OJS event, by ``send_robust``.

Receivers get ``sender`` (the event's kind, a string) and ``event``, an :class:`Event`. A receiver
that raises breaks nothing: the error is logged by Django.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.dispatch import Signal

from django_ojs.domain.events import Kind


class Event(NamedTuple):
    """One OJS event (OJS events): ``data`` has the fields of its kind."""

    id: UUID
    kind: str
    time: datetime
    data: Mapping[str, Any]


job_enqueued = Signal()
job_scheduled = Signal()
job_started = Signal()
job_completed = Signal()
job_progress = Signal()
job_failed = Signal()
job_retrying = Signal()
job_released = Signal()
job_discarded = Signal()
job_cancelled = Signal()
job_timeout = Signal()
job_stalled = Signal()
job_ttl_expired = Signal()
job_expired = Signal()
job_total_timeout = Signal()
job_retried = Signal()
job_rescheduled = Signal()
job_edited = Signal()
job_timeout_extended = Signal()
job_purged = Signal()
dead_letter_added = Signal()
dead_letter_retried = Signal()
queue_paused = Signal()
queue_resumed = Signal()
worker_started = Signal()
worker_quiet = Signal()
worker_stopped = Signal()

by_kind: Mapping[str, Signal] = {str(kind): globals()[kind.replace(".", "_")] for kind in Kind}
