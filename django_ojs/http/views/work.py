"""What workers call: fetch, report, beat, register (OJS worker protocol)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, overload
from uuid import UUID

from rest_framework.exceptions import NotAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

from django_ojs import clock, conf
from django_ojs.domain import failures
from django_ojs.domain.durations import parse_ms, parse_seconds_ms
from django_ojs.domain.envelope import check_queue_name
from django_ojs.domain.errors import InvalidRequest, NotFound, OJSError
from django_ojs.domain.evidence import check_worker_id
from django_ojs.domain.job import JobRecord
from django_ojs.domain.jsonvalue import MAX_META_BYTES, MAX_RESULT_BYTES, encode
from django_ojs.domain.states import State
from django_ojs.domain.timeouts import Stop, stop_of, total_deadline
from django_ojs.hooks import SLICE
from django_ojs.http import shapes, testing_hooks, waiting
from django_ojs.http.base import OJSViewSet, missing, text, whole
from django_ojs.http.evidence import evidence_of, parse_lease
from django_ojs.http.limits import LONG_POLLS
from django_ojs.http.views.jobs import extension
from django_ojs.models import Worker
from django_ojs.services import attempts, heartbeat, operate, promote, tokens, workers
from django_ojs.services import claim as claiming
from django_ojs.services.operate import Extension
from django_ojs.services.settle import Report, report
from django_ojs.store import selectors
from django_ojs.store.leases import Held, Kept

MAX_COUNT = 100
MAX_QUEUES = 100
MAX_HELD = 1000
_FORMS = ("active_job_ids", "jobs", "leases", "active_jobs")
"""The fields of a beat that may name jobs; the first list that is there counts."""
_PHASES = {
    "running": Worker.Phase.RUNNING,
    "active": Worker.Phase.RUNNING,
    "quiet": Worker.Phase.QUIET,
    "terminate": Worker.Phase.TERMINATE,
    "drain": Worker.Phase.DRAIN,
    "draining": Worker.Phase.DRAIN,
}


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
        count = min(whole(body, "count", "max_jobs", "limit", least=1) or 1, MAX_COUNT)
        wait_ms = min(whole(body, "wait_ms", least=0) or 0, waiting.MAX_WAIT_MS)
        visibility_ms = visibility(body)
        worker_id = _worker_id(body, required=False)
        said = _said(body, queues)
        heard = False

        def look() -> list[JobRecord]:
            nonlocal heard
            token_id = self.caller.token_id if wait_ms else None
            if token_id is not None and not tokens.still_live(token_id, using=self.using):
                raise NotAuthenticated
            beats = False
            if worker_id is not None:
                # Heard when it asked: while it waits, nothing is known of it.
                worker = workers.look(worker_id, using=self.using) if heard else None
                if worker is None:
                    worker = workers.seen(
                        worker_id, self.caller.key, beats=False, said=said, using=self.using
                    )
                    heard = True
                if not workers.may_fetch(worker):
                    return []
                beats = worker.beats
            promote.promote(seconds=SLICE, using=self.using)
            return claiming.claim(
                claiming.sources(queues),
                limit=count,
                worker_id=worker_id,
                beats=beats,
                visibility_ms=visibility_ms,
                principal=self.caller.key,
                patience=4,
                using=self.using,
            )

        if wait_ms:
            limits = conf.current().http
            with LONG_POLLS.take(
                self.caller, most=limits.long_polls, most_each=limits.long_polls_per_token
            ):
                found = waiting.until(
                    look,
                    queues,
                    wait_ms,
                    gone=lambda: waiting.hung_up(request.META),
                    using=self.using,
                )
        else:
            found = look()
        return Response({"jobs": [shapes.claimed(record) for record in found or ()]})

    def ack(self, request: Request, job_id: str | None = None) -> Response:
        """The attempt succeeded; ``result`` is any JSON value."""
        body = self.body(required=job_id is None)
        name = self.named(job_id, body)
        result = None
        if "result" in body:
            result = encode(body["result"], "result", max_bytes=MAX_RESULT_BYTES)
        return self._report(name, body, Report.ACK, result=result)

    def nack(self, request: Request, job_id: str | None = None) -> Response:
        """The attempt failed, or with ``requeue`` is given back."""
        body = self.body(required=job_id is None)
        name = self.named(job_id, body)
        requeue = body.get("requeue", False)
        if not isinstance(requeue, bool):
            raise InvalidRequest("requeue", "must be true or false")
        failure = failures.from_wire(body)
        if requeue and failure.retry_after_ms is not None:
            raise InvalidRequest("requeue", "gives the job back at once: leave out the delay")
        kind = Report.REQUEUE if requeue else Report.FAIL
        return self._report(name, body, kind, failure=failure)

    def beat(self, request: Request) -> Response:
        """A sign of life: renews the leases it names, and says which are lost."""
        body = self.body()
        worker_id = _worker_id(body)
        named = _named(body)
        visibility_ms = visibility(body)
        by_ms = extension(body, ("extend_timeout",))
        queues = self._queues(body) if body.get("queues") else None
        said = _said(body, queues) | {"running": _running(body, named)}
        phase = _phase(body)
        if phase is not None:
            said["phase"] = phase
        worker = workers.seen(worker_id, self.caller.key, beats=True, said=said, using=self.using)
        records = selectors.jobs([job_id for job_id, _ in named], using=self.using)
        mine = [
            Held(job.id, job.lease_id)
            for job_id, lease_id in named
            if (job := records.get(job_id)) is not None
            and job.lease_id is not None
            and job.worker_id == worker_id
            and job.lease_principal == self.caller.key
            and lease_id in (None, job.lease_id)
        ]
        kept = heartbeat.beat(mine, visibility_ms=visibility_ms, using=self.using)
        extended = self._extend(kept, by_ms)
        now = clock.now(self.using)
        held = {lease.job_id for lease in kept}
        told = attempts.told_to_stop(
            worker_id,
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
        return Response(_beat_shape(worker, state, named, records, kept, extended, told, now))

    def register(self, request: Request) -> Response:
        """A worker starts. Optional: the first fetch or beat registers too."""
        body = self.body()
        worker_id = _worker_id(body)
        queues = None if body.get("queues") is None else self._queues(body)
        said = _said(body, queues) | {
            "incarnation": clock.new_id(),
            "phase": Worker.Phase.RUNNING,
            "directive": None,
            "running": 0,
            "started_at": clock.now(self.using),
        }
        workers.seen(worker_id, self.caller.key, beats=True, said=said, using=self.using)
        settings = conf.current()
        return Response(
            {
                "ok": True,
                "worker_id": worker_id,
                "server_time": shapes.moment(clock.now(self.using)),
                "heartbeat_interval": 5,
                "heartbeat_timeout": (settings.limits.heartbeat_timeout_ms or 0) // 1000,
                "visibility_timeout_default": (settings.limits.timeout_ms or 0) // 1000,
            }
        )

    def deregister(self, request: Request) -> Response:
        """A worker stops; its jobs keep their leases until those end."""
        worker_id = _worker_id(self.body())
        workers.own(worker_id, self.caller.key, using=self.using)
        workers.deregister(worker_id, using=self.using)
        return Response({"ok": True, "worker_id": worker_id})

    def _report(self, name: str, body: Mapping[str, Any], kind: Report, **told: Any) -> Response:
        # Who sees every queue need not be shown the job first: the report finds out what is there.
        key = self.key(name) if self.caller.unrestricted else self.job(name).id
        evidence = evidence_of(self.request, body, self.caller, using=self.using)
        try:
            settled = report(key, evidence, kind, **told, using=self.using)
        except NotFound:
            raise missing("job", name) from None
        assert settled.job is not None
        return Response(shapes.settled(settled.job))

    def _queues(self, body: Mapping[str, Any]) -> list[str]:
        given = body.get("queues")
        if given is None and body.get("queue") is not None:
            given = [body["queue"]]
        if not isinstance(given, list) or not 0 < len(given) <= MAX_QUEUES:
            raise InvalidRequest("queues", f"must be an array of 1 to {MAX_QUEUES} queue names")
        return [self.may_use(check_queue_name(_name(name), "queues"), "queues") for name in given]

    def _extend(self, kept: list[Kept], by_ms: int | None) -> Mapping[UUID, Extension]:
        """What was granted to the attempts; a job that an extension cannot help is left out."""
        done: dict[UUID, Extension] = {}
        for lease in kept if by_ms is not None else ():
            assert by_ms is not None
            try:
                held = Held(lease.job_id, lease.lease_id)
                done[lease.job_id] = operate.extend_timeout(
                    [lease.job_id], by_ms, lease=held, actor=self.actor(), using=self.using
                )[0]
            except OJSError:
                continue
        return done


def _beat_shape(
    worker: Worker,
    order: str | None,
    named: list[tuple[UUID, UUID | None]],
    records: Mapping[UUID, JobRecord],
    kept: list[Kept],
    extended: Mapping[UUID, Extension],
    told: Mapping[UUID, tuple[str, Stop | None]],
    now: datetime,
) -> shapes.Shape:
    held = {lease.job_id: records[lease.job_id] for lease in kept}
    held |= {job_id: made.job for job_id, made in extended.items()}
    deadlines = {lease.job_id: lease.deadline_at for lease in kept}
    deadlines |= {job_id: made.deadline_at for job_id, made in extended.items()}
    stops = {job_id: _stop(job) for job_id, job in held.items()}
    due = {job_id: stop for job_id, stop in stops.items() if stop.at <= now}
    # The outcome of these is settled; until the end of their grace they are not lost yet.
    due |= {job_id: stop for job_id, (_, stop) in told.items() if stop is not None}
    gone = [job_id for job_id, _ in named if job_id not in held and job_id not in due]
    # Of a foreign queue's job nothing is told but that it is not the worker's.
    why = {job_id: told[job_id][0] if job_id in told else "lost" for job_id in gone}
    cancelled = [
        str(job_id) for job_id in gone if job_id in told and records[job_id].state == State.CANCELLED
    ]
    lost = [str(job_id) for job_id in gone if str(job_id) not in cancelled]
    why |= {job_id: "cancelled" for job_id in gone if str(job_id) in cancelled}
    why |= {job_id: stop.reason for job_id, stop in due.items()}
    deadlines |= {job_id: stop.until for job_id, stop in due.items() if job_id not in held}
    state = order or worker.phase
    said = {"drain": "quiet", "stopped": "running"}.get(state, state)
    return {
        "acknowledged": True,
        "worker_id": worker.pk,
        "state": said,
        "directive": order or "continue",
        "jobs_extended": [str(job_id) for job_id in held],
        "jobs_cancelled": cancelled,
        "cancelled_jobs": cancelled,
        "jobs_lost": lost,
        "lost_jobs": lost,
        "soft_timeout_jobs": [str(job_id) for job_id in due],
        "stop_reasons": {str(job_id): reason for job_id, reason in why.items()},
        "deadline_at": {str(job_id): shapes.moment(when) for job_id, when in deadlines.items()},
        "jobs": [
            {
                "id": str(job_id),
                "job_id": str(job_id),
                "attempt": job.attempt,
                "deadline_at": shapes.moment(deadlines[job_id]),
                "soft_deadline_at": shapes.moment(stops[job_id].at),
                **(shapes.extension(extended[job_id]) if job_id in extended else {}),
            }
            for job_id, job in held.items()
        ],
        "server_time": shapes.moment(now),
    }


def _stop(job: JobRecord) -> Stop:
    assert job.started_at is not None
    return stop_of(job, started_at=job.started_at, total_at=total_deadline(job))


def visibility(body: Mapping[str, Any]) -> int | None:
    """The visibility lease that a fetch or a beat asks for, in milliseconds."""
    for name in ("visibility_timeout_ms", "visibility_ms"):
        if body.get(name) is not None:
            return parse_ms(body[name], name)
    if body.get("visibility_timeout") is not None:
        return parse_seconds_ms(body["visibility_timeout"], "visibility_timeout")
    return None


@overload
def _worker_id(body: Mapping[str, Any]) -> str: ...
@overload
def _worker_id(body: Mapping[str, Any], *, required: Literal[False]) -> str | None: ...
def _worker_id(body: Mapping[str, Any], *, required: bool = True) -> str | None:
    """The worker's name, which has to fit into one segment of a path."""
    worker_id = text(body, "worker_id")
    if worker_id is None and required:
        raise InvalidRequest("worker_id", "is required")
    return worker_id if worker_id is None else check_worker_id(worker_id, "worker_id")


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidRequest("queues", "must hold strings")
    return value


