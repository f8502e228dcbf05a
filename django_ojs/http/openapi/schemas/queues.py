"""Queues, the dead letter and events."""

from __future__ import annotations

from django_ojs.domain.states import State
from django_ojs.http.openapi import fields as f


class Counts(f.Component):
    """Jobs by state, counted up to a cap."""

    scheduled = f.count()
    pending = f.count()
    available = f.count()
    active = f.count()
    retryable = f.count()
    completed = f.count()
    cancelled = f.count()
    discarded = f.count()


class QueueComponent(Counts):
    """A queue and its jobs by state."""

    needed = frozenset(
        {"name", "status", "state", "paused", "depth", "counts", "created_at"} | {*State}
    )
    name = f.text()
    status = f.one_of("active", "paused")
    state = f.one_of("active", "paused")
    paused = f.boolean()
    depth = f.count()
    counts = Counts
    created_at = f.nullable(description="`null` before its first use.")
    paused_at = f.timestamp()
    paused_by = f.text()
    resumed_at = f.timestamp()


class QueueAnswer(QueueComponent):
    """A queue. ``queue`` is an object, or the name for those who send ``OJS-Version``."""

    needed = (QueueComponent.needed or frozenset()) | {"queue"}
    queue = f.described({"type": ["object", "string"]})


class QueueFigures(Counts):
    """Counts, and the figures of the last hour."""

    queue = f.text()
    depth = f.count()
    max_depth = f.nullable("integer")
    completed_last_hour = f.count()
    failed_last_hour = f.count()
    dead = f.count()
    avg_duration_ms = f.number()
    avg_wait_ms = f.number()
    throughput_per_second = f.number()


class QueueStats(QueueAnswer):
    """A queue with its figures."""

    needed = (QueueAnswer.needed or frozenset()) | {"stats", "computed_at"}
    stats = QueueFigures
    computed_at = f.timestamp()


class QueueRequest(f.Body):
    """A queue to make known."""

    needed = frozenset({"name"})
    name = f.queue()
    config = f.mapping("Checked; not kept.")


QueuePage = f.page("QueuePage", "queues", QueueComponent)


class DeadLetterStats(f.Component):
    """The newest ten thousand, counted."""

    total = f.count()
    by_queue = f.mapping(values=f.integer())
    by_type = f.mapping(values=f.integer())
    by_error_type = f.mapping(values=f.integer())
    oldest_at = f.nullable()
    newest_at = f.nullable()


class EventComponent(f.Component):
    """An event. ``event`` equals ``type``, ``timestamp`` equals ``time``."""

    specversion = f.text()
    id = f.text(pattern="^evt_")
    type = f.text(examples=["job.completed"])
    event = f.text()
    source = f.text()
    time = f.timestamp()
    timestamp = f.timestamp()
    subject = f.nullable(description="The job, worker, workflow, schedule or queue.")
    data = f.mapping()


class EventPage(f.Component):
    """Events in order; ``items`` equals ``events``."""

    events = f.array(EventComponent)
    items = f.array(EventComponent)
    cursor = f.nullable(description="`after` of the next request.")
    has_more = f.boolean()
    pagination = f.Pagination
