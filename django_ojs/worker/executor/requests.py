"""What a running handler asks of the supervisor, as messages about its lease."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime
from typing import Any

from django_ojs.domain.errors import Conflict
from django_ojs.handlers.context import JobContext, Supervisor
from django_ojs.handlers.exceptions import LeaseGone
from django_ojs.worker.prefork import messages
from django_ojs.worker.prefork.frames import Frame


class Requests(ABC):
    """The supervisor of a :class:`JobContext`."""

    @property
    @abstractmethod
    def lease(self) -> str:
        """The lease of the job. Raises ``RuntimeError`` if it does not run here."""

    @abstractmethod
    def send(self, frame: Frame) -> None:
        """Send a frame."""

    @abstractmethod
    def ask(self, verb: str, **arguments: Any) -> Any:
        """Make a call and wait for the reply."""

    def heartbeat(self) -> None:
        """Send a sign of life; from any thread of the handler."""
        self.send(messages.heartbeat(self.lease))

    def progress(self, fraction: float, message: str, data: str | None) -> None:
        """Report progress; from any thread of the handler."""
        self.send(messages.progress(self.lease, fraction, message, data))

    def checkpoint(self, state: str) -> None:
        """Save JSON text; return when it is durable."""
        self.ask("checkpoint", state=state)

    def extend(self, by_ms: int) -> datetime:
        """Extend the timeout; return the new time of the soft stop."""
        return datetime.fromisoformat(self.ask("extend", by_ms=by_ms))

    def results(self, after: int) -> tuple[list[Any], int | None]:
        """Read results of the workflow behind a place; return the next place."""
        page = self.ask("results", after=after)
        return page["values"], page["after"]

    def add(self, call: dict[str, Any]) -> str:
        """Add a member to the workflow; return its id."""
        job_id: str = self.ask("add", call=call)
        return job_id


def context_of(frame: Frame, supervisor: Supervisor) -> JobContext:
    """The context of the job that a ``run`` message gives."""
    return JobContext(
        supervisor,
        id=messages.job_id(frame),
        type=frame["type"],
        queue=frame["queue"],
        attempt=frame["attempt"],
        max_attempts=frame["max_attempts"],
        meta=frame["meta"],
        args=frame["args"],
        last_checkpoint=frame.get("checkpoint"),
        last_progress_data=frame.get("progress_data"),
        workflow_id=frame.get("workflow_id"),
        deadline=datetime.fromisoformat(frame["deadline"]),
    )


def value_of(reply: Frame) -> Any:
    """The value of a reply. Raises what it reports: :class:`LeaseGone`, :class:`Conflict`."""
    error = reply.get("error")
    if error is None:
        return reply["value"]
    if error == "lost":
        raise LeaseGone(reply["message"])
    if error == "conflict":
        raise Conflict(reply["message"])
    raise RuntimeError(reply["message"])
