"""What workers call: fetch, report, beat, register (OJS worker protocol)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from math import inf
from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from django_ojs import clock, conf
from django_ojs.domain import failures
from django_ojs.domain.durations import parse_instant
from django_ojs.domain.errors import InvalidRequest, NotFound, OJSError
from django_ojs.domain.job import LARGE, JobRow
from django_ojs.domain.jsonvalue import MAX_RESULT_BYTES, encode
from django_ojs.domain.leases import Lease, RenewedLease
from django_ojs.domain.names import check_queue_name
from django_ojs.domain.states import State
from django_ojs.domain.timeouts import Stop, stop_of, total_deadline
from django_ojs.hooks import SLICE
from django_ojs.http import listing, responses, testing_hooks, waiting
from django_ojs.http.base import OJSViewSet, integer_field, missing
from django_ojs.http.lease_claim import lease_claim_of
from django_ojs.http.views.jobs import extension
from django_ojs.http.worker_bodies import (
    Named,
    named_jobs,
    phase_of,
    queue_name,
    running_jobs,
    visibility_ms_of,
    worker_facts,
    worker_id_of,
)
from django_ojs.models import Worker
from django_ojs.services import attempts, databases, http_workers, leases, operate, workers
from django_ojs.services import claim as claiming
from django_ojs.services.operate import Extension
from django_ojs.services.rate_limits import operate as rate_limits
from django_ojs.services.settle import Report, report
from django_ojs.services.workflows import results
from django_ojs.store import due_times, selectors
from django_ojs.store.contention import atomically

MAX_COUNT = 100
MAX_QUEUES = 100


class WorkViewSet(OJSViewSet):
    """The worker protocol."""

    scopes = {
        "fetch": ("work",),
        "ack": ("work",),
        "nack": ("work",),
        "beat": ("work",),
        "register": ("work",),
        "deregister": ("work",),
    }

    def fetch(self, request: Request) -> Response:
        """Claim up to ``count`` jobs, each under a lease; waits for up to ``wait_ms``."""
        body = self.body()
        queues = self._queues(body)
        count = min(integer_field(body, "count", "max_jobs", "limit", least=1) or 1, MAX_COUNT)
        wait_ms = min(integer_field(body, "wait_ms", least=0) or 0, waiting.MAX_WAIT_MS)
        visibility_ms = visibility_ms_of(body)
        worker_id = None if body.get("worker_id") is None else worker_id_of(body)
        facts = worker_facts(body, queues)
        where, heard = claiming.sources(queues), False

        def look() -> list[JobRow]:
            nonlocal heard
            beats = False
            if worker_id is not None:
                # Only the first look is a sign of life: a waiting request proves none.
                mine, using = self.caller.key, self.using
                worker = http_workers.known_row(worker_id, mine, using=using) if heard else None
                if worker is None:
                    worker = http_workers.seen(
                        worker_id, mine, beats=False, reported=facts, using=using
                    )
                    heard = True
                if not http_workers.may_fetch(worker):
                    return []
                beats = worker.beats
            return claiming.claim(
                where,
                limit=count,
                worker_id=worker_id,
                beats=beats,
                visibility_ms=visibility_ms,
                principal=self.caller.key,
                most_bytes=listing.MAX_BYTES,
                patience=4,
                promote_for=SLICE,
                using=self.using,
            )

        found = self.long_poll(look, queues, wait_ms, soon=self._opening) if wait_ms else look()
        parents = results.of_jobs(found or (), using=self.using)
        return Response(
            {
                "jobs": [
                    responses.claimed(record) | responses.given(parents.get(record.id))
                    for record in found or ()
                ]
            }
        )

    def _opening(self) -> float:
        """In how many seconds a rate limit may let somebody in because of the time."""
        opens_at = due_times.next_admission(using=self.using)
        return inf if opens_at is None else (opens_at - clock.now(self.using)).total_seconds()

    def ack(self, request: Request, job_id: str | None = None) -> Response:
        """The attempt succeeded; ``result`` is any JSON value."""
        body = self.body(required=job_id is None)
        name = self.job_id_of(job_id, body)
        result = None
        if "result" in body:
            result = encode(body["result"], "result", max_bytes=MAX_RESULT_BYTES)
        return self._report(name, body, Report.ACK, result=result)

    def nack(self, request: Request, job_id: str | None = None) -> Response:
        """The attempt failed, or with ``requeue`` is given back."""
        body = self.body(required=job_id is None)
        name = self.job_id_of(job_id, body)
        requeue = body.get("requeue", False)
        if not isinstance(requeue, bool):
            raise InvalidRequest("requeue", "must be true or false")
        failure = failures.from_wire(body)
        if requeue and failure.retry_after_ms is not None:
            raise InvalidRequest("requeue", "gives the job back at once: leave out the delay")
        kind = Report.REQUEUE if requeue else Report.FAIL
        error = body.get("error")
        asked = error.get("rate_limit_until") if isinstance(error, Mapping) else None
        if asked is None:
            return self._report(name, body, kind, failure=failure)
        until, _ = parse_instant(asked, "error.rate_limit_until", clock.now(self.using))

        def report() -> Response | OJSError:
            # Returned, not raised: what is noted of a refusal is committed.
            try:
                answer = self._report(name, body, kind, failure=failure)
            except OJSError as refusal:
                return refusal
            rate_limits.block_of(self.key(name), until, reason=failure.message, using=self.using)
            return answer

        # Together, so that nobody is let into the place of this job in between.
        answer = atomically(self.using, report)
        if isinstance(answer, OJSError):
            raise answer
        return answer

    def beat(self, request: Request) -> Response:
        """A sign of life: renews the leases it names, and says which are lost."""
        body = self.body()
        worker_id = worker_id_of(body)
        said = named_jobs(body)
        named = said.jobs
        visibility_ms = visibility_ms_of(body)
        by_ms = extension(body, ("extend_timeout",))
        queues = self._queues(body) if body.get("queues") else None
        facts = worker_facts(body, queues) | {"running": running_jobs(body, said)}
        phase = phase_of(body)
        if phase is not None:
            facts["phase"] = phase
        worker = http_workers.seen(
            worker_id, self.caller.key, beats=True, reported=facts, using=self.using
        )
        # Up to a thousand jobs may be named, of foreign queues too: skip large columns.
        small = LARGE.keys() - testing_hooks.needs()
        records = selectors.jobs([job_id for job_id, _ in named], without=small, using=self.using)
        mine = [
            Lease(job.id, job.lease_id)
            for job_id, lease_id in named
            if (job := records.get(job_id)) is not None
            and job.lease_id is not None
            and job.worker_id == worker_id
            and job.lease_principal == self.caller.key
            and lease_id in (None, job.lease_id)
        ]
        kept = leases.beat(mine, visibility_ms=visibility_ms, using=self.using)
        leases.announce(kept, using=self.using)
        extended = self._extend(kept, by_ms)
        now = clock.now(self.using)
        held = {lease.job_id for lease in kept}
        stopping = attempts.told_to_stop(
            worker_id,
            self.caller.key,
            [
                (job, lease_id)
                for job_id, lease_id in named
                if (job := records.get(job_id)) is not None
                and job_id not in held
                and self.caller.sees(job.queue)
                and job.lease_principal in (None, self.caller.key)
            ],
            now=now,
            using=self.using,
        )
        state = testing_hooks.directive(records[lease.job_id] for lease in kept) or worker.directive
        return Response(_beat_response(worker, state, said, records, kept, extended, stopping, now))

    def register(self, request: Request) -> Response:
        """A worker starts. Optional: the first fetch or beat registers too."""
        body = self.body()
        worker_id = worker_id_of(body)
        queues = None if body.get("queues") is None else self._queues(body)
        facts = worker_facts(body, queues) | {
            "incarnation": clock.new_id(),
            "phase": Worker.Phase.RUNNING,
            "directive": None,
            "running": 0,
            "started_at": clock.now(self.using),
        }
        http_workers.seen(worker_id, self.caller.key, beats=True, reported=facts, using=self.using)
        settings = conf.current()
        return Response(
            {
                "ok": True,
                "worker_id": worker_id,
                "server_time": responses.moment(clock.now(self.using)),
                "heartbeat_interval": 5,
                "heartbeat_timeout": (settings.limits.heartbeat_timeout_ms or 0) // 1000,
                "visibility_timeout_default": (settings.limits.timeout_ms or 0) // 1000,
            }
        )

    def deregister(self, request: Request) -> Response:
        """A worker stops; its jobs keep their leases until those end."""
        worker_id = worker_id_of(self.body())
        workers.deregister(worker_id, self.caller.key, using=self.using)
        return Response({"ok": True, "worker_id": worker_id})

    def _report(self, name: str, body: Mapping[str, Any], kind: Report, **stopping: Any) -> Response:
        # With access to every queue the job need not be read first: the report checks it.
        key = self.key(name) if self.caller.unrestricted else self.job(name).id
        lease_claim = lease_claim_of(self, body)
        try:
            settled = report(key, lease_claim, kind, **stopping, using=self.using)
        except NotFound:
            raise missing("job", name) from None
        assert settled.job is not None
        return Response(responses.settled(settled.job))

    def _queues(self, body: Mapping[str, Any]) -> list[str]:
        given = body.get("queues")
        if given is None and body.get("queue") is not None:
            given = [body["queue"]]
        if not isinstance(given, list) or not 0 < len(given) <= MAX_QUEUES:
            raise InvalidRequest("queues", f"must be an array of 1 to {MAX_QUEUES} queue names")
        found = [self.may_use(check_queue_name(queue_name(name), "queues"), "queues") for name in given]
        for name in found:
            databases.refuse_elsewhere(name, self.using, "the jobs that are served here", "queues")
        return found

    def _extend(self, kept: list[RenewedLease], by_ms: int | None) -> Mapping[UUID, Extension]:
        """The granted extensions by job; jobs whose extension was refused are left out."""
        done: dict[UUID, Extension] = {}
        for lease in kept if by_ms is not None else ():
            assert by_ms is not None
            try:
                held = Lease(lease.job_id, lease.lease_id)
                made = operate.extend_timeout(
                    [lease.job_id], by_ms, lease=held, actor=self.actor(), using=self.using
                )[0]
                done[lease.job_id] = made._replace(job=made.job.small())
            except OJSError:
                continue
        return done


def _beat_response(
    worker: Worker,
    order: str | None,
    named: Named,
    records: Mapping[UUID, JobRow],
    kept: list[RenewedLease],
    extended: Mapping[UUID, Extension],
    stopping: Mapping[UUID, tuple[str, Stop | None]],
    now: datetime,
) -> responses.JsonObject:
    held = {lease.job_id: records[lease.job_id] for lease in kept}
    held |= {job_id: made.job for job_id, made in extended.items()}
    deadlines = {lease.job_id: lease.deadline_at for lease in kept}
    deadlines |= {job_id: made.deadline_at for job_id, made in extended.items()}
    stops = {job_id: _stop(job) for job_id, job in held.items()}
    due = {job_id: stop for job_id, stop in stops.items() if stop.at <= now}
    # Their outcome is decided, but until the end of their grace they are not lost.
    due |= {job_id: stop for job_id, (_, stop) in stopping.items() if stop is not None}
    gone = [job_id for job_id, _ in named.jobs if job_id not in held and job_id not in due]
    # About jobs of foreign queues the worker learns only that it has no lease.
    why = {job_id: stopping[job_id][0] if job_id in stopping else "lost" for job_id in gone}
    cancelled = [
        str(job_id)
        for job_id in gone
        if job_id in stopping and records[job_id].state == State.CANCELLED
    ]
    lost = [str(job_id) for job_id in gone if str(job_id) not in cancelled] + named.unknown
    why |= {job_id: "cancelled" for job_id in gone if str(job_id) in cancelled}
    why |= {job_id: stop.reason for job_id, stop in due.items()}
    deadlines |= {job_id: stop.until for job_id, stop in due.items() if job_id not in held}
    state = order or worker.phase
    shown = {"drain": "quiet", "stopped": "running"}.get(state, state)
    return {
        "acknowledged": True,
        "worker_id": worker.name,
        "state": shown,
        "directive": order or "continue",
        "jobs_extended": [str(job_id) for job_id in held],
        "jobs_cancelled": cancelled,
        "cancelled_jobs": cancelled,
        "jobs_lost": lost,
        "lost_jobs": lost,
        "soft_timeout_jobs": [str(job_id) for job_id in due],
        "stop_reasons": {
            **{str(job_id): reason for job_id, reason in why.items()},
            **dict.fromkeys(named.unknown, "lost"),
        },
        "deadline_at": {str(job_id): responses.moment(when) for job_id, when in deadlines.items()},
        "jobs": [
            {
                "id": str(job_id),
                "job_id": str(job_id),
                "attempt": job.attempt,
                "deadline_at": responses.moment(deadlines[job_id]),
                "soft_deadline_at": responses.moment(stops[job_id].at),
                **(responses.extension(extended[job_id]) if job_id in extended else {}),
            }
            for job_id, job in held.items()
        ],
        "server_time": responses.moment(now),
    }


def _stop(job: JobRow) -> Stop:
    assert job.started_at is not None
    return stop_of(job, started_at=job.started_at, total_at=total_deadline(job))
