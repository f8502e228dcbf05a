"""The calls of handlers that wait for an answer: each is work for the database thread, then a reply."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django_ojs.domain import jsonvalue, stored_envelope
from django_ojs.domain.errors import Conflict, LeaseLost
from django_ojs.domain.job import Actor
from django_ojs.services import leases, operate
from django_ojs.services.operate import Extension
from django_ojs.services.workflows import operate as workflows
from django_ojs.services.workflows import results
from django_ojs.worker.prefork import messages
from django_ojs.worker.prefork.child import Slot
from django_ojs.worker.prefork.frames import Frame
from django_ojs.worker.prefork.leased import LeasedJob
from django_ojs.worker.prefork.pool import Pool
from django_ojs.worker.supervisor.deadlines import DeadlineEnforcer
from django_ojs.worker.threads.database import DatabaseThread

_WORKER = Actor("worker")
Answer = Callable[[Any, Exception | None], None]


class HandlerCalls:
    """Carries out calls; the reply is lost if the job has ended meanwhile."""

    def __init__(
        self, pool: Pool, database: DatabaseThread, enforcer: DeadlineEnforcer, *, using: str
    ) -> None:
        self._pool = pool
        self._database = database
        self._enforcer = enforcer
        self._using = using

    def take(self, slot: Slot, running: LeasedJob, frame: Frame) -> None:
        """Carry out the call of a running job."""
        # Read here: only of a malformed frame an error is handled as a crash of the executor.
        number = int(frame["number"])

        def answer(value: Any, error: Exception | None) -> None:
            reply = messages.reply(number, value)
            if error is not None:
                kind = "lost" if isinstance(error, LeaseLost) else "trouble"
                kind = "conflict" if type(error) is Conflict else kind
                message = jsonvalue.sanitise_text(str(error), jsonvalue.MAX_ERROR_MESSAGE_BYTES)
                reply = messages.refusal(number, kind, message)
            if slot.running is running:
                self._pool.send(slot.child, reply)

        match frame["verb"]:
            case "checkpoint":
                self._checkpoint(running, frame["state"], answer)
            case "extend":
                self._extend(running, frame["by_ms"], answer)
            case "results":
                self._results(running, frame["after"], answer)
            case "add":
                self._add(running, frame["call"], answer)

    def _checkpoint(self, running: LeasedJob, state: str, answer: Answer) -> None:
        held = running.held

        def save() -> None:
            if not leases.checkpoint(held, state, using=self._using):
                raise LeaseLost("the lease was lost")

        self._database.call(save, answer)

    def _extend(self, running: LeasedJob, by_ms: int, answer: Answer) -> None:
        held = running.held

        def extend() -> Extension:
            return operate.extend_timeout(
                [held.job_id], by_ms, lease=held, actor=_WORKER, using=self._using
            )[0]

        def extended(made: Extension | None, error: Exception | None) -> None:
            soft = None
            if made is not None:
                self._enforcer.apply_deadline(running, made.deadline_at, made.job.extended_ms)
                soft = made.soft_deadline_at.isoformat()
            answer(soft, error)

        self._database.call(extend, extended)

    def _results(self, running: LeasedJob, after: int, answer: Answer) -> None:
        job = running.job

        def read() -> dict[str, Any]:
            source = results.sources([job], using=self._using).get(job.id)
            if source is None:
                return {"values": [], "after": None}
            page = results.page(source, after=after, largest=results.LARGEST, using=self._using)
            return {"values": [json.loads(text) for text in page.texts], "after": page.after}

        self._database.call(read, answer)

    def _add(self, running: LeasedJob, call: dict[str, Any], answer: Answer) -> None:
        held = running.held

        def add() -> str:
            return str(workflows.add(held, stored_envelope.load(call), using=self._using).id)

        self._database.call(add, answer)
