"""Rows to look at: a day of a plausible installation, and what somebody hostile would store."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django_ojs import clock
from django_ojs.domain import histogram
from django_ojs.domain.ids import Uuid7Generator
from django_ojs.domain.incidents import identify
from django_ojs.domain.states import State
from django_ojs.models import (
    ApiToken,
    Attempt,
    AttemptLog,
    AuditEntry,
    DeployMark,
    Event,
    FailureStat,
    Incident,
    Job,
    JobSchema,
    MaintenanceRun,
    MinuteStat,
    Queue,
    QueueSample,
    RateLimit,
    Schedule,
    ScheduleRun,
    TypeStat,
    Worker,
    Workflow,
    WorkflowStep,
)
from django_ojs.services import queue_samples, rollup, tokens, type_stats
from tests.support import not_none

MARK = "data-owned"
SHORT = "'\"><b data-owned>{{7*7}}\u202e"
HOSTILE = (
    "<script>document.documentElement.setAttribute('data-owned',1);alert(1)</script>"
    "\"><img src=x onerror=alert(2) data-owned>'><svg onload=alert(3) data-owned>"
    "</textarea></title></pre>{{7*7}}{%x%}\u202etxt.exe"
)
LINK = "javascript:alert(4)//{{7*7}}"
FEW, MANY = 4, 60
"""Steps of workflows that are drawn, and of those that are a table only."""

KINDS = (
    ("report.generate", "reports", 600, [{"report": "sales", "year": 2026, "format": "pdf"}]),
    ("mail.send", "mail", 30, [{"to": "kim@example.com", "template": "welcome"}]),
    ("image.resize", "media", 60, [{"image": 4711, "sizes": [320, 640, 1280]}]),
    ("invoice.export", "billing", 120, [{"month": "2026-10", "customer": 1204}]),
    ("search.reindex", "default", 900, [{"index": "products"}]),
)
ERRORS = (
    ("smtplib.SMTPServerDisconnected", "Connection unexpectedly closed"),
    ("requests.exceptions.ConnectTimeout", "billing.example.com did not answer within 10 s"),
    ("ValueError", "not enough rows for a chart: 0"),
)
TRACE = [
    '  File "/app/shop/jobs.py", line 84, in send\n    server.sendmail(sender, to, text)',
    '  File "/usr/lib/python3.13/smtplib.py", line 884, in sendmail\n    code = self.mail(sender)',
    "smtplib.SMTPServerDisconnected: Connection unexpectedly closed",
]
WORKERS = ("app-1:4021", "app-2:3877")
_ENDED = (State.COMPLETED, State.CANCELLED, State.DISCARDED)


def showcase(count: int = 200) -> dict[str, UUID]:
    """A day of work: jobs in all states, workers, queues, figures. The ids of jobs worth a look."""
    now = clock.now("default")
    dice = random.Random(7)
    ids = Uuid7Generator()

    def made(then: datetime) -> UUID:
        return ids.next(int(then.timestamp() * 1000), dice.getrandbits(74))

    states = [State.COMPLETED] * 12 + [State.AVAILABLE] * 3 + [State.ACTIVE, State.SCHEDULED]
    states += [State.RETRYABLE, State.DISCARDED, State.CANCELLED, State.PENDING]
    jobs = [_job(dice, made, now, states[n % len(states)], n) for n in range(count)]
    running, late = _running(made, now), _timed_out(made, now)
    Job.objects.bulk_create([*jobs, running, late[0]])
    Attempt.objects.bulk_create([*_attempts(dice, jobs), late[1]])
    Event.objects.bulk_create(_events(jobs, running, late[0], made, now))
    log(running.pk, running.lease_id, "09:41:07.312 INFO shop.reports: page 41 of 50", dropped=1204)
    log(late[0].pk, late[1].lease_id, *LOG)
    Queue.objects.bulk_create(
        [Queue(name=queue, created_at=now - timedelta(days=40)) for _t, queue, _l, _a in KINDS],
        ignore_conflicts=True,
    )
    Queue.objects.filter(name="billing").update(
        paused=True,
        paused_at=now - timedelta(minutes=12),
        paused_by="ada",
        reason="the bank's interface is down",
    )
    _workers(now)
    _figures(dice, now)
    _records(made, now)
    return {"running": running.pk, "timed_out": late[0].pk}


def _job(dice: random.Random, made: Any, now: datetime, state: State, number: int) -> Job:
    kind, queue, limit, args = KINDS[number % len(KINDS)]
    created = now - timedelta(seconds=20 + number * number * 0.4 + dice.random() * 20)
    job = Job(
        id=made(created),
        type=kind,
        queue=queue,
        state=state,
        args=args,
        meta={"tenant": "acme"},
        tags=["nightly"] if number % 7 == 0 else [],
        priority=10 if number % 9 == 0 else 0,
        created_at=created,
        limits_from=created,
        enqueued_at=created,
        timeout_ms=limit * 1000,
        timeout_explicit=True,
    )
    started = created + timedelta(seconds=1 + dice.random() * 8)
    if state in (State.ACTIVE, *_ENDED):
        job.attempt, job.lease_seq, job.started_at = 1, 1, started
        job.worker_id = WORKERS[number % 2]
    if state == State.ACTIVE:
        began = now - timedelta(seconds=limit * (0.1 + 0.88 * dice.random()))
        job.started_at, job.heartbeat_at = began, now - timedelta(seconds=dice.random() * 9)
        job.lease_id, job.heartbeat_armed = clock.new_lease(), True
        job.deadline_at = began + timedelta(seconds=limit + 30)
    if state in _ENDED:
        job.finished_at = started + timedelta(seconds=0.2 + dice.random() * min(limit, 14))
    if state == State.COMPLETED:
        job.result = {"rows": dice.randrange(9000)}
    if state in (State.RETRYABLE, State.DISCARDED):
        error = ERRORS[number % 3] if number % 4 else ("timeout", f"ran longer than {limit} s")
        job.error = {"type": error[0], "message": error[1], "backtrace": TRACE}
        job.incident = identify(kind, *error)
        job.attempt = 3 if state == State.DISCARDED else 1
        job.dead_letter = state == State.DISCARDED
    if state in (State.SCHEDULED, State.RETRYABLE):
        job.scheduled_at = now + timedelta(seconds=30 + dice.random() * 5000)
    return job


def _running(made: Any, now: datetime) -> Job:
    """A job near the end of its time."""
    began = now - timedelta(minutes=8, seconds=41)
    created = began - timedelta(seconds=14)
    return Job(
        id=made(now - timedelta(seconds=3)),
        type="report.generate",
        queue="reports",
        state=State.ACTIVE,
        args=[{"report": "sales", "year": 2026, "format": "pdf"}],
        meta={"tenant": "acme", "requested_by": "kim"},
        tags=["monthly"],
        attempt=1,
        lease_seq=1,
        lease_id=clock.new_lease(),
        worker_id=WORKERS[0],
        created_at=created,
        limits_from=created,
        enqueued_at=created,
        started_at=began,
        heartbeat_at=now - timedelta(seconds=4),
        heartbeat_armed=True,
        heartbeat_timeout_ms=120_000,
        deadline_at=began + timedelta(minutes=10, seconds=30),
        timeout_ms=600_000,
        timeout_explicit=True,
        total_timeout_ms=3_600_000,
        enqueue_ttl_ms=900_000,
        progress=0.82,
        progress_message="page 41 of 50",
    )


def _timed_out(made: Any, now: datetime) -> tuple[Job, Attempt]:
    """A job that was too slow, and the attempt."""
    created = now - timedelta(minutes=34)
    began = created + timedelta(seconds=41)
    ended = began + timedelta(seconds=150)
    error = {
        "type": "timeout",
        "message": "The attempt ran longer than its execution timeout of 2 min.",
        "backtrace": [
            '  File "/app/shop/jobs.py", line 131, in export\n    rows = client.fetch_all(month)',
            '  File "/app/shop/billing.py", line 52, in fetch_all\n    return self.get(url).json()',
            '  File "/venv/lib/python3.13/site-packages/requests/sessions.py", line 602, in get',
        ],
    }
    job = Job(
        id=made(created),
        type="invoice.export",
        queue="billing",
        state=State.DISCARDED,
        args=[{"month": "2026-10", "customer": 1204, "password": "secret"}],
        meta={"tenant": "acme"},
        attempt=1,
        max_attempts=1,
        lease_seq=1,
        worker_id=WORKERS[1],
        created_at=created,
        limits_from=created,
        enqueued_at=created,
        started_at=began,
        finished_at=ended,
        timeout_ms=120_000,
        timeout_explicit=True,
        total_timeout_ms=1_800_000,
        error=error,
        errors=[error],
        dead_letter=True,
    )
    attempt = Attempt(
        job_id=job.pk,
        lease_seq=1,
        lease_id=clock.new_lease(),
        attempt=1,
        worker_id=WORKERS[1],
        started_at=began,
        ended_at=ended,
        deadline_at=ended,
        outcome="timeout",
        error=error,
    )
    return job, attempt


LOG = (
    "09:14:02.118 INFO shop.billing: exporting 2026-10 for customer 1204",
    "09:14:02.431 WARNING shop.billing: the bank answers slowly",
    "09:16:32.040 ERROR shop.billing: no answer",
    "    Traceback (most recent call last):",
    '      File "/app/shop/billing.py", line 52, in fetch_all',
)


def log(job_id: UUID, lease_id: UUID | None, *lines: str, dropped: int = 0) -> None:
    """What an attempt has logged."""
    AttemptLog.objects.create(
        job_id=job_id,
        lease_id=not_none(lease_id),
        written_at=clock.now("default"),
        text="\n".join(lines),
        lines=len(lines),
        dropped=dropped,
    )


def _attempts(dice: random.Random, jobs: list[Job]) -> Iterator[Attempt]:
    for job in jobs:
        if job.started_at is None or job.finished_at is None:
            continue
        yield Attempt(
            job_id=job.pk,
            lease_seq=1,
            lease_id=clock.new_lease(),
            attempt=job.attempt,
            worker_id=job.worker_id,
            started_at=job.started_at,
            ended_at=job.finished_at,
            outcome="completed" if job.state == State.COMPLETED else "failed",
            error=job.error,
        )


def _events(jobs: list[Job], running: Job, late: Job, made: Any, now: datetime) -> Iterator[Event]:
    assert running.started_at is not None
    assert late.started_at is not None
    assert late.finished_at is not None
    told = [
        (running, "job.enqueued", running.created_at, {"actor": "kim", "source": "api"}),
        (running, "job.started", running.started_at, {"worker_id": running.worker_id}),
        (late, "job.enqueued", late.created_at, {"actor": "shop", "source": "http"}),
        (late, "job.started", late.started_at, {"worker_id": late.worker_id}),
        (
            late,
            "job.timeout",
            late.finished_at,
            {"timeout_kind": "execution", "elapsed_seconds": 150.0, "worker_id": late.worker_id},
        ),
        (late, "job.discarded", late.finished_at, {}),
    ]
    told += [(job, "job.enqueued", job.created_at, {}) for job in jobs[:20]]
    for job, kind, then, data in told:
        yield Event(
            id=made(then),
            kind=kind,
            created_at=then,
            job_id=job.pk,
            job_type=job.type,
            queue=job.queue,
            data=data,
        )


def _workers(now: datetime) -> None:
    for number, name in enumerate(WORKERS):
        Worker.objects.create(
            name=name,
            incarnation=clock.new_lease(),
            hostname=name.partition(":")[0],
            pid=int(name.partition(":")[2]),
            concurrency=8,
            running=5 - number,
            beats=True,
            queues=["mail", "reports", "media", "default"],
            types=[kind for kind, *_rest in KINDS],
            version="0.1",
            rss_bytes=(310 + 45 * number) * 2**20,
            started_at=now - timedelta(hours=9),
            heartbeat_at=now - timedelta(seconds=3 + number),
        )


def _figures(dice: random.Random, now: datetime) -> None:
    """Minutes of a day with a noon, a night, and an hour of trouble."""
    last = histogram.floor(now - rollup.LATE, rollup.MINUTE)
    MaintenanceRun.objects.create(
        name=rollup.NAME, last_run_at=now, cadence_ms=60_000, watermark_at=last
    )
    MaintenanceRun.objects.create(
        name="reap", last_run_at=now - timedelta(seconds=1), cadence_ms=1000, ran_by=WORKERS[0]
    )
    minutes, failures, incidents = [], [], dict[str, Incident]()
    for minute in range(1, 1441):
        at = last - timedelta(minutes=minute)
        busy = 1.5 - abs(minute - 500) / 700
        trouble = 30 < minute < 75
        whole = MinuteStat(
            at=at, queue=rollup.ALL, durations=histogram.empty(), waits=histogram.empty()
        )
        rows = [whole]
        for kind, queue, limit, _args in KINDS:
            done = int(dice.random() * 9 * max(0.1, busy))
            bad = int(dice.random() * (5 if trouble and queue == "mail" else 1.06))
            row = MinuteStat(at=at, queue=queue, completed=done, failed=bad)
            row.discarded, row.timed_out = bad // 2, int(bad and dice.random() < 0.3)
            row.durations, row.waits = histogram.empty(), histogram.empty()
            for _ in range(done):
                row.durations[min(16, max(0, int(dice.gauss(8 if trouble else 6, 1.6))))] += 1
                row.waits[min(16, max(0, int(dice.gauss(7 if trouble else 4, 1.2))))] += 1
            for name in ("completed", "failed", "discarded", "timed_out"):
                setattr(whole, name, getattr(whole, name) + getattr(row, name))
            whole.durations = [a + b for a, b in zip(whole.durations, row.durations, strict=True)]
            whole.waits = [a + b for a, b in zip(whole.waits, row.waits, strict=True)]
            rows.append(row)
            if bad:
                slow = ("timeout", f"ran longer than {limit} s")
                error, message = slow if row.timed_out else ERRORS[minute % 3]
                known = identify(kind, error, message)
                failures.append(
                    FailureStat(at=at, type=kind, error=error, queue=queue, count=bad, incident=known)
                )
                seen = {"type": kind, "error": error, "message": message, "sample": message}
                found = incidents.setdefault(known, Incident(id=known, last_seen=at, **seen))
                found.first_seen = at
        minutes += rows
    MinuteStat.objects.bulk_create(minutes, batch_size=500)
    FailureStat.objects.bulk_create(failures, batch_size=500)
    Incident.objects.bulk_create(incidents.values())
    _samples(dice, last)
    _types(dice, last)
    DeployMark.objects.create(at=last - timedelta(minutes=76), name="shop 1.42", by="ada")


def _samples(dice: random.Random, last: datetime) -> None:
    """What waited, as it was looked at: most in the hour of trouble."""
    rows = []
    for step in queue_samples.STEPS:
        for number in range(1, 140):
            at = histogram.floor(last, step) - number * step
            ago = (last - at) / timedelta(minutes=1)
            whole = QueueSample(at=at, step=step.total_seconds(), queue=queue_samples.ALL)
            whole.workers, whole.slots, whole.ages = 2, 16, histogram.empty()
            for place, (_kind, queue, _limit, _args) in enumerate(KINDS):
                trouble = 600 * max(0.0, 1 - abs(ago - 52) / 40) if queue == "mail" else 0
                usual = (40 + 30 * place) * max(0.15, 1.5 - abs(ago % 1440 - 500) / 700)
                row = QueueSample(at=at, step=whole.step, queue=queue, running=1 + dice.randrange(3))
                row.waiting = int(trouble + usual * (0.4 + 0.6 * dice.random()))
                row.oldest_ms = int(2000 + 1000 * trouble)
                whole.waiting += row.waiting
                whole.running += row.running
                whole.oldest_ms = max(whole.oldest_ms, row.oldest_ms)
                whole.ages[histogram.place(row.oldest_ms)] += int(trouble)
                rows.append(row)
            rows.append(whole)
    QueueSample.objects.bulk_create(rows, batch_size=500)


def _types(dice: random.Random, last: datetime) -> None:
    rows = []
    for step in type_stats.STEPS:
        for number in range(30):
            at = histogram.floor(last, step) - number * step
            for place, (kind, _queue, _limit, _args) in enumerate(KINDS):
                done = 3 * (len(KINDS) - place) + dice.randrange(9)
                row = TypeStat(at=at, step=step.total_seconds(), type=kind, completed=done)
                row.durations = histogram.empty()
                for _ in range(done):
                    row.durations[min(18, max(0, int(dice.gauss(7 + 2 * place, 1.5))))] += 1
                row.failed, row.busy_ms = dice.randrange(2), done * (place + 1) * 1800
                rows.append(row)
    TypeStat.objects.bulk_create(rows, batch_size=500)


def _records(made: Any, now: datetime) -> None:
    JobSchema.objects.create(type="mail.send", version=1, schema={"type": "array"})
    tokens.create("shop", scopes=("produce", "inspect"), queues=("mail", "billing"))
    for number, (action, reason) in enumerate(
        (("queue.paused", "the bank's interface is down"), ("job.extended", "the report is large"))
    ):
        AuditEntry.objects.create(
            created_at=now - timedelta(minutes=12 + number),
            action=action,
            source="admin",
            actor="ada",
            address="192.0.2.10",
            reason=reason,
            target_type=action.partition(".")[0],
            target_id="billing",
        )


def hostile() -> list[UUID]:
    """A row with markup in every text that a model takes, in each state; a second set with links."""
    now = clock.now("default")
    found = []
    for number, text in enumerate((HOSTILE, LINK)):
        short = (SHORT, "javascript:1")[number]
        error = {"type": text, "message": f"{text}\n{text}", "backtrace": [text, text], "code": text}
        Queue.objects.create(name=text, paused=True, paused_at=now, paused_by=text, reason=text)
        Worker.objects.create(
            name=text,
            incarnation=clock.new_lease(),
            principal=text,
            hostname=text,
            queues=[text],
            types=[text],
            labels={text: text},
            version=text,
            directive=short[:16],
            concurrency=1,
            started_at=now,
            heartbeat_at=now,
        )
        limits = {"concurrency": 1}
        RateLimit.objects.create(key=text, policy=limits, override=limits, override_by=text)
        schedule = Schedule.objects.create(
            name=text,
            source="admin",
            expression="*/5 * * * *",
            type=text,
            queue=text,
            template={"type": text, "args_json": json.dumps([text, {text: text}])},
            description=text,
            paused_at=now,
            paused_by=text,
            pause_reason=text,
        )
        ScheduleRun.objects.create(
            schedule=schedule.name, tick=now, outcome="refused", reason=text, by=text
        )
        for state in State:
            active = state == State.ACTIVE
            job = Job.objects.create(
                id=clock.new_id(),
                state=state,
                type=text,
                queue=text,
                worker_id=text,
                lease_principal=text,
                lease_id=clock.new_lease() if active else None,
                lease_seq=1,
                attempt=1,
                created_at=now,
                enqueued_at=now,
                started_at=now,
                heartbeat_at=now if active else None,
                deadline_at=now + timedelta(hours=1) if active else None,
                scheduled_at=now + timedelta(hours=1)
                if state in (State.SCHEDULED, State.RETRYABLE)
                else None,
                finished_at=now if state in _ENDED else None,
                dead_letter=state == State.DISCARDED,
                retry={"on_exhaustion": "dead_letter", text: text},
                args=[text, {text: text}],
                meta={text: text, "retried_from": text},
                tags=[text],
                result={text: text},
                error=error,
                errors=[error],
                extra={text: text},
                progress=0.5,
                progress_message=text,
                progress_data={text: text},
                checkpoint={text: text},
            )
            found.append(job.pk)
            ended = Attempt.objects.create(
                job=job,
                lease_seq=1,
                lease_id=clock.new_lease(),
                attempt=1,
                worker_id=text,
                started_at=now,
                ended_at=now,
                outcome=short[:32],
                error=error,
                late_report=error,
            )
            log(job.pk, ended.lease_id, text, f"    {text}")
            if active:
                log(job.pk, job.lease_id, text, text)
            Event.objects.create(
                id=clock.new_id(),
                kind=text[:64],
                created_at=now,
                job_id=job.pk,
                job_type=text,
                queue=text,
                data={"actor": text, "source": text, "reason": text, "worker_id": text, text: text},
            )
        MaintenanceRun.objects.create(name=text[:64], last_run_at=now, cadence_ms=1, ran_by=text)
        JobSchema.objects.create(type=text, version=1, schema={text: text})
        ApiToken.objects.create(
            name=text[:200],
            prefix=text[:32],
            secret_hash="x",
            scopes=[text],
            queues=[text],
            created_by=text,
        )
        AuditEntry.objects.create(
            created_at=now,
            action=text[:64],
            result=short[:16],
            source=short[:16],
            actor=text,
            address=text[:64],
            reason=text,
            target_type=short[:32],
            target_id=text,
            data={text: text},
        )
        at = histogram.floor(now, rollup.MINUTE) - timedelta(minutes=5)
        MinuteStat.objects.create(
            at=at, queue=text, completed=3, durations=histogram.empty(), waits=histogram.empty()
        )
        known = identify(text, text[:200], text)
        FailureStat.objects.create(
            at=at, type=text, error=text[:200], queue=text, incident=known, count=3
        )
        Incident.objects.get_or_create(
            id=known,
            defaults={
                **{"type": text, "error": text[:200], "message": text, "sample": text},
                **{"first_seen": at, "last_seen": at},
            },
        )
        for total in (FEW, MANY):
            _hostile_workflow(text, total, now)
    return found


def _hostile_workflow(text: str, total: int, now: datetime) -> None:
    """A failed chain with a step of each fate, within another workflow; its callback failed too."""
    outer, inner = clock.new_ids(2)
    for key, parent in ((outer, None), (inner, outer)):
        Workflow.objects.create(
            id=key,
            root_id=outer,
            parent_id=parent,
            parent_step=None if parent is None else 1,
            kind="chain",
            name=text,
            state="failed",
            total=total,
            open=0,
            completed=1,
            failed=1,
            callbacks_fired=True,
            callback_failed=True,
            created_at=now,
            finished_at=now,
            error={"type": text, "message": text, text: text},
            meta={text: text},
            queues=[text],
            created_by=text,
        )
    callback, first, second = clock.new_ids(3)
    for key, index, state in (
        (callback, -1, "discarded"),
        (first, 0, "completed"),
        (second, 2, "discarded"),
    ):
        Job.objects.create(
            id=key,
            state=state,
            type=text,
            queue=text,
            workflow_id=outer,
            workflow_step=index,
            created_at=now,
            enqueued_at=now,
            started_at=now,
            finished_at=now,
            error={"type": text, "message": text} if state == "discarded" else None,
        )
    started = {
        -1: {"job_id": callback},
        0: {"job_id": first},
        1: {"child_id": inner},
        2: {"job_id": second},
    }
    WorkflowStep.objects.bulk_create(
        WorkflowStep(
            workflow_id=outer,
            index=index,
            key=text,
            type=text,
            depends_on=[index - 1] if index > 0 else [],
            waits_for=0,
            call={"type": text, "args": [text]},
            state="started" if index in started else "cancelled",
            **started.get(index, {}),
        )
        for index in range(-1, total)
    )
