"""Jobs: what is asked and what is returned."""

from __future__ import annotations

from django_ojs.domain.limits import NAMES as LIMITS
from django_ojs.domain.retry import MAX_ATTEMPTS, UNLIMITED
from django_ojs.http.openapi import fields as f
from django_ojs.http.openapi.schemas.rate_limits import RateLimitInput


class RetryPolicyComponent(f.Component):
    """When a failed job is tried again; all eight fields."""

    max_attempts = f.count()
    initial_interval = f.text("ISO 8601.")
    backoff_coefficient = f.number()
    max_interval = f.text("ISO 8601.")
    jitter = f.boolean()
    non_retryable_errors = f.strings()
    on_exhaustion = f.one_of("discard", "dead_letter")
    backoff_strategy = f.one_of("exponential", "linear", "polynomial", "constant")


class RetryPolicyInput(f.Body):
    """A full or partial policy, merged over the defaults. A bad one, and one with a field that is
    not known, is 422 `validation_error`.

    The camelCase spellings of the SDKs are accepted too.
    """

    max_attempts = f.described(
        {
            "anyOf": [
                f.integer(minimum=0, maximum=MAX_ATTEMPTS),
                {"const": UNLIMITED},
                {"type": "null"},
            ]
        },
        f"Executions, not retries. `null` is no limit; it is returned as {UNLIMITED}.",
    )
    initial_interval = f.duration()
    initial_interval_ms = f.milliseconds("Also `initial_delay_ms`, `base_delay_ms`.")
    backoff_coefficient = f.described({"type": "number", "minimum": 1}, "Also `multiplier`.")
    max_interval = f.duration("An `initial_interval` above it is capped at it.")
    max_interval_ms = f.milliseconds("Also `max_delay_ms`.")
    jitter = f.boolean()
    non_retryable_errors = f.strings("Error types; exact, or a prefix that ends in `.*`.")
    on_exhaustion = f.one_of("discard", "dead_letter")
    backoff_strategy = f.text(
        "Also `backoff_type`, `strategy`, `backoff`.",
        enum=["exponential", "linear", "polynomial", "constant", "none", "fixed"],
    )


class LimitsInput(f.Body):
    """The limits of a job. A name that ends in ``_ms`` wins over the one without."""

    timeout = f.duration("Of each attempt. Integer seconds, or a duration such as `30s` or `PT5M`.")
    timeout_ms = f.milliseconds("0 is unset.")
    grace_period = f.duration("Between the end of `timeout` and the end of the attempt.", minimum=0)
    grace_period_ms = f.milliseconds()
    heartbeat_timeout = f.duration("Without a sign of life for so long, the attempt is given up.")
    heartbeat_timeout_ms = f.milliseconds()
    total_timeout = f.duration("For the job with all its retries.")
    total_timeout_ms = f.milliseconds()
    enqueue_ttl = f.duration("How long it may wait for its first start.")
    enqueue_ttl_ms = f.milliseconds()
    attempt_ttl = f.duration("How long each attempt may wait for its start once it is available.")
    attempt_ttl_ms = f.milliseconds()


class UniquePolicyInput(f.Body):
    """Which jobs count as the same, and what becomes of the second (OJS unique jobs 2)."""

    keys = f.array(f.one_of("type", "queue", "args", "meta"), "What is compared; `type` always is.")
    key = f.described(
        {"type": ["string", "array"], "items": {"type": "string"}},
        "A text in place of all that; an array is `keys`, or `args_keys`.",
    )
    args_keys = f.array(f.text(), "Names of arguments, or of members of the first object in `args`.")
    meta_keys = f.array(f.text(), "With `meta` among the keys.")
    period = f.duration("A job that was created longer ago does not count.")
    period_ms = f.milliseconds()
    states = f.array(
        f.text(), "Jobs in other states do not count. By default the five of jobs that go on."
    )
    on_conflict = f.one_of("reject", "ignore", "use_existing", "replace", "replace_except_schedule")
    debounce_ms = f.milliseconds()
    max_wait_ms = f.milliseconds()


