"""Decide what happens after a failed attempt: retry, discard, or dead letter."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django_ojs.domain import retry
from django_ojs.domain.failures import Directive, Failure
from django_ojs.domain.job import JobRow
from django_ojs.domain.retry import RetryPolicy
from django_ojs.domain.timeouts import after, total_deadline


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """The answer of :func:`decide_retry`.

    ``delay_ms`` is the delay of the retry, or the one that it would have had. ``too_late`` means that
    only the total timeout prevents it, because the next attempt, which may take ``next_ms``, would pass
    it (OJS timeouts 9.1).
    """

    retry: bool
    delay_ms: int
    dead_letter: bool = False
    too_late: bool = False
    next_ms: int = 0


def decide_retry(
    job: JobRow, failure: Failure, *, now: datetime, jitter: float, at_once: bool = False
) -> RetryDecision:
    """Decide whether and when to retry, in the order of decision R4.

    ``jitter`` is a number in [0, 1) drawn by the caller; with ``at_once`` there is no backoff.
    """
    policy = retry.from_stored(job.retry)
    delay_ms = 0 if at_once else failure.retry_after_ms
    if delay_ms is None:
        delay_ms = retry.delay_ms(policy, job.attempt, jitter)
    if _gives_up(job, failure, policy):
        return RetryDecision(False, delay_ms, _is_dead_letter(failure.directive, policy))
    total = total_deadline(job)
    next_ms = job.timeout_ms if job.timeout_explicit else 0
    if total is not None and total < after(now, delay_ms + next_ms):
        dead = _is_dead_letter(None, policy)
        return RetryDecision(False, delay_ms, dead, too_late=True, next_ms=next_ms)
    return RetryDecision(True, delay_ms)


def _gives_up(job: JobRow, failure: Failure, policy: RetryPolicy) -> bool:
    if failure.directive in (Directive.DISCARD, Directive.FAIL, Directive.DEAD_LETTER):
        return True
    if job.attempt >= max(1, job.max_attempts):
        return True
    if failure.directive is Directive.RETRY:
        return False
    listed = policy.non_retryable_errors
    return not failure.retryable or retry.matches(listed, failure.names, failure.bases)


def _is_dead_letter(directive: Directive | None, policy: RetryPolicy) -> bool:
    if directive in (Directive.DISCARD, Directive.FAIL):
        return False
    return directive is Directive.DEAD_LETTER or policy.on_exhaustion == "dead_letter"
