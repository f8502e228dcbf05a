"""The worker protocol, the workers, progress and checkpoints."""

from __future__ import annotations

from django_ojs.http.openapi import fields as f
from django_ojs.http.openapi.schemas.jobs import ClaimedJob, JobComponent, LeaseClaimFields, Saved

_WORKER_ID = f.name("Its own choice, without `/`.")


class AboutWorker(f.Body):
    """What a worker tells of itself."""

    hostname = f.name()
    pid = f.count()
    concurrency = f.count()
    labels = f.described({"type": ["object", "array"]})
    version = f.name()


class FetchRequest(AboutWorker):
    """Which jobs, and how many."""

    either = ("queues", "queue")
    queues = f.array(f.queue(), "In this order.", maxItems=100, minItems=1)
    queue = f.queue()
    count = f.integer("At most 100 are given. Also `max_jobs`, `limit`.", minimum=1)
    wait_ms = f.milliseconds("How long to wait for a job; at most 30,000.")
    worker_id = _WORKER_ID
    visibility_timeout_ms = f.milliseconds(
        "A lease that must be renewed by beats. Also `visibility_ms`."
    )
    visibility_timeout = f.duration()


class FetchAnswer(f.Component):
    """What was claimed; empty when there is nothing."""

    jobs = f.array(ClaimedJob)


class JobAckRequest(LeaseClaimFields):
    """The attempt succeeded."""

    result = f.anything("Any JSON value, at most 1 MiB.")


class NamedJob(f.Body):
    """The job that a report is about, where the path does not name it."""

    either = ("job_id", "id")
    job_id = f.text()
    id = f.text()


class AckRequest(NamedJob, JobAckRequest):
    """The attempt succeeded."""


class FailureComponent(f.Body):
    """What happened. Texts are cut, never refused."""

    type = f.text()
    code = f.text("A directive in capitals counts as one.")
    message = f.text()
    retryable = f.boolean()
    details = f.mapping(
        "`error_class` is compared with `non_retryable_errors` too, and so is each of `error_bases`."
    )
    backtrace = f.described({"type": ["array", "string"]}, "Also `stack_trace`, `traceback`.")
    directive = f.directive()
    retry_after = f.duration("When it is retried, in place of the backoff. Also `next_retry_delay`.")
    retry_after_ms = f.milliseconds()


class JobNackRequest(LeaseClaimFields):
    """The attempt failed, or is given back. `error` may be a mere string."""

    error = FailureComponent
    requeue = f.boolean("Give the job back instead of failing it.")
    directive = f.directive("Also `response_code`.")
    retry_after = f.duration(
        "When it is retried, in place of the backoff; 0 is at once. Also `next_retry_delay`.", minimum=0
    )
    retry_after_ms = f.milliseconds()


class NackRequest(NamedJob, JobNackRequest):
    """The attempt failed, or is given back. `error` may be a mere string."""


_ANSWERED = frozenset({"acknowledged", "id", "job_id"})


class Answered(f.Component):
    """What every report is answered."""

    needed = _ANSWERED
    acknowledged = f.boolean()
    id = f.uuid()
    job_id = f.uuid()
    state = f.state()
    attempt = f.count()
    max_attempts = f.count()
    completed_at = f.timestamp()


class Settled(Answered):
    """What became of the job."""

    needed = _ANSWERED | {"state", "attempt", "max_attempts", "job"}
    job = JobComponent
    discarded_at = f.timestamp()
    next_attempt_at = f.timestamp()
    next_retry_at = f.timestamp()
    retry_delay_ms = f.integer()


class LeasedAck(f.Body):
    """One report of a batch. ``id`` stands for ``job_id`` too, ``lease: {id}`` for ``lease_id``."""

    needed = frozenset({"job_id", "lease_id"})
    job_id = f.uuid()
    lease_id = f.uuid("`lease.id` of the fetch.")
    result = f.anything("Any JSON value, at most 1 MiB.")


class AckBatchRequest(f.Body):
    """These attempts succeeded."""

    needed = frozenset({"jobs"})
    jobs = f.array(LeasedAck, maxItems=100, minItems=1)


class AckResult(Answered):
    """What became of one report: the job's state, or the error of the refusal."""

    error = f.ErrorDetail


class AckBatchAnswer(f.Component):
    """The results in the order of the reports; ``acknowledged`` says whether all counted."""

    acknowledged = f.boolean()
    count = f.count()
    results = f.array(AckResult)


class BeatRequest(AboutWorker):
    """A sign of life."""

    needed = frozenset({"worker_id"})
    worker_id = _WORKER_ID
    active_job_ids = f.array(f.uuid(), "The leases to renew. Also `job_id`, one id.", maxItems=1000)
    jobs = f.described(
        {
            "type": "array",
            "maxItems": 1000,
            "items": {
                "type": "object",
                "properties": {"job_id": f.uuid(), "lease_id": f.uuid()},
                "required": ["job_id"],
            },
        },
        "The same with leases. Also `leases`.",
    )
    active_jobs = f.described(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": 1_000_000},
                {"type": "array", "maxItems": 1000, "items": f.uuid()},
            ]
        },
        "The ids, or their number.",
    )
    state = f.text("`running`, `quiet`, `terminate` or `drain`; others are ignored.")
    shutdown = f.boolean("The same as the state `drain`.")
    visibility_timeout_ms = f.milliseconds("For how long to renew.")
    visibility_timeout = f.duration()
    extend_timeout = f.duration("Adds to the attempts that it names.")
    extend_timeout_ms = f.milliseconds(minimum=1)


