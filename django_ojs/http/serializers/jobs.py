"""Jobs: what is asked and what is returned."""

from __future__ import annotations

from rest_framework.serializers import (
    BooleanField,
    CharField,
    FloatField,
    IntegerField,
    JSONField,
    ListField,
)

from django_ojs.domain.limits import NAMES as LIMITS
from django_ojs.http.serializers.base import (
    PRIORITY,
    QUEUE,
    STATE,
    TYPE,
    UUID_TEXT,
    Pagination,
    Raw,
    Request,
    Shape,
    Warned,
    _count,
    _duration,
    _moment_asked,
    _more_ms,
    _ms,
    _object,
    _or_null,
    _strings,
    _text,
    _when,
)


class RetryPolicy(Shape):
    """When a failed job is tried again; all eight fields."""

    max_attempts = _count()
    initial_interval = _text("ISO 8601.")
    backoff_coefficient = FloatField()
    max_interval = _text("ISO 8601.")
    jitter = BooleanField()
    non_retryable_errors = _strings()
    on_exhaustion = _text(enum=["discard", "dead_letter"])
    backoff_strategy = _text(enum=["exponential", "linear", "polynomial", "constant"])


class RetryPolicyInput(Request):
    """A full or partial policy, merged over the defaults. A bad one, and one with a field that is
    not known, is 422 `validation_error`.

    The camelCase spellings of the SDKs are accepted too.
    """

    max_attempts = Raw(
        {"type": "integer", "minimum": 0, "maximum": 100_000}, "Executions, not retries."
    )
    initial_interval = _duration()
    initial_interval_ms = _ms("Also `initial_delay_ms`, `base_delay_ms`.")
    backoff_coefficient = Raw({"type": "number", "minimum": 1}, "Also `multiplier`.")
    max_interval = _duration("An `initial_interval` above it is capped at it.")
    max_interval_ms = _ms("Also `max_delay_ms`.")
    jitter = BooleanField()
    non_retryable_errors = _strings("Error types; exact, or a prefix that ends in `.*`.")
    on_exhaustion = _text(enum=["discard", "dead_letter"])
    backoff_strategy = _text(
        "Also `backoff_type`, `strategy`, `backoff`.",
        enum=["exponential", "linear", "polynomial", "constant", "none", "fixed"],
    )


class LimitsInput(Request):
    """The limits of a job. A name that ends in ``_ms`` wins over the one without."""

    timeout = _duration("Of each attempt. Integer seconds, or a duration such as `30s` or `PT5M`.")
    timeout_ms = _ms("0 is unset.")
    grace_period = _duration("Between the end of `timeout` and the end of the attempt.", least=0)
    grace_period_ms = _ms()
    heartbeat_timeout = _duration("Without a sign of life for so long, the attempt is given up.")
    heartbeat_timeout_ms = _ms()
    total_timeout = _duration("For the job with all its retries.")
    total_timeout_ms = _ms()
    enqueue_ttl = _duration("How long it may wait for its first start.")
    enqueue_ttl_ms = _ms()


class JobOptions(LimitsInput):
    """What a job may ask for: here, or at the top level. These win."""

    queue = Raw(QUEUE)
    priority = Raw(PRIORITY, "Higher first.")
    tags = ListField(child=CharField(max_length=255), max_length=50)
    visibility_timeout = _duration()
    visibility_timeout_ms = _ms()
    scheduled_at = _moment_asked("RFC 3339 with a zone, or a time from now. Also `delay_until`.")
    expires_at = _moment_asked("A job that has not started by then is discarded.")
    retry = RetryPolicyInput(help_text="Also `retry_policy`.")
    pending = BooleanField(help_text="Wait for `activate`.")
    meta = _object("Also `metadata`. At most 64 KiB.")
    unique = _object("Checked, kept and returned; not enforced.")
    rate_limit = _object("Checked, kept and returned; not enforced.")
    workflow_timeout = _duration("Checked, kept and returned; not enforced.")


class JobRequest(JobOptions):
    """A job to enqueue.

    Fields that only the server sets, such as `state`, are ignored; unknown ones are kept with the
    job and returned.
    """

    needed = frozenset({"type", "args"})
    type = Raw(TYPE)
    args = ListField(child=JSONField(), help_text="At most 1 MiB.")
    id = Raw(UUID_TEXT, "A lower-case UUIDv7. The same content again is 200, another one 409.")
    specversion = _text(examples=["1.0"])
    schema = _text("Kept and returned.")
    version = Raw({"type": ["integer", "string"]}, "Kept and returned.")
    options = JobOptions()


class BatchRequest(Request):
    """Jobs that are enqueued together or not at all; at most ``MAX_BATCH``."""

    needed = frozenset({"jobs"})
    jobs = ListField(child=JobRequest(), min_length=1)


class JobPatch(LimitsInput):
    """Changes of a waiting job; at least one."""

    either = (
        "priority",
        "queue",
        *(f"{name}{end}" for name in LIMITS for end in ("", "_ms") if name != "visibility_timeout"),
    )
    priority = Raw(PRIORITY)
    queue = Raw(QUEUE)
    reason = CharField()


class Reason(Request):
    """Why, for the event."""

    reason = CharField()


class RetryRequest(Reason):
    """A new life for a discarded job, also in another queue or with another priority."""

    expires_at = Raw({"type": ["string", "null"]}, "Replaces an `expires_at` that has passed.")
    queue = CharField(max_length=255, help_text="Another queue.")
    override = _object("`queue`, `priority` and `expires_at` may stand in here too, and win.")
    priority = Raw(PRIORITY, "Another priority.")


