"""``ojs workflow list|show|cancel|resume``, and what ``ojs check`` finds about workflows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from django_ojs.domain.durations import format_instant
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.workflow import WorkflowState
from django_ojs.management.base import OJSCommand, actor_of, parse_id, table
from django_ojs.models import Workflow
from django_ojs.services.workflows import operate, read, upkeep
from django_ojs.services.workflows.story import story

AddVerb = Callable[..., CommandParser]
_MOST = 1000


class WorkflowVerbs(OJSCommand):
    """The verbs about workflows."""

    def add_workflow_verbs(self, parser: CommandParser, add: AddVerb) -> None:
        """Declare the subcommands."""
        verbs = parser.add_subparsers(dest="workflow_verb", required=True, metavar="VERB")
        listed = add(verbs, "list", "the newest workflows, nested ones left out")
        listed.add_argument(
            "--state", choices=[*map(str, WorkflowState)], help="only those in this state"
        )
        listed.add_argument("--name", help="only those of this name")
        listed.add_argument("--limit", type=int, default=50, help="at most this many (default 50)")
        add(verbs, "show", "a workflow with its members", ids=1)
        add(verbs, "cancel", "cancel running workflows with all their jobs", ids=2, reason=True)
        add(verbs, "resume", "run again what has failed or was cancelled", ids=2, reason=True)

    def do_workflow(self, alias: str, options: dict[str, Any]) -> None:
        """One of the subcommands."""
        verb: Callable[[str, dict[str, Any]], None] = getattr(
            self, f"_workflow_{options['workflow_verb']}"
        )
        verb(alias, options)

    def _workflow_list(self, alias: str, options: dict[str, Any]) -> None:
        limit = options["limit"]
        if not 0 < limit <= _MOST:
            raise InvalidRequest("--limit", f"must be from 1 to {_MOST}")
        rows = Workflow.objects.using(alias).filter(parent_id__isnull=True)
        for column in ("state", "name"):
            if options[column] is not None:
                rows = rows.filter(**{column: options[column]})
        found = list(rows.order_by("-pk")[:limit])
        shown = [("ID", "KIND", "NAME", "STATE", "DONE", "FAILED", "CREATED")]
        for row in found:
            done = f"{row.completed} of {row.total}"
            created = format_instant(row.created_at)
            shown.append((str(row.id), row.kind, row.name, row.state, done, str(row.failed), created))
        value = [described(row) for row in found]
        self.answer(options, value, table(shown) if found else ["no workflows"])

    def _workflow_show(self, alias: str, options: dict[str, Any]) -> None:
        row = operate.get(parse_id(options["ids"][0], "workflow"), using=alias)
        members = read.members(row, using=alias)
        errors = read.errors_of(row, using=alias)
        steps = [
            {
                "index": one.index,
                "id": one.key,
                "type": one.type,
                "state": one.state,
                "job_id": one.job_id and str(one.job_id),
                "workflow_id": one.workflow_id and str(one.workflow_id),
                "depends_on": list(one.depends_on),
            }
            for one in members
        ]
        value = {**described(row), "steps": steps, "errors": errors}
        rows = [
            ("STEP", "TYPE", "STATE", "JOB"),
            *(
                (one.key, one.type, one.state, str(one.job_id or one.workflow_id or "-"))
                for one in members
            ),
        ]
        fields = [f"{name:16} {value}" for name, value in described(row).items() if value is not None]
        lines = [*fields, story(row, members, errors, using=alias), *table(rows)]
        self.answer(options, value, lines)

    def _workflow_cancel(self, alias: str, options: dict[str, Any]) -> None:
        self._change_workflows(operate.cancel, alias, options)

    def _workflow_resume(self, alias: str, options: dict[str, Any]) -> None:
        self._change_workflows(operate.resume, alias, options)

    def _change_workflows(
        self, change: Callable[..., Workflow], alias: str, options: dict[str, Any]
    ) -> None:
        """Each in a transaction of its own; what was done before one that fails is said, too."""
        done: list[Workflow] = []
        try:
            for one in _ids(options):
                row = change(one, actor=actor_of(options), using=alias)
                done.append(row)
        finally:
            if done:
                self._workflows(done, options)

    def _workflows(self, rows: Sequence[Workflow], options: dict[str, Any]) -> None:
        lines = (
            f"{row.id} {row.name or row.kind} is {row.state}: {row.completed} completed,"
            f" {row.failed} failed, {row.cancelled} cancelled, {row.open} open"
            for row in rows
        )
        self.confirm(options, [described(row) for row in rows], lines)

    def wrong_workflows(self, alias: str, *, repair: bool) -> list[upkeep.Drift]:
        """The workflows whose counters are wrong; with ``repair`` they have been mended."""
        found: Iterable[upkeep.Drift] = upkeep.drifts(using=alias)
        if repair:
            mended = (upkeep.repair(drift.workflow_id, using=alias) for drift in list(found))
            found = (drift for drift in mended if drift is not None)
        return list(found)


def described(row: Workflow) -> dict[str, Any]:
    """A workflow in plain values."""
    value = {
        "id": str(row.id),
        "kind": row.kind,
        "name": row.name,
        "state": row.state,
        "total": row.total,
        "open": row.open,
        "completed": row.completed,
        "failed": row.failed,
        "cancelled": row.cancelled,
        "runs": row.runs,
        "created_at": format_instant(row.created_at),
    }
    for name in ("deadline_at", "finished_at"):
        moment = getattr(row, name)
        value[name] = None if moment is None else format_instant(moment)
    return value | {"error": row.error}


def _ids(options: dict[str, Any]) -> list[UUID]:
    return [parse_id(text, "workflow") for text in options["ids"]]