class JobOptions(LimitsInput):
    """What a job may ask for: here, or at the top level. These win."""

    queue = f.queue()
    priority = f.priority("Higher first.")
    tags = f.array(f.name(), maxItems=50)
    visibility_timeout = f.duration()
    visibility_timeout_ms = f.milliseconds()
    scheduled_at = f.moment("RFC 3339 with a zone, or a time from now. Also `delay_until`.")
    expires_at = f.moment("A job that has not started by then is discarded.")
    retry = f.described(RetryPolicyInput, "Also `retry_policy`.")
    pending = f.boolean("Wait for `activate`.")
    meta = f.mapping("Also `metadata`. At most 64 KiB.")
    unique = f.described(
        UniquePolicyInput, "409 with the existing job, or 200 with `deduplicated`, for an equal one."
    )
    rate_limit = RateLimitInput
    workflow_timeout = f.duration("Checked, kept and returned; not enforced.")


class JobRequest(JobOptions):
    """A job to enqueue.

    Fields that only the server sets, such as `state`, are ignored; unknown ones are kept with the
    job and returned.
    """

    needed = frozenset({"type", "args"})
    type = f.job_type()
    args = f.array(f.anything(), "At most 1 MiB.")
    id = f.uuid("A lower-case UUIDv7. The same content again is 200, another one 409.")
    specversion = f.text(examples=["1.0"])
    schema = f.text("Kept and returned.")
    version = f.described({"type": ["integer", "string"]}, "Kept and returned.")
    options = JobOptions


class BatchRequest(f.Body):
    """Jobs that are enqueued together or not at all; at most ``MAX_BATCH``."""

    needed = frozenset({"jobs"})
    jobs = f.array(JobRequest, minItems=1)


class JobPatch(LimitsInput):
    """Changes of a waiting job; at least one."""

    either = (
        "priority",
        "queue",
        *(f"{name}{end}" for name in LIMITS for end in ("", "_ms") if name != "visibility_timeout"),
    )
    priority = f.priority()
    queue = f.queue()
    reason = f.text()


class Reason(f.Body):
    """Why, for the event."""

    reason = f.text()


class RetryRequest(Reason):
    """Make a discarded job available again, optionally in another queue or with another priority."""

    expires_at = f.described({"type": ["string", "null"]}, "Replaces an `expires_at` that has passed.")
    queue = f.name("Another queue.")
    override = f.mapping("`queue`, `priority` and `expires_at` may stand in here too, and win.")
    priority = f.priority("Another priority.")
    allow_duplicate = f.boolean("Even while an equal unique job waits or runs; otherwise that is 409.")


class LeaseClaimFields(f.Body):
    """What proves an attempt: the lease that the fetch gave, or else worker and attempt.

    Those that are given must match. The header `OJS-Lease` stands for `lease_id`.
    """

    lease_id = f.uuid("`lease.id` of the fetch; also `lease: {id}`.")
    worker_id = f.name()
    attempt = f.count()


class ExtendRequest(LeaseClaimFields):
    """How much longer; the first that is given counts."""

    either = ("extend_timeout_ms", "extend_timeout", "by_ms", "by", "timeout_ms", "timeout")
    extend_timeout = f.duration()
    extend_timeout_ms = f.milliseconds(minimum=1)
    by = f.duration()
    by_ms = f.milliseconds(minimum=1)
    timeout = f.duration()
    timeout_ms = f.milliseconds(minimum=1)
    reason = f.text()


class JobError(f.Component):
    """Why an attempt failed."""

    needed = frozenset({"type", "code", "message"})
    type = f.text()
    code = f.text()
    message = f.text()
    retryable = f.boolean()
    details = f.mapping()
    backtrace = f.strings()
    directive = f.directive()
    timeout_kind = f.text()
    limit_seconds = f.anything()
    elapsed_seconds = f.anything()
    limit_ms = f.integer()
    elapsed_ms = f.integer()
    attempt = f.count()
    occurred_at = f.timestamp()
    timestamp = f.timestamp()


