"""Why a job is in its state, in the current language: one sentence, and every reason that applies."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_ojs import clock, conf
from django_ojs.domain.failures import cause_of
from django_ojs.domain.job import JobRow
from django_ojs.domain.states import TERMINAL, State
from django_ojs.domain.timeouts import heartbeat_deadline, soft_deadline, total_deadline
from django_ojs.models import Queue, Worker
from django_ojs.services import health
from django_ojs.services.inspect import find
from django_ojs.services.phrases import say_limits, say_moment
from django_ojs.services.rate_limits.read import Hold, hold_of
from django_ojs.services.unique import other_holders
from django_ojs.services.workers import STALE
from django_ojs.services.workflows.story import explain_part, lineage

MOST_WORKERS = 3
"""How many quiet workers are named as what would help."""


class Deed(NamedTuple):
    """Something that operators do to a row: the verb, the kind of row, its key and its name."""

    verb: str
    kind: str
    key: object
    name: str


class Remedy(NamedTuple):
    """What would help a job on: a command of ``manage.py``, a deed, or both for the same."""

    command: str = ""
    deed: Deed | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job is in its state: one sentence, every reason that applies, and what would help it on."""

    state: str
    summary: str
    reasons: Sequence[str] = field(default=())
    remedies: Sequence[Remedy] = field(default=())


def explain(job_id: UUID, *, using: str | None = None) -> Explanation:
    """Why a job is not running, or until when it may. Raises :class:`NotFound`."""
    using = using or conf.current().database
    job = find(job_id, using=using)
    return explained(job, clock.now(using), using)


def explained(job: JobRow, now: datetime, using: str) -> Explanation:
    """Why this job is not running, or until when it may."""
    part = explain_part(job, lineage(job, using))
    if job.state in TERMINAL:
        others = other_holders(job, using=using) if job.state == State.DISCARDED else []
        return _explain_finished(
            job, now, part, [one.id for one in others if one.state not in TERMINAL]
        )
    reasons, remedies = [], list[Remedy]()
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
        reasons, remedies = _waiting(job, now, using)
    if job.state != State.ACTIVE and job.deadline_at is not None:
        reasons.append(_("It must start or end by %s.") % say_moment(job.deadline_at, now))
    reasons += [*part, *_reaper(job, now, using)]
    return Explanation(job.state, summary, tuple(reasons), tuple(remedies))


def _explain_finished(
    job: JobRow, now: datetime, part: Sequence[str], equals: Sequence[UUID]
) -> Explanation:
    assert job.finished_at is not None
    reasons: list[str] = []
    error = job.json("error")
    if error is not None:
        cause = cause_of(error)
        reasons.append(_("The last error was %(type)s: %(message)s") % (cause or error))
        if cause is not None:
            reasons.append(_("It was given up: %(message)s") % error)
    if job.dead_letter:
        reasons.append(_("It is in the dead letter: a retry makes it available again."))
    elif job.state == State.DISCARDED:
        reasons.append(_("A retry makes it available again."))
    if job.state == State.DISCARDED and job.expires_at is not None and job.expires_at <= now:
        reasons.append(_("Its absolute expiry has passed: a retry needs a new one, or clears it."))
    if job.state == State.DISCARDED and equals:
        reasons.append(_("An equal unique job is there, so a retry is refused: %s.") % equals[0])
    said = {
        State.COMPLETED: _("It was completed at %s."),
        State.CANCELLED: _("It was cancelled at %s."),
        State.DISCARDED: _("It was discarded at %s."),
    }[State(job.state)]
    return Explanation(job.state, said % say_moment(job.finished_at, now), (*reasons, *part))


def _running(job: JobRow, now: datetime) -> list[str]:
    reasons = []
    soft, total, beat = soft_deadline(job), total_deadline(job), heartbeat_deadline(job)
    if soft is not None:
        reasons.append(_("It is told to stop at %s.") % say_moment(soft, now))
    if job.deadline_at is not None:
        reasons.append(_("It is reclaimed at %s.") % say_moment(job.deadline_at, now))
    if total is not None:
        reasons.append(_("Its total timeout ends at %s.") % say_moment(total, now))
    if beat is not None:
        said = _("Without another heartbeat it counts as stalled at %s.")
        reasons.append(said % say_moment(beat, now))
    return reasons


def _not_yet(job: JobRow, now: datetime) -> tuple[str, list[str]]:
    assert job.scheduled_at is not None
    if job.state == State.SCHEDULED:
        summary = _("It is scheduled for %s.") % say_moment(job.scheduled_at, now)
    else:
        summary = _("Attempt %(attempt)d failed; the next is due at %(moment)s.") % {
            "attempt": job.attempt,
            "moment": say_moment(job.scheduled_at, now),
        }
    return summary, not_promoted(job.scheduled_at, now)


