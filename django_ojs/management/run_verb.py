"""``ojs run``: call a handler here and now, without a job."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from asgiref.sync import async_to_sync
from django.core.management.base import CommandError, CommandParser

from django_ojs import clock
from django_ojs.domain.admission import admit
from django_ojs.domain.errors import Conflict
from django_ojs.domain.job import JobRow
from django_ojs.domain.timeouts import after, starting_deadline
from django_ojs.handlers import execution, registry
from django_ojs.handlers.context import JobContext
from django_ojs.management.base import OJSCommand, add_call, call_of
from django_ojs.services.job_defaults import resolve_defaults
from django_ojs.worker.executor.results import result_text


class RunVerb(OJSCommand):
    """The verb that needs no worker."""

    def add_run_verb(self, verbs: Any, add: Callable[..., CommandParser]) -> None:
        """Declare it."""
        add_call(add(verbs, "run", "call a handler here and now: without a job, and without limits"))

    def do_run(self, alias: str, options: dict[str, Any]) -> None:
        """Prints what the handler returns; exits 1 when it raises."""
        args, kwargs = call_of(options)
        handler = registry.find(options["type"])
        now = clock.now(alias)
        try:
            envelope = handler.envelope(args, kwargs, now)
        except TypeError as error:
            raise CommandError(str(error), returncode=2) from error
        row = admit(envelope, resolve_defaults(envelope), job_id=clock.new_id(), now=now)
        supervisor = _Aloud(now, row, self._aside)
        context = JobContext._of(supervisor, row._replace(attempt=1), supervisor.deadline)
        before = execution.running.set(context)
        try:
            result = result_text(execution.run(context, _call))
        except Exception as error:
            shown = error.with_traceback(_below(error))
            for line in "".join(traceback.format_exception(shown)).splitlines():
                self._aside(line)
            if options["format"] == "json":
                self.emit({"error": {"type": type(error).__qualname__, "message": str(error)}})
            sys.exit(1)
        finally:
            execution.running.reset(before)
        value = None if result is None else json.loads(result)
        self.answer(options, {"result": value}, [] if result is None else [result])

    def _aside(self, text: str) -> None:
        self.print_line(text, trouble=True)


def _call(context: JobContext) -> Any:
    handler = registry.find(context.type)
    if handler.is_async:
        return async_to_sync(handler.acall)(context)
    return handler.call(context)


def _below(error: Exception) -> Any:
    """The traceback from the handler on: what calls it is of no interest."""
    at = error.__traceback__
    while at is not None and "django_ojs" in at.tb_frame.f_globals.get("__name__", "").split(".")[0]:
        at = at.tb_next
    return at or error.__traceback__


class _Aloud:
    """A supervisor that says what a handler tells it, and keeps nothing."""

    def __init__(self, now: datetime, row: JobRow, say: Callable[[str], None]) -> None:
        self._aside = say
        self.deadline = starting_deadline(row._replace(grace_period_ms=0), now)

    def heartbeat(self) -> None:
        """Send a sign of life."""

    def progress(self, fraction: float, message: str, data: str | None) -> None:
        """Report progress."""
        self._aside(f"{fraction:.0%} {message}".rstrip())

    def checkpoint(self, state: str) -> None:
        """Save where the next attempt resumes."""
        self._aside(f"checkpoint {state}")

    def extend(self, by_ms: int) -> datetime:
        """Extend the timeout."""
        self.deadline = after(self.deadline, by_ms)
        self._aside(f"more time: {timedelta(milliseconds=by_ms)}")
        return self.deadline

    def results(self, after: int) -> tuple[list[Any], int | None]:
        """Read results of the workflow."""
        return [], None

    def add(self, call: dict[str, Any]) -> str:
        """Add a member to the workflow."""
        raise Conflict("a job that is run here is in no workflow")
