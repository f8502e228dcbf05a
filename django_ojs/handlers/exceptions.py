"""Exceptions that a handler raises to decide what happens next, and the one that stops it."""

from __future__ import annotations

from datetime import timedelta

from django_ojs.domain.durations import parse_seconds_ms


class SoftStop(BaseException):
    """Raised once in a running handler that must stop: clean up and return (OJS timeouts 5.4).

    A ``BaseException``, so that ``except Exception`` does not catch it. ``reason`` is ``timeout`` (the
    grace period has begun), ``total_timeout`` (the outcome is settled; the grace period is for clean-up
    and a checkpoint), ``cancelled``, ``stalled`` (the server received no sign of life and ended the
    attempt), ``shutdown`` or ``lost`` (the lease is lost for an unknown reason). Database connections
    were closed before it was raised; new queries reconnect.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class HandlerDecision(Exception):
    """Base of the exceptions by which a handler overrides the retry policy (OJS retry 7.2)."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)


class Retry(HandlerDecision):
    """Try again; ``after`` (seconds, ``timedelta``, ``"10s"``, ISO 8601) replaces the backoff."""

    def __init__(self, message: str = "", *, after: int | str | timedelta | None = None) -> None:
        super().__init__(message)
        self.after_ms = None if after is None else parse_seconds_ms(after, "after")


class Discard(HandlerDecision):
    """Give up: no retry, no dead letter."""


class DeadLetter(HandlerDecision):
    """Give up and keep the job in the dead letter for an operator."""


class Fail(HandlerDecision):
    """A recognised permanent failure: no retry, no dead letter."""


class LeaseGone(Exception):
    """Raised by calls of the context after the lease was lost."""


# Stored errors, log lines and tracebacks name them as users import them.
for _public in (SoftStop, Retry, Discard, DeadLetter, Fail, LeaseGone):
    _public.__module__ = "django_ojs"
del _public
