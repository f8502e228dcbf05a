"""See the events of a test when they happen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from unittest import mock

from django_ojs import clock
from django_ojs.domain.job import JobEvent
from django_ojs.domain.states import State
from django_ojs.services import commit
from django_ojs.signals import EventRecord, by_kind


@contextmanager
def events() -> Iterator[list[EventRecord]]:
    """In the block, add every event of this process to the list that it gives, in their order.

    Each is there when it is written, whether ``OJS["EVENTS"]`` stores its kind or not, and in
    ``TestCase`` too: signals wait for a commit, which never comes there. So what is rolled back stays
    in the list.
    """
    found: list[EventRecord] = []
    publish = commit._publish

    def record(
        with_states: Sequence[tuple[JobEvent, State | None]], *, now: datetime, using: str
    ) -> None:
        publish(with_states, now=now, using=using)
        for event, state in with_states:
            data: Any = commit._data(event, state)
            found.append(EventRecord(clock.new_id(), event.kind, now, data))

    # Events without a receiver are not made.
    for signal in by_kind.values():
        signal.connect(_ignore)
    try:
        with mock.patch.object(commit, "_publish", record):
            yield found
    finally:
        for signal in by_kind.values():
            signal.disconnect(_ignore)


def _ignore(**event: Any) -> None:
    """Receives."""