class Saved(f.Component):
    """A checkpoint."""

    needed = frozenset({"state", "sequence"})
    job_id = f.uuid()
    state = f.anything("Any JSON value.")
    sequence = f.integer("Counts from 1.")
    step_index = f.anything()
    metadata = f.anything()
    created_at = f.timestamp()
    updated_at = f.timestamp()


class LeaseComponent(f.Component):
    """The right to report on an attempt. Only its worker sees it."""

    id = f.uuid()
    seq = f.integer()
    expires_at = f.nullable(description="Until when a sign of life is needed.")
    deadline_at = f.nullable(description="When the attempt ends, whatever happens.")
    soft_deadline_at = f.nullable(description="When `timeout` is over and the grace begins.")


class JobFields(f.Component):
    """What every form of a job has; a field without a value is left out."""

    needed = frozenset(
        {"specversion", "id", "type", "state", "queue", "meta", "priority", "attempt", "max_attempts"}
        | {"tags", "retry", "timeout_ms", "grace_period", "grace_period_ms"}
        | {"heartbeat_timeout", "heartbeat_timeout_ms", "created_at"}
    )
    specversion = f.text()
    id = f.uuid()
    type = f.text()
    state = f.state()
    queue = f.text()
    meta = f.mapping()
    priority = f.integer()
    attempt = f.count()
    max_attempts = f.count()
    tags = f.strings()
    retry = RetryPolicyComponent
    timeout = f.integer("Seconds; absent in answers to a fetch.")
    timeout_ms = f.integer()
    grace_period = f.integer()
    grace_period_ms = f.integer()
    heartbeat_timeout = f.integer()
    heartbeat_timeout_ms = f.integer()
    total_timeout = f.integer()
    total_timeout_ms = f.integer()
    enqueue_ttl = f.integer()
    enqueue_ttl_ms = f.integer()
    attempt_ttl = f.integer()
    attempt_ttl_ms = f.integer()
    visibility_timeout = f.integer()
    visibility_timeout_ms = f.integer()
    created_at = f.timestamp()
    enqueued_at = f.timestamp()
    scheduled_at = f.text("As the client wrote it, if it was absolute.")
    expires_at = f.text("As the client wrote it, if it was absolute.")
    started_at = f.timestamp()
    completed_at = f.timestamp()
    cancelled_at = f.timestamp()
    discarded_at = f.timestamp()
    next_attempt_at = f.timestamp()
    next_retry_at = f.timestamp()
    re_enqueued_at = f.timestamp("The last manual retry.")
    retry_delay_ms = f.integer()
    worker_id = f.text()
    error = f.described(JobError, "The last failure.")
    errors = f.array(JobError)
    progress = f.number()
    progress_message = f.text()
    progress_data = f.anything()
    checkpoint = Saved
    last_checkpoint = f.anything()
    dead_letter = f.boolean()


class JobComponent(JobFields):
    """The job envelope of Open Job Spec."""

    needed = JobFields.needed | {"args"}
    args = f.array(f.anything())
    result = f.anything()


class ClaimedJob(JobComponent):
    """A job as its worker gets it: with a lease, with ``timeout_ms`` only."""

    needed = JobComponent.needed | {"lease"}
    lease = LeaseComponent


class JobAnswer(JobFields):
    """A job, and its fields once more beside it."""

    needed = JobFields.needed | {"job"}
    job = JobComponent
    deduplicated = f.boolean()
    warnings = f.array(f.Warned)
    previous_state = f.state()
    activated_at = f.timestamp()
    extended_by_ms = f.integer("How much of the extension asked for was granted.")
    extended_ms = f.integer("By how much the attempt was extended in all.")
    soft_deadline_at = f.nullable(description="When the handler is to stop.")
    deadline_at = f.nullable(description="When the running attempt ends.")


class BatchAnswer(f.Component):
    """The jobs in the order of the request."""

    needed = frozenset({"jobs", "count"})
    warnings = f.array(f.Warned)
    jobs = f.array(JobComponent)
    count = f.integer()


JobPage = f.page("JobPage", "jobs", JobComponent)


class Result(f.Component):
    """The result of a job."""

    job_id = f.uuid()
    state = f.state()
    result = f.anything("`null` until there is one.")
