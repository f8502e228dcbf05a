"""Why a job is in its state, in the current language: one sentence, and every reason that applies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from django.utils.translation import gettext as _

from django_ojs import clock, conf
from django_ojs.domain.durations import format_instant
from django_ojs.domain.failures import cause_of
from django_ojs.domain.job import JobRecord
from django_ojs.domain.states import TERMINAL, State
from django_ojs.domain.timeouts import heartbeat_deadline, soft_deadline, total_deadline
from django_ojs.models import Queue, Worker
from django_ojs.services import reaper
from django_ojs.services.inspect import find
from django_ojs.services.reaper import HealthProblem
from django_ojs.services.workers import STALE


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job is in its state: one sentence, and every reason that applies."""

    state: str
    summary: str
    reasons: Sequence[str] = field(default=())


def explain(job_id: UUID, *, now: datetime | None = None, using: str | None = None) -> Explanation:
    """Why a job is not running, or until when it may. Raises :class:`NotFound`."""
    using = using or conf.current().database
    job = find(job_id, using=using)
    return explained(job, now or clock.now(using), using)


def explained(job: JobRecord, now: datetime, using: str) -> Explanation:
    """Why this job is not running, or until when it may."""
    if job.state in TERMINAL:
        return _explain_finished(job)
    reasons = []
    if job.state == State.ACTIVE:
        reasons = _running(job, now)
        summary = _("It runs on %(worker)s, attempt %(attempt)d.") % {
            "worker": job.worker_id or _("an unnamed worker"),
            "attempt": job.attempt,
        }
    elif job.state == State.PENDING:
        summary = _("It is pending: it waits until it is activated.")
    elif job.state in (State.SCHEDULED, State.RETRYABLE):
        summary, reasons = _not_yet(job, now)
    else:
        summary = _("It waits for a worker.")
        reasons = _waiting(job, now, using)
    if job.state != State.ACTIVE and job.deadline_at is not None:
        reasons.append(_("It must start or end by %s.") % _moment(job.deadline_at, now))
    reasons += _reaper(job, now, using)
    return Explanation(job.state, summary, tuple(reasons))


def _explain_finished(job: JobRecord) -> Explanation:
    assert job.finished_at is not None
    reasons = []
    error = job.json("error")
    if error is not None:
        cause = cause_of(error)
        reasons.append(_("The last error was %(type)s: %(message)s") % (cause or error))
        if cause is not None:
            reasons.append(_("It was given up: %(message)s") % error)
    if job.dead_letter:
        reasons.append(_("It is in the dead letter: `ojs retry` gives it a new life."))
    elif job.state == State.DISCARDED:
        reasons.append(_("`ojs retry` gives it a new life."))
    said = {
        State.COMPLETED: _("It was completed at %s."),
        State.CANCELLED: _("It was cancelled at %s."),
        State.DISCARDED: _("It was discarded at %s."),
    }[State(job.state)]
    return Explanation(job.state, said % format_instant(job.finished_at), tuple(reasons))


def _running(job: JobRecord, now: datetime) -> list[str]:
    reasons = []
    soft, total, beat = soft_deadline(job), total_deadline(job), heartbeat_deadline(job)
    if soft is not None:
        reasons.append(_("It is told to stop at %s.") % _moment(soft, now))
    if job.deadline_at is not None:
        reasons.append(_("It is reclaimed at %s.") % _moment(job.deadline_at, now))
    if total is not None:
        reasons.append(_("Its total timeout ends at %s.") % _moment(total, now))
    if beat is not None:
        said = _("Without another heartbeat it counts as stalled at %s.")
        reasons.append(said % _moment(beat, now))
    return reasons


def _not_yet(job: JobRecord, now: datetime) -> tuple[str, list[str]]:
    assert job.scheduled_at is not None
    late = job.scheduled_at < now - timedelta(seconds=5)
    if job.state == State.SCHEDULED:
        summary = _("It is scheduled for %s.") % _moment(job.scheduled_at, now)
    else:
        summary = _("Attempt %(attempt)d failed; the next is due at %(moment)s.") % {
            "attempt": job.attempt,
            "moment": _moment(job.scheduled_at, now),
        }
    if late:
        return summary, [_("Its time has come, but nothing promotes it: run a worker or the reaper.")]
    return summary, []


def _waiting(job: JobRecord, now: datetime, using: str) -> list[str]:
    reasons = []
    queue = Queue.objects.using(using).filter(name=job.queue, paused=True).first()
    if queue is not None:
        said = _("The queue %(queue)s is paused by %(actor)s.")
        if not queue.paused_by:
            said = _("The queue %(queue)s is paused.")
        said %= {"queue": job.queue, "actor": queue.paused_by}
        reasons.append(f"{said} ({queue.reason})" if queue.reason else said)
    workers = list(
        Worker.objects.using(using)
        .filter(heartbeat_at__gt=now - STALE)
        .exclude(phase=Worker.Phase.STOPPED)
    )
    serving = [w for w in workers if not w.queues or job.queue in w.queues]
    able = [w for w in serving if not w.types or job.type in w.types]
    if not workers:
        reasons.append(_("No worker is alive."))
    elif not serving:
        reasons.append(_("No live worker serves the queue %s.") % job.queue)
    elif not able:
        reasons.append(_("No live worker of this queue has a handler for %s.") % job.type)
    elif all(w.phase != Worker.Phase.RUNNING for w in able):
        reasons.append(_("Every worker that could run it is quiet or stopping."))
    elif all(w.concurrency is not None and w.running >= w.concurrency for w in able):
        reasons.append(_("Every worker that could run it is busy."))
    return reasons


def _reaper(job: JobRecord, now: datetime, using: str) -> list[str]:
    if job.deadline_at is None or job.deadline_at > now - timedelta(seconds=5):
        return []
    problems = reaper.health_problems(now, using)
    return [_("Its deadline has passed and nobody enforces it."), *map(describe_problem, problems)]


def describe_problem(problem: HealthProblem) -> str:
    """A problem of the reaper in the current language."""
    if problem.last_run_at is None:
        return _("The reaper has never run: start a worker or `reap_timeouts --loop`.")
    return _("The reaper last ran at %s.") % format_instant(problem.last_run_at)


def _moment(moment: datetime, now: datetime) -> str:
    seconds = (moment - now).total_seconds()
    distance = _("in %.1f s") % seconds if seconds >= 0 else _("%.1f s ago") % -seconds
    return f"{format_instant(moment)} ({distance})"
