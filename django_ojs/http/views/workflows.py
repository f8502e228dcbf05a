"""Workflows: create, look, list, cancel, resume, results (OJS workflows 11)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from django_ojs import clock
from django_ojs.domain.envelope import Envelope, from_wire
from django_ojs.domain.errors import InvalidRequest, NotFound, PermissionDenied
from django_ojs.domain.near import NearMisses
from django_ojs.domain.workflow import Definition, WorkflowKind, WorkflowState, each_call
from django_ojs.http import listing, workflow_responses
from django_ojs.http.base import OJSViewSet, missing
from django_ojs.http.duplicates import shielded
from django_ojs.http.limits import charge_enqueue
from django_ojs.http.replica import from_replica
from django_ojs.http.workflow_bodies import KNOWN, definition_of
from django_ojs.models import Workflow
from django_ojs.services import databases
from django_ojs.services.job_defaults import resolve_defaults, warnings_about
from django_ojs.services.workflows import operate, read, results
from django_ojs.services.workflows.create import create, database_of
from django_ojs.services.workflows.results import Source
from django_ojs.services.workflows.up_to_date import bring_up_to_date
from django_ojs.store.sessions import statement_timeout

CANCEL_SECONDS = 10.0
"""How long a request cancels members; a maintenance task does the rest."""
_FILTERS = frozenset({"state", "type", "name"})


class WorkflowViewSet(OJSViewSet):
    """The workflows."""

    scopes = {
        "create": ("produce",),
        "list": ("inspect",),
        "retrieve": ("inspect",),
        "progress": ("inspect",),
        "results": ("inspect", "work"),
        "cancel": ("administer",),
        "resume": ("administer",),
    }

    def create(self, request: Request) -> Response:
        """Create a workflow: 201, or 200 when the same id with the same content is there already."""
        body = self.body()
        now = clock.now(self.using)

        misses = NearMisses()

        def parse(job: Mapping[str, Any], place: str) -> Envelope:
            envelope = self._envelope(job, now)
            for field, near in misses.of(job):
                self.warn(f"{place}.{field}", f"is not known; did you mean {near!r}?", near=near)
            for warning in warnings_about(envelope):
                self.warn(f"{place}.{warning['field']}", warning["message"])
            return envelope

        definition = definition_of(body, parse, now=now)
        self.use(database_of(definition))
        now = clock.now(self.using)
        for name in sorted(body.keys() - KNOWN):
            self.warn(name[:80], "is not known, and ignored")
        self._charge(definition)
        row = self._created(definition, now)
        headers = {"Location": f"/ojs/v1/workflows/{row.id}"}
        if row.created_at != now:
            return Response({**self._repeated(row), "deduplicated": True}, headers=headers)
        return Response(self._shape(row), status=201, headers=headers)

    @from_replica
    def list(self, request: Request) -> Response:
        """The outermost workflows, newest first, filtered."""
        listing.allow(request, _FILTERS)
        rows = Workflow.objects.using(self.using).filter(parent_id__isnull=True)
        query = request.query_params
        for field, column, known in (("state", "state", WorkflowState), ("type", "kind", WorkflowKind)):
            if field in query:
                values = query[field].split(",")
                if not set(values) <= set(known):
                    raise InvalidRequest(field, f"must be out of {', '.join(known)}")
                rows = rows.filter(**{f"{column}__in": values})
        if "name" in query:
            rows = rows.filter(name=query["name"])

        def shape(found: Sequence[Workflow]) -> list[Any]:
            return [workflow_responses.summary(row) for row in found]

        only = None if self.caller.unrestricted else ("queues", self._sees_all)
        page = listing.listed(request, rows, shape, "workflows", keys=("id",), down=True, only=only)
        return Response(page)

    def retrieve(self, request: Request, workflow_id: str) -> Response:
        """A workflow with its first 1,000 steps."""
        return Response(self._shape(self._workflow(workflow_id, fresh=True)))

    def progress(self, request: Request, workflow_id: str) -> Response:
        """How far it is, and each of its first 1,000 steps."""
        row = self._workflow(workflow_id, fresh=True)
        members = read.members(row, using=self.using)
        with statement_timeout(listing.TIME_LIMIT_MS, using=self.using):
            fraction = read.progress(row, members, using=self.using)
        return Response(workflow_responses.progress(row, members, fraction))

    def results(self, request: Request, workflow_id: str) -> Response:
        """The results of its members in their order, a page at a time; with ``job_id`` those that this
        job gets as ``parent_results``, which is all that a worker may ask.
        """
        listing.allow(request, frozenset({"after", "limit", "job_id"}), frozenset())
        source = self._source(workflow_id, request.query_params.get("job_id"))
        after = self._whole("after", -1, least=0)
        limit = min(self._whole("limit", listing.DEFAULT_LIMIT, least=1), listing.MAX_LIMIT)
        page = results.page(source, after=after, limit=limit, using=self.using)
        found = [
            {"index": after + 1 + number, "result": json.loads(text)}
            for number, text in enumerate(page.texts)
        ]
        return Response({"workflow_id": workflow_id, "results": found, "next_after": page.after})

    def cancel(self, request: Request, workflow_id: str) -> Response:
        """Cancel it with all its jobs; its callbacks do not run."""
        actor = self.acting()
        row = self._workflow(workflow_id, fresh=True)
        after = operate.cancel(row.id, actor=actor, seconds=CANCEL_SECONDS, using=self.using)
        counts = {"steps_cancelled": after.cancelled, "steps_already_completed": after.completed}
        return Response(self._shape(after, **counts))

    def resume(self, request: Request, workflow_id: str) -> Response:
        """Run again what has failed or was cancelled, and go on from there."""
        actor = self.acting()
        row = self._workflow(workflow_id, fresh=True)
        with shielded(self.caller):
            operate.resume(row.id, actor=actor, using=self.using)
        return Response(self._shape(self._workflow(workflow_id)))

    def _whole(self, name: str, default: int, *, least: int) -> int:
        text = self.request.query_params.get(name)
        if not text:
            return default
        if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) < least:
            raise InvalidRequest(name, f"must be an integer of at least {least}")
        return int(text)

    def _envelope(self, body: Any, now: datetime) -> Envelope:
        envelope = from_wire(body, now=now)
        queue = envelope.queue if self.caller.unrestricted else resolve_defaults(envelope).queue
        if queue is not None:
            self.may_use(queue, "queue")
        return envelope

    def _created(self, definition: Definition, now: datetime) -> Workflow:
        with shielded(self.caller):
            return create(definition, created_by=self.caller.key, now=now, using=self.using)

    def _repeated(self, row: Workflow) -> Any:
        """The answer to a repeated request; without the scope to look at the workflow, as it was."""
        if self.caller.may("inspect"):
            return self._shape(self._workflow(str(row.id)))
        return workflow_responses.workflow(read.fresh(row), (), {}, ())

    def _source(self, workflow_id: str, job_id: str | None) -> Source:
        """Whose results are asked for. Raises :class:`NotFound`, :class:`PermissionDenied`."""
        if job_id is None:
            row = self._workflow(workflow_id)
            if not self.caller.may("inspect"):
                raise PermissionDenied("This needs the scope inspect, or the job_id of a job.")
            return results.source_of(row, using=self.using)
        key, job = self.key(workflow_id, "workflow"), self.job(job_id)
        if job.workflow_id != key:
            raise missing("job", job_id)
        found = results.sources([job], using=self.using)
        return found.get(job.id, Source(key, ()))

    def _charge(self, definition: Definition) -> None:
        calls = list(each_call(definition))
        self.quota = charge_enqueue(self.caller, len(calls), self.body_bytes)
        self.first_use(call.envelope.queue for call in calls if call.envelope.queue is not None)

    def _workflow(self, workflow_id: str, *, fresh: bool = False) -> Workflow:
        """A workflow that the caller may see; with ``fresh`` what is due of it happens first.

        Raises :class:`NotFound`, also for a foreign queue.
        """
        key = self.key(workflow_id, "workflow")
        self.use(databases.of_workflow(key))
        try:
            row = operate.get(key, using=self.using)
        except NotFound:
            raise missing("workflow", workflow_id) from None
        if not self._sees_all(row.queues):
            raise missing("workflow", workflow_id)
        if not fresh or row.finished_at is not None:
            return row
        bring_up_to_date(row, using=self.using)
        return operate.get(key, using=self.using)

    def _sees_all(self, queues: Sequence[str]) -> bool:
        """Whether the queues of all jobs of a workflow are visible to the caller."""
        return self.caller.unrestricted or all(map(self.caller.sees, queues))

    def _shape(self, row: Workflow, **more: Any) -> Any:
        members = read.members(row, using=self.using)
        found = results.inline(row, most=read.MOST_MEMBERS, using=self.using)
        errors = read.errors_of(row, using=self.using)
        return workflow_responses.workflow(row, members, found, errors, **more)