class HeldJob(f.Component):
    """A lease that was renewed."""

    id = f.uuid()
    job_id = f.uuid()
    attempt = f.count()
    deadline_at = f.nullable()
    soft_deadline_at = f.nullable()
    extended_by_ms = f.integer("How much of `extend_timeout` was granted.")
    extended_ms = f.integer("By how much the attempt was extended in all.")


class BeatAnswer(f.Component):
    """What the worker is to do, and what it has lost. ``jobs_*`` equals ``*_jobs``."""

    acknowledged = f.boolean()
    worker_id = f.text()
    state = f.text("`running`, `quiet` or `terminate`.")
    directive = f.text("`continue`, `quiet` or `terminate`.")
    jobs_extended = f.strings()
    jobs_cancelled = f.strings("Stop these.")
    cancelled_jobs = f.strings()
    jobs_lost = f.strings("Stop these: their reports would be refused.")
    lost_jobs = f.strings()
    soft_timeout_jobs = f.strings("Their `timeout` or `total_timeout` is over; the grace runs.")
    stop_reasons = f.mapping(
        "Of all that are to stop: `timeout`, `total_timeout`, `cancelled`, `stalled` or `lost`."
    )
    deadline_at = f.mapping("By job id.")
    jobs = f.array(HeldJob)
    server_time = f.timestamp()


class RegisterRequest(AboutWorker):
    """A worker that starts."""

    needed = frozenset({"worker_id"})
    worker_id = _WORKER_ID
    queues = f.array(f.queue(), maxItems=100, minItems=1)


class RegisterAnswer(f.Component):
    """What the worker should know; in seconds."""

    ok = f.boolean()
    worker_id = f.text()
    server_time = f.timestamp()
    heartbeat_interval = f.integer()
    heartbeat_timeout = f.integer()
    visibility_timeout_default = f.integer()


class DeregisterRequest(f.Body):
    """A worker that stops."""

    needed = frozenset({"worker_id"})
    worker_id = _WORKER_ID


class Deregistered(f.Component):
    """It is gone."""

    needed = frozenset({"ok", "worker_id"})
    ok = f.boolean()
    worker_id = f.text()
    deleted = f.boolean()


class WorkerComponent(f.Component):
    """A worker. ``id`` equals ``worker_id``; it is one of a kind together with ``client``."""

    worker_id = f.text()
    id = f.text()
    client = f.nullable(
        description="The credential that it comes with; null for a worker of the project."
    )
    state = f.text()
    status = f.one_of("healthy", "degraded", "stale")
    directive = f.nullable(description="What it was told.")
    hostname = f.text()
    pid = f.nullable("integer")
    concurrency = f.nullable("integer")
    active_jobs = f.count()
    queues = f.strings()
    labels = f.described({"type": ["object", "array"]})
    version = f.text()
    started_at = f.timestamp()
    last_heartbeat_at = f.timestamp()


class WorkerAnswer(WorkerComponent):
    """A worker, flat and wrapped."""

    worker = WorkerComponent


class WorkerSummary(f.Component):
    """In figures."""

    total = f.count()
    running = f.count()
    quiet = f.count()
    stale = f.count()


class WorkerPage(f.Component):
    """A page of workers; ``items`` equals ``workers``, ``summary`` is of the page."""

    workers = f.array(WorkerComponent)
    items = f.array(WorkerComponent)
    pagination = f.Pagination
    summary = WorkerSummary


class JobProgressRequest(LeaseClaimFields):
    """How far it is."""

    either = ("progress", "percentage", "data")
    progress = f.described({"type": "number"}, "0 to 1; what is beyond is lowered.")
    percentage = f.described({"type": "number"}, "0 to 100.")
    message = f.described({"type": ["string", "null"]})
    data = f.anything("At most 64 KiB.")
    checkpoint = f.anything("Saved as by `PUT /jobs/{job_id}/checkpoint`; null for none.")
    extend_timeout = f.duration("Adds to the running attempt.")
    extend_timeout_ms = f.milliseconds(minimum=1)


class ProgressRequest(JobProgressRequest):
    """How far a job is."""

    needed = frozenset({"job_id"})
    job_id = f.text("Also `id`.")


class ProgressComponent(f.Component):
    """The last progress, ``null`` when none was reported."""

    needed = frozenset({"job_id", "state", "progress", "percentage", "message", "data"})
    job_id = f.uuid()
    state = f.state()
    progress = f.nullable("number")
    percentage = f.nullable("number")
    message = f.nullable()
    data = f.anything()
    acknowledged = f.boolean()
    updated_at = f.timestamp()


class CheckpointRequest(LeaseClaimFields):
    """What the next attempt needs to go on."""

    needed = frozenset({"state"})
    state = f.anything("Any JSON value, at most 1 MiB.")
    metadata = f.anything()
    step_index = f.anything()


class Checkpoint(Saved):
    """A checkpoint, flat and wrapped."""

    needed = frozenset({"job_id", "state", "sequence", "checkpoint"})
    checkpoint = Saved


class Resume(f.Component):
    """Where to go on."""

    needed = frozenset({"has_checkpoint", "job_id"})
    has_checkpoint = f.boolean()
    job_id = f.uuid()
    checkpoint = Saved


class Deleted(f.Component):
    """It is gone."""

    deleted = f.boolean()
    job_id = f.uuid()
