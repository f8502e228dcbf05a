"""Queues, the dead letter and events."""

from __future__ import annotations

from rest_framework.serializers import (
    BooleanField,
    CharField,
    DictField,
    FloatField,
    IntegerField,
    ListField,
)

from django_ojs.domain.states import State
from django_ojs.http.serializers.base import (
    QUEUE,
    Pagination,
    Raw,
    Request,
    Shape,
    _count,
    _object,
    _or_null,
    _text,
    _when,
)


class Counts(Shape):
    """Jobs by state, counted up to a cap."""

    scheduled = _count()
    pending = _count()
    available = _count()
    active = _count()
    retryable = _count()
    completed = _count()
    cancelled = _count()
    discarded = _count()


class Queue(Counts):
    """A queue and its jobs by state."""

    needed = frozenset(
        {"name", "status", "state", "paused", "depth", "counts", "created_at"} | {*State}
    )
    name = CharField()
    status = _text(enum=["active", "paused"])
    state = _text(enum=["active", "paused"])
    paused = BooleanField()
    depth = _count()
    counts = Counts()
    created_at = _or_null(text="`null` before its first use.")
    paused_at = _when()
    paused_by = CharField()
    resumed_at = _when()


class QueueAnswer(Queue):
    """A queue. ``queue`` is an object, or the name for those who send ``OJS-Version``."""

    needed = (Queue.needed or frozenset()) | {"queue"}
    queue = Raw({"type": ["object", "string"]})


class QueueFigures(Counts):
    """Counts, and the figures of the last hour."""

    queue = CharField()
    depth = _count()
    max_depth = _or_null("integer")
    completed_last_hour = _count()
    failed_last_hour = _count()
    dead = _count()
    avg_duration_ms = FloatField()
    avg_wait_ms = FloatField()
    throughput_per_second = FloatField()


class QueueStats(QueueAnswer):
    """A queue with its figures."""

    needed = (QueueAnswer.needed or frozenset()) | {"stats", "computed_at"}
    stats = QueueFigures()
    computed_at = _when()


class QueueRequest(Request):
    """A queue to make known."""

    needed = frozenset({"name"})
    name = Raw(QUEUE)
    config = _object("Checked; not kept.")


class QueuePage(Shape):
    """A page of queues; ``items`` equals ``queues``."""

    queues = ListField(child=Queue())
    items = ListField(child=Queue())
    pagination = Pagination()


class DeadLetterStats(Shape):
    """The newest ten thousand, counted."""

    total = _count()
    by_queue = DictField(child=IntegerField())
    by_type = DictField(child=IntegerField())
    by_error_type = DictField(child=IntegerField())
    oldest_at = _or_null()
    newest_at = _or_null()


class Event(Shape):
    """An event. ``event`` equals ``type``, ``timestamp`` equals ``time``."""

    specversion = CharField()
    id = _text(pattern="^evt_")
    type = _text(examples=["job.completed"])
    event = CharField()
    source = CharField()  # type: ignore[assignment]
    time = _when()
    timestamp = _when()
    subject = _or_null(text="The job, the worker or the queue.")
    data = _object()  # type: ignore[assignment]


class EventPage(Shape):
    """Events in order; ``items`` equals ``events``."""

    events = ListField(child=Event())
    items = ListField(child=Event())
    cursor = _or_null(text="`after` of the next request.")
    has_more = BooleanField()
    pagination = Pagination()
