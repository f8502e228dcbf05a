"""Which job types run in the shared executor, many coroutines at a time (``ASYNC_SLOTS``)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from django_ojs.handlers import registry

logger = logging.getLogger("django_ojs.worker")


class SharedTypes:
    """Types with an asynchronous handler, without those that want a process of their own.

    A type whose handler could not be stopped without the process, which others shared, runs isolated as
    long as this worker lives. When a shared process crashes, all types that ran in it are suspects:
    each runs isolated until one job of it has completed so. ``on_change`` is called at each change.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._types = frozenset(name for name in registry.types() if _shares(name) and slots)
        self.suspects: frozenset[str] = frozenset()
        self.on_change: Callable[[], None] = lambda: None

    def __bool__(self) -> bool:
        return bool(self._types)

    def __contains__(self, job_type: object) -> bool:
        return job_type in self._types

    def names(self) -> frozenset[str]:
        """The types that share."""
        return self._types

    def isolate(self, job_type: str, why: str) -> None:
        """Run this type in executors of its own from now on."""
        if job_type in self._types:
            self._types -= {job_type}
            logger.warning(
                "jobs of type %s run in processes of their own from now on: %s", job_type, why
            )
            self.on_change()

    def suspect(self, job_types: Iterable[str]) -> None:
        """Run these types in executors of their own until they are :meth:`cleared`."""
        found = self._types.intersection(job_types)
        if found:
            self._types -= found
            self.suspects |= found
            text = "a shared process has ended: jobs of these types run alone until one completes: %s"
            logger.warning(text, ", ".join(sorted(found)))
            self.on_change()

    def cleared(self, job_type: str) -> None:
        """A job of a suspected type has completed by itself: it was another."""
        self.suspects -= {job_type}
        self._types |= {job_type}
        self.on_change()


def _shares(job_type: str) -> bool:
    handler = registry.handler_of(job_type)
    return handler is not None and handler.is_async and not handler.isolate
