"""``ojs cron list|show|next|run|pause|resume|delete|backfill``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandParser

from django_ojs import clock
from django_ojs.domain.durations import format_instant, format_iso
from django_ojs.domain.errors import InvalidRequest
from django_ojs.management.base import OJSCommand, actor_of, plural, table
from django_ojs.management.times import PAST, past_moment
from django_ojs.management.workflow_verbs import AddVerb
from django_ojs.models import Schedule, ScheduleRun
from django_ojs.services.schedules import declared, operate, read, rows

_MOST = 1000
_LAST_RUNS = 10


class CronVerbs(OJSCommand):
    """The verbs about schedules."""

    def add_cron_verbs(self, parser: CommandParser, add: AddVerb) -> None:
        """Declare the subcommands."""
        verbs = parser.add_subparsers(dest="cron_verb", required=True, metavar="VERB")

        def of_one(verb: str, text: str, **options: Any) -> CommandParser:
            made = add(verbs, verb, text, **options)
            made.add_argument("name", metavar="NAME")
            return made

        add(
            verbs, "list", "the schedules, by name: when they are due, and what became of the last tick"
        )
        of_one("show", "one schedule with its last runs")
        ahead = of_one("next", "the times ahead, and those that a change of the clocks leaves out")
        ahead.add_argument("-n", type=int, default=10, dest="count", help="how many (default 10)")
        of_one("run", "enqueue its job now", reason=True)
        of_one("pause", "let it have no ticks until it is resumed", reason=True)
        of_one("resume", "end a pause; what passed meanwhile is not made up for", reason=True)
        of_one("delete", "delete one that no code declares", reason=True)
        filled = of_one("backfill", "enqueue the jobs of ticks that had none", reason=True)
        filled.add_argument("--from", required=True, dest="since", metavar="T", help=PAST)
        filled.add_argument("--to", required=True, dest="until", metavar="T", help=f"{PAST}, or now")
        filled.add_argument("--dry-run", action="store_true", help="say which, enqueue nothing")

    def do_cron(self, alias: str, options: dict[str, Any]) -> None:
        """One of the subcommands."""
        # What the code declares is shown before a worker has ever run.
        declared.sync(using=alias)
        verb: Callable[[str, dict[str, Any]], None] = getattr(self, f"_cron_{options['cron_verb']}")
        verb(alias, options)

    def _cron_list(self, alias: str, options: dict[str, Any]) -> None:
        found = [described(row, alias) for row in Schedule.objects.using(alias).order_by("name")]
        shown = [("NAME", "SCHEDULE", "ZONE", "TYPE", "NEXT", "LAST", "OUTCOME")]
        shown += [
            (
                one["name"],
                one["expression"],
                one["timezone"],
                one["type"],
                one["next_run_at"] or one["status"],
                one["last_tick_at"] or "never",
                one["last_outcome"] or "",
            )
            for one in found
        ]
        self.answer(options, found, table(shown) if found else ["no schedules"])

    def _cron_show(self, alias: str, options: dict[str, Any]) -> None:
        row = _row(options["name"], alias)
        value = described(row, alias)
        runs = ScheduleRun.objects.using(alias).filter(schedule=row.name).order_by("-tick")
        value["runs"] = [_run(run) for run in runs[:_LAST_RUNS]]
        lines = [f"{key:14} {shown}" for key, shown in value.items() if key != "runs" and shown != ""]
        lines += [""] if value["runs"] else []
        lines += [_line(run) for run in value["runs"]]
        self.answer(options, value, [line for line in lines if not line.endswith(" None")])

    def _cron_next(self, alias: str, options: dict[str, Any]) -> None:
        if not 0 < options["count"] <= read.MOST_AHEAD:
            raise InvalidRequest("-n", f"must be from 1 to {read.MOST_AHEAD}")
        row = _row(options["name"], alias)
        found = read.ahead(row, options["count"], clock.now(alias))
        value = [
            {"at": format_instant(one.at), "local": one.local.isoformat(), "skipped": one.skipped}
            for one in found
        ]
        lines = [
            f"{one.local:%a %Y-%m-%d %H:%M:%S %Z}  {format_instant(one.at)}{_remark(one)}"
            for one in found
        ]
        self.answer(options, value, lines or ["never"])

    def _cron_run(self, alias: str, options: dict[str, Any]) -> None:
        _, run = operate.run_now(options["name"], actor=actor_of(options), using=alias)
        self.confirm(options, _run(run), [_line(_run(run))])

    def _cron_pause(self, alias: str, options: dict[str, Any]) -> None:
        row, changed = operate.pause(options["name"], actor=actor_of(options), using=alias)
        said = f"{row.name} {'' if changed else 'was already '}paused"
        self.confirm(options, described(row, alias), [said])

    def _cron_resume(self, alias: str, options: dict[str, Any]) -> None:
        row, changed = operate.resume(options["name"], actor=actor_of(options), using=alias)
        value = described(row, alias)
        said = f"{row.name} {'resumed' if changed else 'was not paused'}"
        self.confirm(options, value, [f"{said}; next {value['next_run_at'] or 'never'}"])

    def _cron_delete(self, alias: str, options: dict[str, Any]) -> None:
        row = operate.delete(options["name"], actor=actor_of(options), using=alias)
        self.confirm(options, {"deleted": row.name}, [f"{row.name} deleted"])

    def _cron_backfill(self, alias: str, options: dict[str, Any]) -> None:
        since = past_moment(options["since"], "--from", alias)
        until = clock.now(alias)
        if options["until"] != "now":
            until = past_moment(options["until"], "--to", alias)
        name = options["name"]
        if options["dry_run"]:
            ticks = operate.missing_ticks(name, since, until, using=alias)
            value = [format_instant(tick) for tick in ticks]
            self.answer(options, value, [*value, f"{plural(len(value), 'job')} to enqueue"])
            return
        runs = operate.backfill(name, since, until, actor=actor_of(options), using=alias)
        shown = [_run(run) for run in runs]
        fired = sum(run["outcome"] == "fired" for run in shown)
        self.confirm(options, shown, [*map(_line, shown), f"{plural(fired, 'job')} enqueued"])


def described(row: Schedule, using: str) -> dict[str, Any]:
    """A schedule in plain values."""
    now = clock.now(using)
    last = ScheduleRun.objects.using(using).filter(schedule=row.name).order_by("-tick").first()
    status = "paused" if row.paused_at else "active" if row.enabled else "disabled"
    if status == "active" and row.due_at is None:
        status = "ended" if row.ends_at and row.ends_at <= now else "undeclared"
    following = rows.next_run(row)
    return {
        "name": row.name,
        "expression": row.expression,
        "timezone": row.timezone,
        "type": row.type,
        "queue": row.queue,
        "overlap": row.overlap,
        "catch_up": row.catch_up,
        "jitter": format_iso(row.jitter_ms) if row.jitter_ms else "",
        "source": row.source,
        "status": "late" if read.is_late(row, now) else status,
        "paused_by": row.paused_by,
        "pause_reason": row.pause_reason,
        "next_run_at": None if following is None else format_instant(following),
        "last_tick_at": None if last is None else format_instant(last.tick),
        "last_outcome": None if last is None else f"{last.outcome} {last.reason}".strip(),
        "run_count": row.run_count,
        "description": row.description,
    }


def _row(name: str, using: str) -> Schedule:
    row = Schedule.objects.using(using).filter(pk=name).first()
    if row is None:
        raise rows.no_schedule(name)
    return row


def _run(run: ScheduleRun) -> dict[str, Any]:
    return {
        "tick": format_instant(run.tick),
        "outcome": run.outcome,
        "reason": run.reason,
        "job_id": None if run.job_id is None else str(run.job_id),
        "count": run.count,
        "by": run.by,
    }


def _line(run: dict[str, Any]) -> str:
    many = f" x {run['count']}" if run["count"] > 1 else ""
    by = f"by {run['by']}" if run["by"] else ""
    parts = [run["tick"], f"{run['outcome']}{many}", run["reason"], run["job_id"], by]
    return "  ".join(part for part in parts if part)


def _remark(one: read.Ahead) -> str:
    if one.skipped:
        return "  left out: there is no such time on that day"
    if one.shifted:
        return f"  the clocks go {'forward' if one.shifted.total_seconds() > 0 else 'back'} before"
    return ""
