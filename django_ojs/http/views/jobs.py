"""Jobs: enqueue, read, list, cancel, change (OJS HTTP binding 8 to 10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from django_ojs import clock, conf
from django_ojs.domain.admission import admit
from django_ojs.domain.durations import parse_instant, parse_ms, parse_seconds_ms
from django_ojs.domain.envelope import Envelope, from_wire, parse_priority
from django_ojs.domain.errors import Duplicate, InvalidRequest, NotFound
from django_ojs.domain.job import ExistingJob, JobRow
from django_ojs.domain.limits import CONFIGURABLE, parse_limits
from django_ojs.domain.names import check_queue_name
from django_ojs.domain.near import NearMisses
from django_ojs.domain.states import TERMINAL, State
from django_ojs.http import listing, responses, waiting
from django_ojs.http.base import OJSViewSet, missing, parse_each
from django_ojs.http.duplicates import shielded
from django_ojs.http.lease_claim import lease_claim_of
from django_ojs.http.limits import charge_enqueue
from django_ojs.http.principal import parse_reason
from django_ojs.http.problems import WaitTimeout
from django_ojs.http.replica import from_replica
from django_ojs.services import databases, fencing, operate
from django_ojs.services.enqueue import DROPPED, enqueue
from django_ojs.services.job_defaults import resolve_defaults, warnings_about
from django_ojs.services.verbs import cancelling
from django_ojs.services.workflows import results

_OVERRIDES = frozenset({"queue", "priority", "expires_at"})


class JobViewSet(OJSViewSet):
    """The jobs."""

    scopes = {
        "create": ("produce",),
        "batch": ("produce",),
        "activate": ("produce", "administer"),
        "list": ("inspect",),
        "retrieve": ("inspect",),
        "result": ("inspect",),
        "cancel": ("administer",),
        "partial_update": ("administer",),
        "retry": ("administer",),
        "extend": ("administer", "work"),
    }

    def create(self, request: Request) -> Response:
        """Enqueue a job: 201, or 200 when the same id with the same content, or an equal job, is there
        already, or middleware dropped the job.
        """
        body = self.body()
        self._go_to(body)
        now = clock.now(self.using)
        envelope = self._envelope(body, now)
        self._charge([envelope])
        record = self._shown(self._enqueue([envelope], now)[0], body)
        headers = {"Location": f"/ojs/v1/jobs/{record.id}", **responses.rate_limit_headers(record)}
        self._warn_about(body, envelope, NearMisses())
        if record.state == DROPPED:
            return Response(responses.wrapped(record))
        if record.deduplicated:
            return Response(responses.wrapped(record) | {"deduplicated": True}, headers=headers)
        return Response(responses.wrapped(record), status=201, headers=headers)

    def batch(self, request: Request) -> Response:
        """Enqueue many jobs, all or none: their queues must be in one database."""
        items = self.body().get("jobs")
        most = conf.current().http.max_batch
        if not isinstance(items, list) or not 0 < len(items) <= most:
            raise InvalidRequest("jobs", f"must be an array of 1 to {most} jobs")
        self._go_to(items[0])
        now = clock.now(self.using)
        envelopes = parse_each("jobs", items, lambda item: self._envelope(item, now))
        self._charge(envelopes)
        records = self._enqueue(envelopes, now)
        found = [
            responses.job(self._shown(record, item))
            for record, item in zip(records, items, strict=True)
        ]
        misses = NearMisses()
        for index, (item, envelope) in enumerate(zip(items, envelopes, strict=True)):
            self._warn_about(item, envelope, misses, index=index)
        return Response({"jobs": found, "count": len(found)}, status=201)

    @from_replica
    def list(self, request: Request) -> Response:
        """The jobs, newest first, filtered, by cursor, page or offset."""
        self.use(listing.database_of(request))
        return Response(listing.jobs(request, self.caller, using=self.using))

    def retrieve(self, request: Request, job_id: str) -> Response:
        """One job, as it is now."""
        record = self.job(job_id, fresh=True)
        parents = results.of_jobs([record], using=self.using).get(record.id)
        more = responses.given(parents)
        if self.flat:
            return Response(responses.job(record) | more)
        return Response(responses.wrapped(record, **more))

    flat = False
    """Without the wrapper, as the admin interface wants it."""

    def result(self, request: Request, job_id: str) -> Response:
        """The result of a job, ``null`` until there is one; with ``wait=true`` once the job has ended.

        It waits for ``timeout`` seconds, 30 at most and by default; then 408.
        """
        seconds = _waits(request)
        record = self.job(job_id, fresh=True)
        if seconds and record.state not in TERMINAL:
            record = self._ended(job_id, seconds)
        answer = {"job_id": job_id, "state": record.state, "result": record.json("result")}
        return Response(answer)

    def cancel(self, request: Request, job_id: str) -> Response:
        """Cancel a waiting or running job at once; 409 for one that has ended."""
        record = self.job(job_id)
        given = self.body(required=False) or {"reason": request.query_params.get("reason")}
        decide = cancelling(actor=self.actor(parse_reason(given)), strict=True)
        change = operate.change_each([record.id], decide, using=self.using)[0]
        return Response(responses.wrapped(change.after, previous_state=change.before.state))

    def activate(self, request: Request, job_id: str) -> Response:
        """Let a ``pending`` job run."""
        ids = [self.job(job_id).id]
        record = operate.activate(ids, actor=self.acting(), using=self.using)[0]
        # What has to wait for its time is not enqueued yet.
        when = clock.now(self.using) if record.state == State.SCHEDULED else record.enqueued_at
        activated = responses.moment(when)
        return Response(responses.wrapped(record, previous_state="pending", activated_at=activated))

    def retry(self, request: Request, job_id: str) -> Response:
        """Make a ``discarded`` job available again: attempts and timeouts start from zero."""
        record = self.job(job_id)
        body = self.body(required=False)
        return Response(responses.wrapped(revive(record.id, body, self)))

    def partial_update(self, request: Request, job_id: str) -> Response:
        """Change priority, queue or limits of a waiting job (OJS timeouts 10.3)."""
        record = self.job(job_id, fresh=True)
        changes = self._changes()
        actor = self.acting()
        self.first_use(placed_in(changes))
        after = operate.edit([record.id], changes, actor=actor, using=self.using)
        return Response(responses.wrapped(after[0]))

    def extend(self, request: Request, job_id: str) -> Response:
        """Add time to the running attempt. A worker proves its lease; an administrator need not."""
        body = self.body()
        by_ms = extension(body, ("extend_timeout", "by", "timeout"))
        if by_ms is None:
            raise InvalidRequest(
                "extend_timeout", "is required: seconds, a duration, or extend_timeout_ms"
            )
        record = self.job(job_id, fresh=True)
        lease = None
        lease_claim = lease_claim_of(self, body)
        if lease_claim.lease_id is not None or not self.caller.may("administer"):
            lease = fencing.authorize_report(
                record, lease_claim, now=clock.now(self.using), using=self.using
            )
        made = operate.extend_timeout(
            [record.id], by_ms, lease=lease, actor=self.acting(), using=self.using
        )[0]
        return Response(responses.wrapped(made.job, **responses.extension(made)))

    def _ended(self, job_id: str, seconds: int) -> JobRow:
        """The job when it has ended. Raises :class:`WaitTimeout`."""

        def look() -> JobRow | None:
            record = self.job(job_id, fresh=True)
            return record if record.state in TERMINAL else None

        found = self.long_poll(look, (), seconds * 1000, on_notification=False)
        if found is None:
            raise WaitTimeout(f"The job has not ended within {seconds} s.", job_id=job_id)
        return found

    def _go_to(self, body: Any) -> None:
        """Use the database of the queue that a job is for, also if more of its body is wrong."""
        given = body if isinstance(body, Mapping) else {}
        options = given.get("options")
        inner = options.get("queue") if isinstance(options, Mapping) else None
        self.use(databases.of_call(given.get("type"), inner or given.get("queue")))

    def _charge(self, envelopes: Sequence[Envelope]) -> None:
        """Count against the rates of the credential. Raises :class:`RateLimited`."""
        self.quota = charge_enqueue(self.caller, len(envelopes), self.body_bytes)
        # Queues that come from the settings are not counted.
        self.first_use(envelope.queue for envelope in envelopes if envelope.queue is not None)

    def _enqueue(self, envelopes: Sequence[Envelope], now: datetime) -> Sequence[JobRow]:
        try:
            with shielded(self.caller):
                return enqueue(envelopes, now=now)
        except Duplicate as error:
            taken = error.details.get("existing_job_id")
            places = [index for index, one in enumerate(envelopes) if str(one.id) == taken]
            if len(envelopes) > 1 and places:
                error.details = {"index": places[-1], **error.details}
            raise

    def _shown(self, record: JobRow, body: Any) -> JobRow:
        """The job; without the scope to read it, the job as it was when it was created.

        A repeated request then gets its first response again, and reveals nothing new.
        """
        caller = self.caller
        if not record.deduplicated or (caller.may("inspect") and caller.sees(record.queue)):
            return record
        envelope = from_wire(body, now=record.created_at)
        if envelope.id != record.id:
            # An equal job, of which the caller learns no more than that it is there.
            queue = resolve_defaults(envelope).queue
            return record.small()._replace(queue=queue, worker_id=None, progress_message="")
        first = admit(envelope, resolve_defaults(envelope), job_id=record.id, now=record.created_at)
        return ExistingJob._make(first)

    def _envelope(self, body: Any, now: datetime) -> Envelope:
        envelope = from_wire(body, now=now)
        queue = envelope.queue if self.caller.unrestricted else resolve_defaults(envelope).queue
        if queue is not None:
            self.may_use(queue, "queue")
        return envelope

    def _warn_about(self, body: Any, envelope: Envelope, misses: NearMisses, **more: Any) -> None:
        for field, near in misses.of(body):
            message = f"is not known; did you mean {near!r}?"
            self.warn(field, message, near=near, **more)
        for warning in warnings_about(envelope):
            self.warn(**warning, **more)

    def _changes(self) -> dict[str, Any]:
        body = self.body()
        changes = placed(body, self)
        limits = parse_limits(body)
        for name in CONFIGURABLE:
            value = getattr(limits, f"{name}_ms")
            if value is not None:
                changes[name] = f"{value}ms"
        if not changes:
            names = ", ".join(("priority", "queue", *CONFIGURABLE))
            raise InvalidRequest("body", f"must have one or more of {names}")
        return changes


class FlatJobViewSet(JobViewSet):
    """The same, for those who want a job without a wrapper."""

    flat = True


def extension(body: Any, names: tuple[str, ...]) -> int | None:
    """An additive extension in milliseconds under the first of the names that is given."""
    for name in names:
        if body.get(f"{name}_ms") is not None:
            ms = parse_ms(body[f"{name}_ms"], f"{name}_ms")
            if ms is None:
                raise InvalidRequest(f"{name}_ms", "must be more than 0")
            return ms
        if body.get(name) is not None:
            return parse_seconds_ms(body[name], name)
    return None


def _waits(request: Request) -> int:
    """For how many seconds a result is waited for."""
    listing.allow(request, frozenset({"wait", "timeout"}), frozenset())
    query = request.query_params
    if query.get("wait", "false") not in ("true", "false"):
        raise InvalidRequest("wait", "must be true or false")
    most = waiting.MAX_WAIT_MS // 1000
    requested = query.get("timeout") or str(most)
    if not (requested.isascii() and requested.isdigit()) or len(requested) > 9 or not int(requested):
        raise InvalidRequest("timeout", "must be an integer of at least 1, in seconds")
    return min(int(requested), most) if query.get("wait") == "true" else 0


def placed(body: Any, view: OJSViewSet) -> dict[str, Any]:
    """The queue and the priority that a request names."""
    place: dict[str, Any] = {}
    if body.get("priority") is not None:
        place["priority"] = parse_priority(body["priority"], "priority")
    queue = body.get("queue")
    if queue is not None:
        if not isinstance(queue, str):
            raise InvalidRequest("queue", "must be a string")
        place["queue"] = view.may_use(check_queue_name(queue, "queue"), "queue")
    return place


def placed_in(place: Mapping[str, Any]) -> list[str]:
    """The queue of :func:`placed`, if one was named."""
    return [place["queue"]] if "queue" in place else []


def _overridden(body: Any) -> Any:
    override = body.get("override")
    if override is None:
        return body
    if not isinstance(override, Mapping):
        raise InvalidRequest("override", "must be an object")
    for name in sorted(set(override) - _OVERRIDES, key=str):
        raise InvalidRequest(f"override.{name[:80]}", "cannot be changed by a retry")
    return {**body, **override}


def revive(job_id: Any, body: Any, view: OJSViewSet) -> Any:
    """Manual retry, with what the request says about expiry, queue and priority (OJS dead letter 6.2).

    ``override`` may hold them too, and wins. The policy stays: raises :class:`InvalidRequest` when the
    request has another, :class:`Duplicate` as :func:`operate.retry_dead`.
    """
    body = _overridden(body)
    if body.get("retry") is not None:
        raise InvalidRequest("retry", "cannot be changed by a retry")
    place = placed(body, view)
    now = clock.now(view.using)
    expires_at: Any = False
    if "expires_at" in body:
        value = body["expires_at"]
        expires_at = None if value is None else parse_instant(value, "expires_at", now)[0]
    allow_duplicate = body.get("allow_duplicate")
    if not isinstance(allow_duplicate, (bool, type(None))):
        raise InvalidRequest("allow_duplicate", "must be true or false")
    actor = view.actor(parse_reason(body))
    view.first_use(placed_in(place))
    try:
        with shielded(view.caller):
            return operate.retry_dead(
                [job_id],
                expires_at=expires_at,
                place=place,
                allow_duplicate=bool(allow_duplicate),
                actor=actor,
                using=view.using,
            )[0]
    except NotFound:
        raise missing("job", str(job_id)) from None
