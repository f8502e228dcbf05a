"""The exceptions that stand for the end of a job where its handler raised none.

``TaskError.exception_class`` of a task's result is one of them. Nothing here is raised by the package.
"""

from __future__ import annotations


class JobFailed(Exception):
    """The attempt failed with an error of another language, or of a class that is not loaded here."""


class JobTimeout(TimeoutError):
    """The attempt ran longer than its ``timeout`` (OJS timeouts 5)."""


class TotalTimeout(TimeoutError):
    """The job did not end within its ``total_timeout``, all attempts together (OJS timeouts 9)."""


class EnqueueExpired(TimeoutError):
    """The job did not start within its ``enqueue_ttl``, or before ``expires_at`` (OJS timeouts 6),
    or an attempt not within ``attempt_ttl``.
    """


class HeartbeatLost(TimeoutError):
    """No sign of life for the ``heartbeat_timeout``, or the visibility lease ran out."""


class WorkerLost(Exception):
    """The process that ran the attempt crashed, or was shut down before the attempt could end."""


class JobCancelled(Exception):
    """The job was cancelled."""


class JobDiscarded(Exception):
    """An operator gave the waiting job up."""


class JobDropped(Exception):
    """Enqueue middleware dropped the job: nothing was stored."""


class UnknownTask(Exception):
    """The worker knew no handler of the job's type."""
