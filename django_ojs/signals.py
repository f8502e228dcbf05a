"""Django signals sent after commit, one per OJS event, by ``send_robust``.

Receivers get ``sender`` (the event's kind, a string) and ``event``, an :class:`EventRecord`. A receiver
that raises breaks nothing: the error is logged by Django. One that takes more than a second is named
in a warning. They run in the thread that committed; in ``runworker`` and ``reap_timeouts`` in a
thread of their own, so that a slow one holds up no report and no deadline.

Signals are best effort: they are lost with the process. Where none may be missed, read the stored
events.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.dispatch import Signal

from django_ojs import clock, conf
from django_ojs.domain.events import Kind, register_kind

logger = logging.getLogger("django_ojs.signals")

SLOW_S = 1.0
"""A receiver that takes longer is warned about, once a minute."""
_WARN_EVERY_S = 60.0


class EventRecord(NamedTuple):
    """One OJS event (OJS events): ``data`` has the fields of its kind."""

    id: UUID
    kind: str
    time: datetime
    data: Mapping[str, Any]


class JobSignal(Signal):
    """A signal that measures each of its receivers."""

    def __init__(self) -> None:
        super().__init__()
        self._offers: list[tuple[Callable[[], bool], Callable[..., Any]]] = []

    def connect_when(self, wanted: Callable[[], bool], receiver: Callable[..., Any]) -> None:
        """Connect a receiver as soon as ``wanted()`` is true, which is asked at each event until then.

        For a receiver that only passes on what it gets: without it an event costs nothing.
        """
        self._offers.append((wanted, receiver))

    def heard(self) -> bool:
        """Whether there is a receiver; an event that has none need not be made."""
        for offer in self._offers.copy() if self._offers else ():
            if offer[0]():
                self._offers.remove(offer)
                self.connect(offer[1], weak=False)
        return bool(self.receivers)

    def _live_receivers(self, sender: Any) -> Any:
        # Django has no public hook around a single receiver.
        plain, asynchronous = super()._live_receivers(sender)
        return [_measured(call) for call in plain], [_measured_async(call) for call in asynchronous]


_running: dict[int, str] = {}
_warned_at: dict[str, float] = {}


def running_in(thread: int | None) -> str | None:
    """The dotted name of the receiver that runs in the thread of this ident, if one does."""
    return None if thread is None else _running.get(thread)


@contextmanager
def _measuring(name: str) -> Iterator[None]:
    thread, began = threading.get_ident(), clock.boottime()
    outer = _running.get(thread)
    _running[thread] = name
    try:
        yield
    finally:
        if outer is None:
            _running.pop(thread, None)
        else:
            _running[thread] = outer
        ended = clock.boottime()
        warned_at = _warned_at.get(name)
        if ended - began > SLOW_S and (warned_at is None or ended - warned_at > _WARN_EVERY_S):
            _warned_at[name] = ended
            logger.warning("slow receiver: %s took %.1f s", name, ended - began)


def _measured(receiver: Callable[..., Any]) -> Callable[..., Any]:
    def call(**named: Any) -> Any:
        with _measuring(call.__qualname__):
            return receiver(**named)

    # Django logs a failed receiver by its ``__qualname__``, and raises if there is none.
    call.__qualname__ = _name_of(receiver)
    return call


def _measured_async(receiver: Callable[..., Any]) -> Callable[..., Any]:
    async def call(**named: Any) -> Any:
        with _measuring(call.__qualname__):
            return await receiver(**named)

    call.__qualname__ = _name_of(receiver)
    return call


def _name_of(receiver: Any) -> str:
    named = receiver if hasattr(receiver, "__qualname__") else type(receiver)
    return f"{named.__module__}.{named.__qualname__}"


job_enqueued = JobSignal()
job_scheduled = JobSignal()
job_started = JobSignal()
job_completed = JobSignal()
job_heartbeat = JobSignal()
job_progress = JobSignal()
job_failed = JobSignal()
job_retrying = JobSignal()
job_released = JobSignal()
job_discarded = JobSignal()
job_cancelled = JobSignal()
job_timeout = JobSignal()
job_stalled = JobSignal()
job_ttl_expired = JobSignal()
job_expired = JobSignal()
job_total_timeout = JobSignal()
job_retried = JobSignal()
job_rescheduled = JobSignal()
job_edited = JobSignal()
job_timeout_extended = JobSignal()
job_purged = JobSignal()
job_deduplicated = JobSignal()
dead_letter_added = JobSignal()
dead_letter_retried = JobSignal()
queue_paused = JobSignal()
queue_resumed = JobSignal()
worker_started = JobSignal()
worker_quiet = JobSignal()
worker_stopped = JobSignal()
workflow_started = JobSignal()
workflow_step_completed = JobSignal()
workflow_step_failed = JobSignal()
workflow_completed = JobSignal()
workflow_failed = JobSignal()
workflow_cancelled = JobSignal()
workflow_resumed = JobSignal()
rate_limit_exceeded = JobSignal()
rate_limit_released = JobSignal()
rate_limit_dropped = JobSignal()
rate_limit_dynamic_adjusted = JobSignal()
cron_triggered = JobSignal()
cron_skipped = JobSignal()
cron_missed = JobSignal()

executor_died = JobSignal()
"""No event of Open Job Spec, and never stored: sent by the worker whose executor has ended without a
report of the job that it ran. It was killed at a deadline, or has crashed; other signals tell what
becomes of the job. ``data``: ``job_id``, ``job_type``, ``queue``, ``attempt``, ``meta``,
``worker_id``, ``seconds`` since the handler began, ``reason`` (that of the stop, as in
:class:`SoftStop`, or ``crash``) and ``message``, of a crash.
"""
EXECUTOR_DIED = "executor.died"

by_kind: dict[str, JobSignal] = {str(kind): globals()[kind.replace(".", "_")] for kind in Kind}
by_kind[EXECUTOR_DIED] = executor_died


def register(kind: str, *, routine: bool = False) -> JobSignal:
    """A signal for another kind of event, for apps that publish their own; call it when Django starts.

    Events of a ``routine`` kind are stored only if ``OJS["EVENTS"]`` names it. Raises ``ValueError``
    for a name that is taken, or is no ``subject.verb``.
    """
    register_kind(kind, routine=routine)
    signal = by_kind[kind] = JobSignal()
    conf.read_again()
    return signal


def send(event: EventRecord) -> None:
    """Call the receivers of an event, in this thread."""
    by_kind[event.kind].send_robust(sender=event.kind, event=event)


_deliver: Callable[[EventRecord], None] = send


def deliver(event: EventRecord) -> None:
    """Have the receivers of a committed event called: here, or where :func:`delivered_by` says."""
    _deliver(event)


@contextmanager
def delivered_by(deliver: Callable[[EventRecord], None]) -> Iterator[None]:
    """Within the block ``deliver`` takes every event of this process, from any thread."""
    global _deliver
    before, _deliver = _deliver, deliver
    try:
        yield
    finally:
        _deliver = before
