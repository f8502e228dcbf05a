"""From what an executor said, or how it ended, to the failure that is reported of its job."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

from django_ojs.domain.failures import Directive, Failure
from django_ojs.worker.prefork.frames import Frame


def stopped(reason: str, report: Frame) -> Failure:
    """The failure of an attempt that was told to stop or killed.

    What its handler decided in the grace period is what happens next (OJS retry 7.2); the type stays
    that of the timeout or shutdown.
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
        # Which of the two clocks it was is for the server to say.
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


def _directive(report: Frame) -> Directive | None:
    directive = report.get("directive")
    return None if directive is None else Directive(directive)


def crash(status: int | None) -> Failure:
    """What is known of an executor that ended in the middle of a job."""
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