def not_promoted(scheduled_at: datetime, now: datetime) -> list[str]:
    """Why a job whose time has come is not available; nothing before."""
    if scheduled_at >= now - timedelta(seconds=5):
        return []
    return [_("Its time has come, but nothing promotes it: run a worker or the reaper.")]


def _held(hold: Hold, now: datetime) -> list[str]:
    """Which rate limit holds the job, who has the places, and when the next one opens."""
    state = hold.state
    key, limits = state.row.key, say_limits(state.limits)
    reasons = [_("The rate limit %(key)s holds it: %(limits)s.") % {"key": key, "limits": limits}]
    if state.overridden:
        reasons.append(_("An operator has overridden that limit."))
    if state.row.blocked_until is not None and state.row.blocked_until > now:
        blocked = say_moment(state.row.blocked_until, now)
        reasons.append(_("A handler asked that nothing of it starts before %s.") % blocked)
    if hold.holders:
        jobs = ", ".join(map(str, hold.holders[:3]))
        reasons.append(_("These jobs have the places: %s.") % jobs)
    ahead = ngettext("%d job is before it.", "%d jobs are before it.", hold.ahead)
    reasons.append(ahead % hold.ahead)
    if state.opens_at is not None:
        reasons.append(_("The next place opens at %s.") % say_moment(state.opens_at, now))
    elif hold.holders:
        reasons.append(_("The next place opens when one of them ends."))
    return reasons


def _waiting(job: JobRow, now: datetime, using: str) -> tuple[list[str], list[Remedy]]:
    """The reasons, and what would remove them."""
    remedies: list[Remedy] = []
    hold = hold_of(job, now, using)
    queue = Queue.objects.using(using).filter(name=job.queue, paused=True).first()
    if queue is not None:
        resuming = Deed("resume", "queue", job.queue, job.queue)
        remedies.append(Remedy(f"ojs resume {shlex.quote(job.queue)}", resuming))
    workers = list(
        Worker.objects.using(using)
        .filter(heartbeat_at__gt=now - STALE)
        .exclude(phase=Worker.Phase.STOPPED)
    )
    if not _serving(job.queue, workers):
        remedies.append(Remedy(f"runworker --queue {shlex.quote(job.queue)}"))
    remedies += _to_resume(job, workers)
    reasons = [] if hold is None else _held(hold, now)
    return reasons + not_claimed(job.queue, job.type, queue, workers), remedies


def not_claimed(name: str, type: str, paused: Queue | None, workers: Sequence[Worker]) -> list[str]:
    """Why none of the live workers claims an available job of a queue and type."""
    reasons = []
    if paused is not None:
        said = _("The queue %(queue)s is paused by %(actor)s.")
        if not paused.paused_by:
            said = _("The queue %(queue)s is paused.")
        said %= {"queue": name, "actor": paused.paused_by}
        reasons.append(f"{said} ({paused.reason})" if paused.reason else said)
    serving, able = _serving(name, workers), _able(name, type, workers)
    if not workers:
        reasons.append(_("No worker is alive."))
    elif not serving:
        reasons.append(_("No live worker serves the queue %s.") % name)
    elif not able:
        reasons.append(_("No live worker of this queue has a handler for %s.") % type)
    elif all(w.phase != Worker.Phase.RUNNING for w in able):
        reasons.append(_("Every worker that could run it is quiet or stopping."))
    elif all(w.concurrency is not None and w.running >= w.concurrency for w in able):
        reasons.append(_("Every worker that could run it is busy."))
    return reasons


def _to_resume(job: JobRow, workers: Sequence[Worker]) -> list[Remedy]:
    """The workers that were told to be quiet, where that is what the job waits for."""
    able = _able(job.queue, job.type, workers)
    if any(worker.phase == Worker.Phase.RUNNING for worker in able):
        return []
    quiet = [worker for worker in able if worker.directive == Worker.Phase.QUIET]
    return [Remedy(deed=Deed("resume", "worker", one.pk, one.name)) for one in quiet[:MOST_WORKERS]]


def _able(name: str, type: str, workers: Sequence[Worker]) -> list[Worker]:
    """Those of the live workers that serve the queue and have a handler for the type."""
    return [one for one in _serving(name, workers) if not one.types or type in one.types]


def _serving(name: str, workers: Sequence[Worker]) -> list[Worker]:
    return [worker for worker in workers if not worker.queues or name in worker.queues]


def _reaper(job: JobRow, now: datetime, using: str) -> list[str]:
    if job.deadline_at is None or job.deadline_at > now - timedelta(seconds=5):
        return []
    problems = health.enforcement(now, using)
    wrong = [f"{one.problem} {one.remedy}" for one in problems]
    return [_("Its deadline has passed and nobody enforces it."), *wrong]