class Evidence(Request):
    """What proves an attempt: the lease that the fetch gave, or else worker and attempt.

    Those that are given must match. The header `OJS-Lease` stands for `lease_id`.
    """

    lease_id = Raw(UUID_TEXT, "`lease.id` of the fetch; also `lease: {id}`.")
    worker_id = CharField(max_length=255)
    attempt = _count()


class ExtendRequest(Evidence):
    """How much longer; the first that is given counts."""

    either = ("extend_timeout_ms", "extend_timeout", "by_ms", "by", "timeout_ms", "timeout")
    extend_timeout = _duration()
    extend_timeout_ms = _more_ms()
    by = _duration()
    by_ms = _more_ms()
    timeout = _duration()
    timeout_ms = _more_ms()
    reason = CharField()


class JobError(Shape):
    """Why an attempt failed."""

    needed = frozenset({"type", "code", "message"})
    type = CharField()
    code = CharField()
    message = CharField()
    retryable = BooleanField()
    details = _object()
    backtrace = _strings()
    directive = _text(enum=["RETRY", "DISCARD", "DEAD_LETTER", "FAIL"])
    timeout_kind = CharField()
    limit_seconds = JSONField()
    elapsed_seconds = JSONField()
    limit_ms = IntegerField()
    elapsed_ms = IntegerField()
    attempt = _count()
    occurred_at = _when()
    timestamp = _when()


class Saved(Shape):
    """A checkpoint."""

    needed = frozenset({"state", "sequence"})
    job_id = Raw(UUID_TEXT)
    state = JSONField(help_text="Any JSON value.")
    sequence = IntegerField(help_text="Counts from 1.")
    step_index = JSONField()
    metadata = JSONField()
    created_at = _when()
    updated_at = _when()


class Lease(Shape):
    """The right to report on an attempt. Only its worker sees it."""

    id = Raw(UUID_TEXT)
    seq = IntegerField()
    expires_at = _or_null(text="Until when a sign of life is needed.")
    deadline_at = _or_null(text="When the attempt ends, whatever happens.")
    soft_deadline_at = _or_null(text="When `timeout` is over and the grace begins.")


class JobFields(Shape):
    """What every form of a job has; a field without a value is left out."""

    needed = frozenset(
        {"specversion", "id", "type", "state", "queue", "meta", "priority", "attempt", "max_attempts"}
        | {"tags", "retry", "timeout_ms", "grace_period", "grace_period_ms"}
        | {"heartbeat_timeout", "heartbeat_timeout_ms", "created_at"}
    )
    specversion = CharField()
    id = Raw(UUID_TEXT)
    type = CharField()
    state = Raw(STATE)
    queue = CharField()
    meta = _object()
    priority = IntegerField()
    attempt = _count()
    max_attempts = _count()
    tags = _strings()
    retry = RetryPolicy()
    timeout = Raw({"type": "integer"}, "Seconds; absent in answers to a fetch.")
    timeout_ms = IntegerField()
    grace_period = IntegerField()
    grace_period_ms = IntegerField()
    heartbeat_timeout = IntegerField()
    heartbeat_timeout_ms = IntegerField()
    total_timeout = IntegerField()
    total_timeout_ms = IntegerField()
    enqueue_ttl = IntegerField()
    enqueue_ttl_ms = IntegerField()
    visibility_timeout = IntegerField()
    visibility_timeout_ms = IntegerField()
    created_at = _when()
    enqueued_at = _when()
    scheduled_at = _text("As the client wrote it, if it was absolute.")
    expires_at = _text("As the client wrote it, if it was absolute.")
    started_at = _when()
    completed_at = _when()
    cancelled_at = _when()
    discarded_at = _when()
    next_attempt_at = _when()
    next_retry_at = _when()
    re_enqueued_at = _when("The last manual retry.")
    retry_delay_ms = IntegerField()
    worker_id = CharField()
    error = JobError(help_text="The last failure.")
    errors = ListField(child=JobError())  # type: ignore[assignment]
    progress = FloatField()
    progress_message = CharField()
    progress_data = JSONField()
    checkpoint = Saved()
    last_checkpoint = JSONField()
    dead_letter = BooleanField()


class Job(JobFields):
    """The job envelope of Open Job Spec."""

    needed = JobFields.needed | {"args"}
    args = ListField(child=JSONField())
    result = JSONField()


class ClaimedJob(Job):
    """A job as its worker gets it: with a lease, with ``timeout_ms`` only."""

    needed = Job.needed | {"lease"}
    lease = Lease()


class JobAnswer(JobFields):
    """A job, and its fields once more beside it."""

    needed = JobFields.needed | {"job"}
    job = Job()
    deduplicated = BooleanField()
    warnings = ListField(child=Warned())
    previous_state = Raw(STATE)
    activated_at = _when()
    extended_by_ms = IntegerField(help_text="How much of the extension asked for was granted.")
    extended_ms = IntegerField(help_text="By how much the attempt was extended in all.")
    soft_deadline_at = _or_null(text="When the handler is to stop.")
    deadline_at = _or_null(text="When the running attempt ends.")


class BatchAnswer(Shape):
    """The jobs in the order of the request."""

    needed = frozenset({"jobs", "count"})
    warnings = ListField(child=Warned())
    jobs = ListField(child=Job())
    count = IntegerField()


class JobPage(Shape):
    """A page of jobs; ``items`` equals ``jobs``."""

    jobs = ListField(child=Job())
    items = ListField(child=Job())
    pagination = Pagination()


class Result(Shape):
    """The result of a job."""

    job_id = Raw(UUID_TEXT)
    state = Raw(STATE)
    result = JSONField(help_text="`null` until there is one.")
