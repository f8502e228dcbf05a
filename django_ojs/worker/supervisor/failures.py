"""The failure to report for a job, from its executor's frames or its end."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

from django_ojs import clock
from django_ojs.domain.failures import Directive, Failure
from django_ojs.domain.timeouts import Fired, TimeoutKind
from django_ojs.signals import EXECUTOR_DIED, EventRecord, deliver, executor_died
from django_ojs.worker.prefork.frames import Frame
from django_ojs.worker.prefork.leased import LeasedJob


def ended(leased: LeasedJob, reason: str, report: Frame) -> Failure:
    """The failure of an attempt that was stopped. The server has not ended it, even if the reason is
    ``lost``: no heartbeat arrived, and its worker has stopped it for that.
    """
    failure = stopped(reason, report)
    if reason != "lost":
        return failure
    message = "No heartbeat arrived in time: the worker has stopped the job"
    after_ms = report.get("retry_after_ms")
    stalled = replace(failure, type="stalled", message=message, retry_after_ms=after_ms)
    now, limit_ms = clock.boottime(), leased.job.heartbeat_timeout_ms
    silent_ms = int((now - (leased.deadlines.heard_at or now)) * 1000)
    return replace(stalled, fired=Fired(TimeoutKind.STALLED, limit_ms, silent_ms))


def stopped(reason: str, report: Frame) -> Failure:
    """The failure of an attempt that was stopped, softly or hard.

    A decision of the handler in the grace period is carried out (OJS retry 7.2); the type of the
    failure is still that of the timeout or shutdown.
    """
    details = {"raised": report["message"]} if report.get("message") else {}
    after_ms = report.get("retry_after_ms")
    failure = Failure(
        "timeout",
        details=details,
        backtrace=report.get("backtrace", ()),
        directive=_directive(report),
        retry_after_ms=after_ms,
    )
    if reason in ("timeout", "total_timeout"):
        # The server decides which of the two timeouts it was.
        return failure
    message = "the worker was shut down before the job could finish"
    return replace(failure, type="shutdown", message=message, retry_after_ms=after_ms or 0)


def reported(report: Frame) -> Failure:
    """The failure that an executor reported."""
    return Failure(
        type=report["type"],
        message=report["message"],
        code="handler_error",
        retryable=report.get("retryable", True),
        details=report.get("details", {}),
        backtrace=report.get("backtrace", ()),
        directive=_directive(report),
        retry_after_ms=report.get("retry_after_ms"),
    )


def announce(leased: LeasedJob, status: int | None) -> None:
    """Notify the receivers of ``executor_died`` that nothing is left of what ran this job."""
    if not executor_died.receivers:
        return
    job, reason = leased.job, leased.deadlines.kill_reason
    now = clock.boottime()
    data = {
        "job_id": str(job.id),
        "job_type": job.type,
        "queue": job.queue,
        "attempt": job.attempt,
        "meta": job.json("meta"),
        "worker_id": job.worker_id,
        "seconds": now - (leased.began_at or now),
        "reason": reason or "crash",
        "message": "" if reason else crash(status).message,
    }
    deliver(EventRecord(clock.new_id(), EXECUTOR_DIED, clock.host_time(), data))


def _directive(report: Frame) -> Directive | None:
    directive = report.get("directive")
    return None if directive is None else Directive(directive)


def crash(status: int | None) -> Failure:
    """The failure of a job whose executor ended while running it."""
    if status is None:
        return Failure("worker_crash", "the executor closed its channel", details={})
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
        return Failure("worker_crash", f"the executor was ended by {name}", details={"signal": number})
    code = os.WEXITSTATUS(status)
    return Failure(
        "worker_crash", f"the executor exited with status {code}", details={"exit_status": code}
    )
