"""The worker protocol, the workers, progress and checkpoints."""

from __future__ import annotations

from rest_framework.serializers import BooleanField, CharField, IntegerField, JSONField, ListField

from django_ojs.http.serializers.base import (
    QUEUE,
    STATE,
    UUID_TEXT,
    ErrorDetail,
    Pagination,
    Raw,
    Request,
    Shape,
    _count,
    _duration,
    _more_ms,
    _ms,
    _object,
    _or_null,
    _strings,
    _text,
    _when,
)
from django_ojs.http.serializers.jobs import ClaimedJob, Evidence, Job, Saved


def _worker_name() -> CharField:
    return CharField(max_length=255, help_text="Its own choice, without `/`.")


class AboutWorker(Request):
    """What a worker tells of itself."""

    hostname = CharField(max_length=255)
    pid = _count()
    concurrency = _count()
    labels = Raw({"type": ["object", "array"]})
    version = CharField(max_length=255)


class FetchRequest(AboutWorker):
    """Which jobs, and how many."""

    either = ("queues", "queue")
    queues = ListField(child=Raw(QUEUE), min_length=1, max_length=100, help_text="In this order.")
    queue = Raw(QUEUE)
    count = Raw({"type": "integer", "minimum": 1}, "At most 100 are given. Also `max_jobs`, `limit`.")
    wait_ms = _ms("How long to wait for a job; at most 30,000.")
    worker_id = _worker_name()
    visibility_timeout_ms = _ms("A lease that must be renewed by beats. Also `visibility_ms`.")
    visibility_timeout = _duration()


class FetchAnswer(Shape):
    """What was claimed; empty when there is nothing."""

    jobs = ListField(child=ClaimedJob())


class JobAckRequest(Evidence):
    """The attempt succeeded."""

    result = JSONField(help_text="Any JSON value, at most 1 MiB.")


class AckRequest(JobAckRequest):
    """The attempt succeeded."""

    either = ("job_id", "id")
    job_id = _text()
    id = _text()


DIRECTIVE = {"type": "string", "enum": ["RETRY", "DISCARD", "DEAD_LETTER", "FAIL"]}


class Failure(Request):
    """What happened. Texts are cut, never refused."""

    type = CharField()
    code = CharField(help_text="A directive in capitals counts as one.")
    message = CharField()
    retryable = BooleanField()
    details = _object("`error_class` is compared with `non_retryable_errors` too.")
    backtrace = Raw({"type": ["array", "string"]}, "Also `stack_trace`, `traceback`.")
    directive = Raw(DIRECTIVE)
    retry_after = _duration("When it is retried, in place of the backoff. Also `next_retry_delay`.")
    retry_after_ms = _ms()


class JobNackRequest(Evidence):
    """The attempt failed, or is given back. `error` may be a mere string."""

    error = Failure()
    requeue = BooleanField(help_text="Give the job back instead of failing it.")
    directive = Raw(DIRECTIVE, "Also `response_code`.")
    retry_after = _duration(
        "When it is retried, in place of the backoff; 0 is at once. Also `next_retry_delay`.", least=0
    )
    retry_after_ms = _ms()


class NackRequest(JobNackRequest):
    """The attempt failed, or is given back. `error` may be a mere string."""

    either = ("job_id", "id")
    job_id = _text()
    id = _text()


_ANSWERED = frozenset({"acknowledged", "id", "job_id"})


class Answered(Shape):
    """What every report is answered."""

    needed = _ANSWERED
    acknowledged = BooleanField()
    id = Raw(UUID_TEXT)
    job_id = Raw(UUID_TEXT)
    state = Raw(STATE)
    attempt = _count()
    max_attempts = _count()
    completed_at = _when()


class Settled(Answered):
    """What became of the job."""

    needed = _ANSWERED | {"state", "attempt", "max_attempts", "job"}
    job = Job()
    discarded_at = _when()
    next_attempt_at = _when()
    next_retry_at = _when()
    retry_delay_ms = IntegerField()


class LeasedAck(Request):
    """One report of a batch. ``id`` stands for ``job_id`` too, ``lease: {id}`` for ``lease_id``."""

    needed = frozenset({"job_id", "lease_id"})
    job_id = Raw(UUID_TEXT)
    lease_id = Raw(UUID_TEXT, "`lease.id` of the fetch.")
    result = JSONField(help_text="Any JSON value, at most 1 MiB.")


class AckBatchRequest(Request):
    """These attempts succeeded."""

    needed = frozenset({"jobs"})
    jobs = ListField(child=LeasedAck(), min_length=1, max_length=100)


class AckResult(Answered):
    """What became of one report: the job's state, or the error of the refusal."""

    error = ErrorDetail()


class AckBatchAnswer(Shape):
    """The results in the order of the reports; ``acknowledged`` says whether all counted."""

    acknowledged = BooleanField()
    count = _count()
    results = ListField(child=AckResult())


class BeatRequest(AboutWorker):
    """A sign of life."""

    needed = frozenset({"worker_id"})
    worker_id = _worker_name()
    active_job_ids = ListField(
        child=Raw(UUID_TEXT), max_length=1000, help_text="The leases to renew. Also `job_id`, one id."
    )
    jobs = Raw(
        {
            "type": "array",
            "maxItems": 1000,
            "items": {
                "type": "object",
                "properties": {"job_id": UUID_TEXT, "lease_id": UUID_TEXT},
                "required": ["job_id"],
            },
        },
        "The same with leases. Also `leases`.",
    )
    active_jobs = Raw(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": 1_000_000},
                {"type": "array", "maxItems": 1000, "items": UUID_TEXT},
            ]
        },
        "The ids, or their number.",
    )
    state = _text("`running`, `quiet`, `terminate` or `drain`; others are ignored.")
    shutdown = Raw({"type": "boolean"}, "The same as the state `drain`.")
    visibility_timeout_ms = _ms("For how long to renew.")
    visibility_timeout = _duration()
    extend_timeout = _duration("Adds to the attempts that it names.")
    extend_timeout_ms = _more_ms()


