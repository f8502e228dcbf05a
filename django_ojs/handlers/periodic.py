"""``@periodic``: schedules declared beside their handlers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, Unpack

from django_ojs.domain import schedule as schedules
from django_ojs.domain.envelope import Envelope, from_call
from django_ojs.domain.options import PeriodicOptions, check_names, names
from django_ojs.handlers.registry import JobHandler
from django_ojs.services.schedules.declared import declare

T = TypeVar("T")


def periodic(
    schedule: str | None = None,
    *,
    name: str | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    **options: Unpack[PeriodicOptions],
) -> Callable[[T], T]:
    """Enqueue a job of this handler, or task, again and again; above ``@job`` or ``@task``.

    ``schedule`` is a cron expression of five fields, or six with seconds first, ``@daily`` and the
    like, or ``@every 5m``, or ``every="5m"``. It is read in ``timezone``, an IANA name,
    ``UTC`` where none is given. ``name`` is the job type, if not given; a handler may have several
    schedules of different names. ``args`` and ``kwargs`` are those of its jobs, options of jobs are
    given by ``using()``.

    ``overlap`` is what happens while the last job has not ended: ``skip``, ``allow``,
    ``cancel_previous``, or ``enqueue``, one after the other. With ``catch_up="one"`` the last of the
    ticks that were missed is made up for, if it is not older than ``catch_up_within``, ten minutes by
    default; with ``"none"`` none is. ``jitter`` is up to how much later, at random, the job starts.
    There are ticks between ``starts_at`` and ``ends_at``, if given, and only if ``enabled``. Durations
    are seconds, ``timedelta``, ``"10s"`` or ISO 8601.

    Raises :class:`InvalidRequest` for a bad option, ``TypeError`` for an unknown one and for
    arguments that do not fit, ``ValueError`` for a name that is taken (OJS cron 2 to 6).
    """
    check_names("@periodic()", options, names(PeriodicOptions))

    def decorate(target: T) -> T:
        envelope = _envelope(target, args, kwargs or {})
        if envelope is not None:
            declare(schedules.make(name or envelope.type, schedule, envelope, options))
        return target

    return decorate


def _envelope(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Envelope | None:
    now = schedules.NO_TIME
    if isinstance(target, JobHandler):
        return target.envelope(args, kwargs, now)
    if hasattr(target, "__ojs_call__"):
        job_type, options = target.__ojs_call__()
        return from_call(job_type, args, now=now, kwargs=kwargs, **options)
    if hasattr(target, "func") and hasattr(target, "backend"):
        # A task of another backend, as in a project's tests: it is not ours to enqueue.
        return None
    raise TypeError("@periodic() stands above @job or @task")