def _named(body: Mapping[str, Any]) -> list[tuple[UUID, UUID | None]]:
    """The jobs that a beat is about: ids, or objects with an id and a lease."""
    forms = {field: body[field] for field in _FORMS if body.get(field) is not None}
    for field, given in forms.items():
        if not isinstance(given, list) and (field != "active_jobs" or type(given) is not int):
            number = " or their number" if field == "active_jobs" else ""
            raise InvalidRequest(field, f"must be an array of jobs{number}")
    lists = {field: given for field, given in forms.items() if isinstance(given, list)}
    alone = [] if body.get("job_id") is None else [body["job_id"]]
    field, given = next(iter(lists.items()), ("job_id", alone))
    if len(given) > MAX_HELD:
        raise InvalidRequest(field, f"must not name more than {MAX_HELD} jobs")
    found: dict[UUID, UUID | None] = {}
    for item in given:
        lease: UUID | None = None
        if isinstance(item, Mapping):
            if (value := item.get("lease_id")) is not None:
                lease = parse_lease(value, f"{field}.lease_id")
            item = item.get("job_id", item.get("id"))
        if not isinstance(item, str):
            raise InvalidRequest(field, "must hold job ids")
        try:
            found[UUID(item)] = lease
        except ValueError:
            raise InvalidRequest(field, f"{item[:40]!r} is not a job id") from None
    return list(found.items())