class HeldJob(Shape):
    """A lease that was renewed."""

    id = Raw(UUID_TEXT)
    job_id = Raw(UUID_TEXT)
    attempt = _count()
    deadline_at = _or_null()
    soft_deadline_at = _or_null()
    extended_by_ms = IntegerField(help_text="How much of `extend_timeout` was granted.")
    extended_ms = IntegerField(help_text="By how much the attempt was extended in all.")


class BeatAnswer(Shape):
    """What the worker is to do, and what it has lost. ``jobs_*`` equals ``*_jobs``."""

    acknowledged = BooleanField()
    worker_id = CharField()
    state = _text("`running`, `quiet` or `terminate`.")
    directive = _text("`continue`, `quiet` or `terminate`.")
    jobs_extended = _strings()
    jobs_cancelled = _strings("Stop these.")
    cancelled_jobs = _strings()
    jobs_lost = _strings("Stop these: their reports would be refused.")
    lost_jobs = _strings()
    soft_timeout_jobs = _strings("Their `timeout` or `total_timeout` is over; the grace runs.")
    stop_reasons = _object(
        "Of all that are to stop: `timeout`, `total_timeout`, `cancelled`, `stalled` or `lost`."
    )
    deadline_at = _object("By job id.")
    jobs = ListField(child=HeldJob())
    server_time = _when()


class RegisterRequest(AboutWorker):
    """A worker that starts."""

    needed = frozenset({"worker_id"})
    worker_id = _worker_name()
    queues = ListField(child=Raw(QUEUE), min_length=1, max_length=100)


class RegisterAnswer(Shape):
    """What the worker should know; in seconds."""

    ok = BooleanField()
    worker_id = CharField()
    server_time = _when()
    heartbeat_interval = IntegerField()
    heartbeat_timeout = IntegerField()
    visibility_timeout_default = IntegerField()


class DeregisterRequest(Request):
    """A worker that stops."""

    needed = frozenset({"worker_id"})
    worker_id = _worker_name()


class Deregistered(Shape):
    """It is gone."""

    needed = frozenset({"ok", "worker_id"})
    ok = BooleanField()
    worker_id = CharField()
    deleted = BooleanField()


class Worker(Shape):
    """A worker. ``id`` equals ``worker_id``; it is one of a kind together with ``client``."""

    worker_id = CharField()
    id = CharField()
    client = _or_null(text="The credential that it comes with; null for a worker of the project.")
    state = CharField()
    status = _text(enum=["healthy", "degraded", "stale"])
    directive = _or_null(text="What it was told.")
    hostname = CharField()
    pid = _or_null("integer")
    concurrency = _or_null("integer")
    active_jobs = _count()
    queues = _strings()
    labels = _object()
    version = CharField()
    started_at = _when()
    last_heartbeat_at = _when()


class WorkerAnswer(Worker):
    """A worker, flat and wrapped."""

    worker = Worker()


class WorkerSummary(Shape):
    """In figures."""

    total = _count()
    running = _count()
    quiet = _count()
    stale = _count()


class WorkerPage(Shape):
    """A page of workers; ``items`` equals ``workers``, ``summary`` is of the page."""

    workers = ListField(child=Worker())
    items = ListField(child=Worker())
    pagination = Pagination()
    summary = WorkerSummary()


class JobProgressRequest(Evidence):
    """How far it is."""

    either = ("progress", "percentage")
    progress = Raw({"type": "number"}, "0 to 1; what is beyond is lowered.")
    percentage = Raw({"type": "number"}, "0 to 100.")
    message = Raw({"type": ["string", "null"]})
    data = JSONField(help_text="At most 64 KiB.")  # type: ignore[assignment]
    extend_timeout = _duration("Adds to the running attempt.")
    extend_timeout_ms = _more_ms()


class ProgressRequest(JobProgressRequest):
    """How far a job is."""

    needed = frozenset({"job_id"})
    job_id = _text("Also `id`.")


class Progress(Shape):
    """The last progress, ``null`` when none was reported."""

    needed = frozenset({"job_id", "state", "progress", "percentage", "message", "data"})
    job_id = Raw(UUID_TEXT)
    state = Raw(STATE)
    progress = _or_null("number")
    percentage = _or_null("number")
    message = _or_null()
    data = JSONField()  # type: ignore[assignment]
    acknowledged = BooleanField()
    updated_at = _when()


class CheckpointRequest(Evidence):
    """What the next attempt needs to go on."""

    needed = frozenset({"state"})
    state = JSONField(help_text="Any JSON value, at most 1 MiB.")
    metadata = JSONField()
    step_index = JSONField()


class Checkpoint(Saved):
    """A checkpoint, flat and wrapped."""

    needed = frozenset({"job_id", "state", "sequence", "checkpoint"})
    checkpoint = Saved()


class Resume(Shape):
    """Where to go on."""

    needed = frozenset({"has_checkpoint", "job_id"})
    has_checkpoint = BooleanField()
    job_id = Raw(UUID_TEXT)
    checkpoint = Saved()


class Deleted(Shape):
    """It is gone."""

    deleted = BooleanField()
    job_id = Raw(UUID_TEXT)
