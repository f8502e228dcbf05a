"""Schedules."""

from __future__ import annotations

from django_ojs.domain.schedule import CatchUp, Overlap, ScheduleSource
from django_ojs.http.openapi import fields as f
from django_ojs.models import ScheduleRun


class JobTemplate(f.Component):
    """The job that is enqueued: as in a request for a job, without times and `id`."""

    needed = frozenset({"type"})
    type = f.text("The job type.")
    args = f.array({}, "Its arguments.")
    meta = f.mapping("Its `meta`; `cron_name` and `cron_triggered_at` are added.")
    options = f.mapping("Its options: `queue`, `priority`, `retry`, `tags`, limits.")


class ScheduleTimes(f.Component):
    """When, and what if it cannot be."""

    needed = frozenset[str]()
    expression = f.text(
        "Five fields, or six with seconds first; `@daily` and the like; `@every 5m`. Also `cron`,"
        " `schedule`.",
        maxLength=255,
    )
    timezone = f.text("An IANA name. Without: `UTC`.")
    overlap_policy = f.one_of(*Overlap)
    catch_up = f.one_of(*CatchUp)
    catch_up_within = f.text("How old a tick may be that is made up for: `10m`, `PT10M`.")
    jitter = f.text("Up to how much later the job starts: `30s`, `PT30S`.")
    enabled = f.boolean("Without: yes.")
    starts_at = f.moment("The first time at which it may be due.")
    ends_at = f.moment("From when on it is due no more.")
    description = f.text(maxLength=1000)


class ScheduleRequest(ScheduleTimes, f.Body):
    """A schedule; the fields of `job_template` may also stand beside its name."""

    name = f.text("`a-z 0-9 . _ -`, starting with a letter or digit.", maxLength=255)
    job_template = JobTemplate
    type = f.text("The job type.")
    args = f.array({}, "The arguments of the job.")
    meta = f.mapping("The `meta` of the job.")
    options = f.mapping("The options of the job.")
    reason = f.text("Why.")


class ScheduleComponent(ScheduleTimes):
    """A schedule as it stands."""

    needed = frozenset({"name", "expression", "timezone", "job_template", "enabled", "next_run_at"})
    name = f.text()
    cron = f.text("The same as `expression`.")
    schedule = f.text("The same as `expression`.")
    type = f.text()
    args = f.array({})
    meta = f.mapping()
    options = f.mapping()
    job_template = JobTemplate
    queue = f.text("That of its jobs.")
    status = f.one_of("active", "paused")
    source = f.one_of(*ScheduleSource)
    created_at = f.timestamp()
    updated_at = f.timestamp()
    paused_at = f.timestamp()
    last_run_at = f.nullable(description="The tick of the last job.")
    last_job_id = f.nullable(description="The last job.")
    next_run_at = f.nullable(description="When the next job is enqueued.")
    run_count = f.count()


class ScheduleAnswer(f.Component):
    """One schedule, under both names."""

    needed = frozenset({"cron", "cron_job"})
    cron = ScheduleComponent
    cron_job = ScheduleComponent
    deleted = f.boolean("It was deleted.")
    name = f.text("Of the one that was deleted.")


class ScheduleRunComponent(f.Component):
    """What became of a tick, or of `count` ticks that were missed."""

    needed = frozenset({"scheduled_at", "outcome"})
    scheduled_at = f.timestamp("The tick; of several the first.")
    outcome = f.one_of(*ScheduleRun.Outcomes.values)
    reason = f.nullable(description="Why there is no job.")
    job_id = f.nullable(description="The job, or the one in whose favour it was skipped.")
    count = f.count()
    by = f.nullable(description="Who asked for it.")
    created_at = f.timestamp()


class TriggerAnswer(ScheduleAnswer):
    """The schedule, and what became of the run."""

    run = ScheduleRunComponent
    job_id = f.nullable(description="The job.")


SchedulePage = f.page("SchedulePage", "crons", ScheduleComponent)
ScheduleRunPage = f.page("ScheduleRunPage", "runs", ScheduleRunComponent)