def _running(body: Mapping[str, Any], named: list[Any]) -> int:
    given = body.get("active_jobs")
    if type(given) is int:
        if not 0 <= given <= 1_000_000:
            raise InvalidRequest("active_jobs", "must be from 0 to 1000000, or a list of job ids")
        return given
    return len(named)


def _phase(body: Mapping[str, Any]) -> str | None:
    shutdown = body.get("shutdown")
    if not isinstance(shutdown, bool | None):
        raise InvalidRequest("shutdown", "must be true or false")
    if shutdown:
        return Worker.Phase.DRAIN
    state = body.get("state")
    return _PHASES.get(state) if isinstance(state, str) else None


def _said(body: Mapping[str, Any], queues: list[str] | None) -> dict[str, Any]:
    """What a worker tells of itself, for its row."""
    said: dict[str, Any] = {}
    for name in ("hostname", "version"):
        value = text(body, name)
        if value is not None:
            said[name] = value
    for name in ("pid", "concurrency"):
        number = whole(body, name, least=0, most=2**31 - 1)
        if number is not None:
            said[name] = number
    labels = body.get("labels")
    if labels is not None:
        if isinstance(labels, list):
            labels = {"labels": labels}
        if not isinstance(labels, Mapping):
            raise InvalidRequest("labels", "must be an object or an array")
        encode(labels, "labels", max_bytes=MAX_META_BYTES)
        said["labels"] = dict(labels)
    if queues is not None:
        said["queues"] = queues
    return said
