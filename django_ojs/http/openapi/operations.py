"""What each action of the binding takes and answers, for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from django_ojs.http.listing import MAX_LIMIT, MAX_OFFSET
from django_ojs.http.openapi import fields as f
from django_ojs.http.openapi.schemas import cron, jobs, queues, rate_limits, system, work, workflows
from django_ojs.http.problems import PROBLEMS

Parameters = Mapping[str, f.JsonSchema]
"""Schemas with descriptions, by the name of the parameter."""
STREAM = "text/event-stream"
METRICS = "text/plain"

_PAGE: Parameters = {
    "limit": f.integer(
        f"How many; more than {MAX_LIMIT} is lowered to it. Also `per_page`.", minimum=1
    ),
    "offset": f.integer(
        "How many to skip; beyond the limit follow `next_cursor`.", minimum=0, maximum=MAX_OFFSET
    ),
    "page": f.integer("Instead of `offset`, with `per_page`.", minimum=1),
    "per_page": f.integer("With `page`.", minimum=1),
}
_CURSOR: Parameters = {"cursor": f.text("`next_cursor` of an earlier page.")}
_LIST: Parameters = {**_PAGE, **_CURSOR}
_JOBS: Parameters = {
    **_LIST,
    "state": f.text("One or more, with commas."),
    "queue": f.text("One or more, with commas."),
    "type": f.text("One or more, with commas; may end in `.*`."),
    "worker_id": f.text("Who runs it."),
    "error_type": f.text("Type of the last error."),
    "dead_letter": f.text("Whether it is kept there.", enum=["true", "false"]),
    "since": f.text("Made at or after this time: RFC 3339, or how long ago (`24h`)."),
    "until": f.text("Made before this time: RFC 3339, or how long ago (`24h`)."),
    "order": f.text("Newest first, or oldest first.", enum=["desc", "asc"]),
    "sort": f.text("The only order that there is.", enum=["created_at"]),
}
_WAIT: Parameters = {
    "wait": f.text("Until the job has ended.", enum=["true", "false"]),
    "timeout": f.integer("Seconds to wait; 30 at most, and by default. Then 408.", minimum=1),
}
_DEAD = {name: _JOBS[name] for name in (*_LIST, "queue", "type", "error_type")}
_KINDS: Parameters = {
    "types": f.text("Kinds of events, with commas; may end in `*`. Also `type`."),
    "queues": f.text("With commas. Also `queue`."),
    "job_id": f.text("Events of this job only."),
    "after": f.text("The id of the last event that is known."),
}
_EVENTS: Parameters = {
    **_KINDS,
    "limit": _PAGE["limit"],
    "cursor": f.text("The same as `after`."),
    "since": f.text("RFC 3339, or how long ago (`24h`); without `after`."),
}
_WHOSE: Parameters = {
    "client": f.text(
        "Whose worker, as in the list; empty for one of the project. Without: the caller's own, or the"
        " only one of that name. 409 where there are several."
    ),
}
_WORKFLOWS: Parameters = {
    **_LIST,
    "state": f.text("One or more, with commas."),
    "type": f.text("One or more, with commas."),
    "name": f.text("The whole name."),
}
_CRON: Parameters = {
    **_LIST,
    "enabled": f.described({"type": "boolean"}, "Only those that are, or are not."),
}
_RESULTS: Parameters = {
    "after": f.integer("`next_after` of an earlier page.", minimum=0),
    "limit": _PAGE["limit"],
    "job_id": f.uuid("A job of the workflow: the results that it gets as `parent_results`."),
}
_CHANNEL = f.text("`all`, `job:<id>` or `queue:<name>`.")
LEASE = "`lease.id` of the fetch, instead of `lease_id` in the body."
PATH_PARAMETERS: Parameters = {
    "job_id": f.uuid("The id of a job."),
    "worker_id": f.text("The id of a worker."),
    "workflow_id": f.uuid("The id of a workflow."),
    "name": f.text("The name of a queue, or of a schedule."),
    "key": f.text("The key of a rate limit; `queue:` and its name for that of a queue."),
    "type": f.text("A job type."),
    "version": f.integer("Of the schema.", minimum=1, maximum=2**31 - 1),
    "code": f.text("A code of an error.", enum=list(PROBLEMS)),
}


class Documented(NamedTuple):
    """What an action takes and answers, by status; ``None`` is an answer without a body.

    ``flat_body`` replaces ``body`` where the path does not name the job.
    """

    answers: Mapping[int, type[f.Component] | str | None]
    body: type[f.Component] | None = None
    flat_body: type[f.Component] | None = None
    query: Parameters = {}
    lease: bool = False


def _ok(
    answer: type[f.Component] | str | None,
    body: type[f.Component] | None = None,
    *,
    status: int = 200,
    **more: Any,
) -> Documented:
    return Documented({status: answer}, body, **more)


def _without(query: Parameters, name: str) -> Parameters:
    return {key: value for key, value in query.items() if key != name}


OPERATIONS: Mapping[str, Documented] = {
    "JobViewSet.create": Documented({201: jobs.JobAnswer, 200: jobs.JobAnswer}, jobs.JobRequest),
    "JobViewSet.batch": _ok(jobs.BatchAnswer, jobs.BatchRequest, status=201),
    "JobViewSet.list": _ok(jobs.JobPage, query=_JOBS),
    "JobViewSet.retrieve": _ok(jobs.JobAnswer),
    "JobViewSet.result": _ok(jobs.Result, query=_WAIT),
    "JobViewSet.cancel": _ok(jobs.JobAnswer, jobs.Reason, query={"reason": f.text("Why.")}),
    "JobViewSet.activate": _ok(jobs.JobAnswer, jobs.Reason),
    "JobViewSet.retry": _ok(jobs.JobAnswer, jobs.RetryRequest),
    "JobViewSet.partial_update": _ok(jobs.JobAnswer, jobs.JobPatch),
    "JobViewSet.extend": _ok(jobs.JobAnswer, jobs.ExtendRequest, lease=True),
    "FlatJobViewSet.retrieve": _ok(jobs.JobComponent),
    "WorkViewSet.fetch": _ok(work.FetchAnswer, work.FetchRequest),
    "WorkViewSet.ack": _ok(work.Settled, work.JobAckRequest, flat_body=work.AckRequest, lease=True),
    "WorkViewSet.nack": _ok(work.Settled, work.JobNackRequest, flat_body=work.NackRequest, lease=True),
    "ReportViewSet.ack": _ok(work.AckBatchAnswer, work.AckBatchRequest),
    "WorkViewSet.beat": _ok(work.BeatAnswer, work.BeatRequest),
    "WorkViewSet.register": _ok(work.RegisterAnswer, work.RegisterRequest),
    "WorkViewSet.deregister": _ok(work.Deregistered, work.DeregisterRequest),
    "WorkerViewSet.list": _ok(work.WorkerPage, query=_LIST),
    "WorkerViewSet.retrieve": _ok(work.WorkerAnswer, query=_WHOSE),
    "WorkerViewSet.health": _ok(work.WorkerAnswer, query=_WHOSE),
    "WorkerViewSet.quiet": _ok(work.WorkerAnswer, jobs.Reason, query=_WHOSE),
    "WorkerViewSet.terminate": _ok(work.WorkerAnswer, jobs.Reason, query=_WHOSE),
    "WorkerViewSet.resume": _ok(work.WorkerAnswer, jobs.Reason, query=_WHOSE),
    "WorkerViewSet.destroy": _ok(work.Deregistered, query=_WHOSE),
    "ProgressViewSet.report": _ok(
        work.ProgressComponent, work.JobProgressRequest, flat_body=work.ProgressRequest, lease=True
    ),
    "ProgressViewSet.retrieve": _ok(work.ProgressComponent),
    "CheckpointViewSet.save": _ok(work.Checkpoint, work.CheckpointRequest, lease=True),
    "CheckpointViewSet.retrieve": _ok(work.Checkpoint),
    "CheckpointViewSet.resume": _ok(work.Resume),
    "CheckpointViewSet.destroy": _ok(work.Deleted, lease=True),
    "QueueViewSet.list": _ok(queues.QueuePage, query=_LIST),
    "QueueViewSet.create": _ok(queues.QueueAnswer, queues.QueueRequest, status=201),
    "QueueViewSet.retrieve": _ok(queues.QueueAnswer),
    "QueueViewSet.stats": _ok(queues.QueueStats),
    "QueueViewSet.pause": _ok(queues.QueueAnswer, jobs.Reason),
    "QueueViewSet.resume": _ok(queues.QueueAnswer, jobs.Reason),
    "DeadLetterViewSet.list": _ok(jobs.JobPage, query=_DEAD),
    "DeadLetterViewSet.stats": _ok(queues.DeadLetterStats),
    "DeadLetterViewSet.retrieve": _ok(jobs.JobAnswer),
    "DeadLetterViewSet.retry": _ok(jobs.JobAnswer, jobs.RetryRequest),
    "DeadLetterViewSet.destroy": _ok(work.Deleted),
    "BareDeadLetterViewSet.destroy": _ok(None, status=204),
    "EventViewSet.list": _ok(queues.EventPage, query=_EVENTS),
    "EventViewSet.stream": _ok(STREAM, query={"channel": _CHANNEL, **_KINDS}),
    "EventViewSet.of_job": _ok(STREAM, query=_without(_KINDS, "job_id")),
    "EventViewSet.of_queue": _ok(STREAM, query=_without(_KINDS, "queues")),
    "WorkflowViewSet.create": Documented(
        {201: workflows.WorkflowAnswer, 200: workflows.WorkflowAnswer}, workflows.WorkflowRequest
    ),
    "WorkflowViewSet.list": _ok(workflows.WorkflowPage, query=_WORKFLOWS),
    "WorkflowViewSet.retrieve": _ok(workflows.WorkflowAnswer),
    "WorkflowViewSet.cancel": _ok(workflows.WorkflowAnswer, jobs.Reason),
    "WorkflowViewSet.resume": _ok(workflows.WorkflowAnswer, jobs.Reason),
    "WorkflowViewSet.progress": _ok(workflows.WorkflowProgress),
    "WorkflowViewSet.results": _ok(workflows.WorkflowResults, query=_RESULTS),
    "RateLimitViewSet.list": _ok(rate_limits.RateLimitPage, query=_LIST),
    "RateLimitViewSet.retrieve": _ok(rate_limits.RateLimitComponent),
    "RateLimitViewSet.update": _ok(rate_limits.RateLimitComponent, rate_limits.OverrideRequest),
    "RateLimitViewSet.update_queue": _ok(rate_limits.RateLimitComponent, rate_limits.OverrideRequest),
    "RateLimitViewSet.destroy_override": _ok(rate_limits.RateLimitComponent),
    "CronViewSet.create": Documented(
        {201: cron.ScheduleAnswer, 200: cron.ScheduleAnswer}, cron.ScheduleRequest
    ),
    "CronViewSet.list": _ok(cron.SchedulePage, query=_CRON),
    "CronViewSet.retrieve": _ok(cron.ScheduleAnswer),
    "CronViewSet.runs": _ok(cron.ScheduleRunPage, query=_LIST),
    "CronViewSet.update": _ok(cron.ScheduleAnswer, cron.ScheduleRequest),
    "CronViewSet.partial_update": _ok(cron.ScheduleAnswer, cron.ScheduleRequest),
    "CronViewSet.destroy": _ok(cron.ScheduleAnswer, jobs.Reason),
    "CronViewSet.pause": _ok(cron.ScheduleAnswer, jobs.Reason),
    "CronViewSet.resume": _ok(cron.ScheduleAnswer, jobs.Reason),
    "CronViewSet.trigger": _ok(cron.TriggerAnswer, jobs.Reason),
    "SystemViewSet.health": Documented({200: system.Health, 503: system.Health}),
    "SystemViewSet.ready": Documented({200: system.Ready, 503: system.Ready}),
    "SystemViewSet.manifest": _ok(system.Manifest),
    "SystemViewSet.problem": _ok(system.ProblemComponent),
    "SystemViewSet.stats": _ok(system.Stats),
    "SystemViewSet.metrics": _ok(METRICS),
    "SchemaViewSet.list": _ok(system.SchemaPage, query=_LIST),
    "SchemaViewSet.latest": _ok(system.Schema),
    "SchemaViewSet.versions": _ok(system.SchemaVersions),
    "SchemaViewSet.retrieve": _ok(system.Schema),
    "SchemaViewSet.update": Documented(
        {201: system.SchemaStored, 200: system.SchemaStored}, system.SchemaRequest
    ),
    "SchemaViewSet.destroy": _ok(system.SchemaDeleted),
}
"""By viewset and action. By name, because extensions cannot be imported from here."""
