"""``ojs``: look at jobs and act on them from a shell."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.core.management import load_command_class
from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError, InterfaceError, OperationalError

from django_ojs import clock, conf
from django_ojs.domain import exposition
from django_ojs.domain.durations import format_instant
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.states import State
from django_ojs.management import where
from django_ojs.management.base import (
    EXIT_OVERDUE,
    EXIT_UNAVAILABLE,
    actor_of,
    first_line,
    parse_id,
    plural,
    require_migrations,
    standard_options,
)
from django_ojs.management.cron_verbs import CronVerbs
from django_ojs.management.job_text import lines_of
from django_ojs.management.job_verbs import JobVerbs
from django_ojs.management.rate_limit_verbs import RateLimitVerbs
from django_ojs.management.run_verb import RunVerb
from django_ojs.management.times import span_ms
from django_ojs.management.token_verbs import TokenVerbs
from django_ojs.management.workflow_verbs import WorkflowVerbs
from django_ojs.services import (
    backlog,
    deploys,
    health,
    http_workers,
    inspect,
    metrics,
    operate,
    prune,
    queues,
    unique,
    workers,
)
from django_ojs.services.explain import explain
from django_ojs.services.operate import Extension
from django_ojs.services.phrases import say_moment
from django_ojs.store import invariants, selectors

_COMMANDS = {"worker": "runworker", "reap": "reap_timeouts"}


class Command(JobVerbs, RunVerb, WorkflowVerbs, CronVerbs, RateLimitVerbs, TokenVerbs):
    """One subcommand per verb; every one takes ``--format json``."""

    help = "Look at jobs, queues, workers and workflows, and act on them; run a worker or a reaper."

    def run_from_argv(self, argv: list[str]) -> None:
        """``ojs worker`` and ``ojs reap`` are ``runworker`` and ``reap_timeouts``, also where another
        app has a command of that name.
        """
        if len(argv) > 2 and argv[2] in _COMMANDS:
            command = load_command_class("django_ojs", _COMMANDS[argv[2]])
            command.run_from_argv([argv[0], f"{argv[1]} {argv[2]}", *argv[3:]])
            return
        super().run_from_argv(argv)

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        for name, command in _COMMANDS.items():
            verbs.add_parser(name, help=f"the command {command}, with its options")
        self._verb(verbs, "status", "jobs by state and queue, workers, when the reaper last ran")
        self._verb(verbs, "inspect", "everything about one job", ids=1)
        self._verb(verbs, "explain", "why a job is not running", ids=1)
        self.add_job_verbs(verbs, self._verb)
        self.add_run_verb(verbs, self._verb)
        extend = self._verb(verbs, "extend", "give a running attempt more time", ids=1, reason=True)
        extend.add_argument("by", help="seconds, 5m, 2d, PT1H")
        for name, text in (("pause", "stop claims from queues"), ("resume", "allow them again")):
            verb = self._verb(verbs, name, text, reason=True)
            verb.add_argument("queues", nargs="+", metavar="QUEUE")
        pruned = self._verb(verbs, "prune", "delete what OJS['RETENTION'] no longer keeps")
        pruned.add_argument("--limit", type=int, help="at most this many of each kind")
        pruned.add_argument("--dry-run", action="store_true")
        marked = self._verb(verbs, "mark-deploy", "mark a deployment, for the charts of the admin")
        marked.add_argument("name", nargs="?", default="", metavar="NAME", help="what is deployed")
        check = self._verb(verbs, "check", "verify the invariants of the stored jobs")
        check.add_argument("--slack", default="10", help="how late a reaper may be (default 10 s)")
        check.add_argument(
            "--repair", action="store_true", help="set the counters of workflows to what their rows say"
        )
        found = self._verb(verbs, "metrics", "what monitoring scrapes, as Prometheus text")
        found.add_argument(
            "--otlp", action="store_true", help="send it by OTLP, to OTEL_EXPORTER_OTLP_ENDPOINT"
        )
        workflows = verbs.add_parser("workflow", help="list, show, cancel and resume workflows")
        self.add_workflow_verbs(workflows, self._verb)
        limits = verbs.add_parser("rate-limit", help="list, show, set and clear rate limits")
        self.add_rate_limit_verbs(limits, self._verb)
        schedules = verbs.add_parser("cron", help="list, run, pause and resume schedules, and fill in")
        self.add_cron_verbs(schedules, self._verb)
        made = verbs.add_parser("token", help="create, list, rotate and revoke API tokens")
        self.add_token_verbs(made, self._verb)

    def _verb(
        self, verbs: Any, name: str, text: str, *, ids: int = 0, reason: bool = False
    ) -> CommandParser:
        parser: CommandParser = verbs.add_parser(name, help=text, description=text)
        super().add_arguments(parser)
        standard_options(parser)
        if ids:
            parser.add_argument("ids", nargs=1 if ids == 1 else "+", metavar="ID")
        if reason:
            parser.add_argument("--reason", default="", help="kept with the event")
        return parser

    def handle(self, *args: Any, **options: Any) -> None:
        if options["verb"] in _COMMANDS:
            raise CommandError(f"call the command {_COMMANDS[options['verb']]}", returncode=2)
        alias = self._database(options)
        verb: Callable[[str, dict[str, Any]], None] = getattr(
            self, f"do_{options['verb'].replace('-', '_')}"
        )
        with self.usable_database(alias):
            try:
                verb(alias, options)
            except InvalidRequest as error:
                raise CommandError(str(error), returncode=2) from error

    def _database(self, options: dict[str, Any]) -> str:
        if options["database"]:
            return self.alias(options)
        try:
            return where.database_of(options)
        except InvalidRequest as error:
            raise CommandError(str(error), returncode=2) from error
        except (OperationalError, InterfaceError) as error:
            raise CommandError(
                f"not found, and not every database is available: {first_line(error)}"
                f" ({'; '.join(getattr(error, '__notes__', []))})",
                returncode=EXIT_UNAVAILABLE,
            ) from error
        except DatabaseError as error:
            for alias in conf.current().databases.aliases:
                require_migrations(alias)
            raise CommandError(f"a database refused: {first_line(error)}") from error

    def do_status(self, alias: str, options: dict[str, Any]) -> None:
        report = inspect.status(using=alias)
        if options["format"] == "json":
            self.emit(report)
            return
        self._line("jobs", report["jobs"], report["count_cap"])
        for queue in report["queues"]:
            name = queue["name"] + (" (paused)" if queue["paused"] else "")
            self._line(f"  {name}", {s: queue[s] for s in State}, report["count_cap"])
        if any((flows := report["workflows"]).values()):
            failed = flows["failed_last_hour"]
            self.print_line(f"workflows: {flows['running']} running, {failed} failed in the last hour")
        for worker in report["workers"]:
            self._worker(worker)
        if not report["workers"]:
            self.print_line("no workers")
        now = clock.now(alias)
        for name, when in report["last_runs"].items():
            self.print_line(f"{name} last ran at {say_moment(datetime.fromisoformat(when), now)}")
        self._backlog(report["backlog"], report["count_cap"])
        for trouble in report["troubles"]:
            self.print_line(f"{trouble['problem']} {trouble['remedy']}", style=self.style.WARNING)

    def _worker(self, worker: dict[str, Any]) -> None:
        of = f" of {worker['client']}" if worker["client"] else ""
        # A client over HTTP need not say how many jobs it runs at a time.
        most = worker["concurrency"]
        doing = f"{plural(worker['running'], 'job')}" + (f" of {most} at a time" if most else "")
        age = worker["heartbeat_age_seconds"]
        silent = age > workers.STALE.total_seconds()
        self.print_line(
            f"worker {worker['id']}{of}: {'silent' if silent else worker['phase']}, {doing},"
            f" heard {age:g} s ago",
            style=self.style.WARNING if silent else None,
        )

    def _backlog(self, backlog: dict[str, dict[str, Any]], cap: int) -> None:
        for name, behind in backlog.items():
            rows = behind["rows"]
            if rows:
                shown = f"{cap}+" if rows >= cap else rows
                self.print_line(f"{name}: {shown} waiting, {behind['seconds']:g} s behind")

    def _line(self, name: str, counts: dict[str, int], cap: int) -> None:
        shown = [
            f"{state} {count if count < cap else f'{cap}+'}" for state, count in counts.items() if count
        ]
        self.print_line(f"{name}: {', '.join(shown) or 'none'}")

    def do_metrics(self, alias: str, options: dict[str, Any]) -> None:
        if options["otlp"]:
            self._send_metrics(alias)
            return
        families = metrics.collect(using=alias)
        if options["format"] == "json":
            self.emit([_family(one) for one in families])
        else:
            with suppress(OSError):
                self.stdout.write(exposition.render(families), ending="")

    def _send_metrics(self, alias: str) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

            from django_ojs.observability import otel_metrics
        except ImportError as error:
            raise CommandError(
                "--otlp: needs the package opentelemetry-exporter-otlp-proto-http"
            ) from error
        try:
            sent = otel_metrics.send(OTLPMetricExporter(), using=alias)
        except ConnectionError as error:
            raise CommandError(f"--otlp: {error}") from error
        self.print_line(f"metrics sent: {sent}")

    def do_inspect(self, alias: str, options: dict[str, Any]) -> None:
        job = inspect.find(parse_id(options["ids"][0], "job"), using=alias)
        attempts = inspect.attempts_of(job, using=alias)
        others = [str(other.id) for other in unique.other_holders(job, using=alias)]
        story = {**inspect.describe(job), "attempts": attempts}
        if (log := inspect.log_of(job, using=alias)) is not None:
            story["log"] = log
        if job.unique_key is not None:
            story["unique_holders"] = others
        self.answer(options, story, lines_of(job, attempts, others, log))

    def do_explain(self, alias: str, options: dict[str, Any]) -> None:
        found = explain(parse_id(options["ids"][0], "job"), using=alias)
        value = {"state": found.state, "summary": found.summary, "reasons": list(found.reasons)}
        self.answer(options, value, [found.summary, *(f"- {reason}" for reason in found.reasons)])

    def do_extend(self, alias: str, options: dict[str, Any]) -> None:
        by_ms = span_ms(options["by"], "by")
        made = operate.extend_timeout(_ids(options), by_ms, actor=actor_of(options), using=alias)
        lines = (
            f"{one.job.id} {one.job.type} was extended by {one.extended_by_ms} ms:"
            f" told to stop at {format_instant(one.soft_deadline_at)},"
            f" ended at {format_instant(one.deadline_at)}"
            for one in made
        )
        self.confirm(options, [_extended(one) for one in made], lines)

    def do_pause(self, alias: str, options: dict[str, Any]) -> None:
        unused = queues.unused(options["queues"], using=alias)
        changed = queues.pause(options["queues"], actor=actor_of(options), using=alias)
        self._changed("paused", changed, options)
        for name in unused:
            self.print_line(f"{name}: nobody has used this queue yet: is the name right?", trouble=True)

    def do_resume(self, alias: str, options: dict[str, Any]) -> None:
        changed = queues.resume(options["queues"], actor=actor_of(options), using=alias)
        self._changed("resumed", changed, options)

    def do_prune(self, alias: str, options: dict[str, Any]) -> None:
        if options["limit"] is not None and options["limit"] < 1:
            raise InvalidRequest("--limit", "must be at least 1")
        done = prune.prune(limit=options["limit"], dry_run=options["dry_run"], using=alias)
        word = "would delete" if options["dry_run"] else "deleted"
        counts = ((name, count, "+" * (name in done.capped)) for name, count in done.counts.items())
        shown = ", ".join(f"{name} {count}{plus}" for name, count, plus in counts)
        self.confirm(options, dict(done.counts), [f"{word}: {shown}"])

    def do_mark_deploy(self, alias: str, options: dict[str, Any]) -> None:
        """Record that something is deployed now."""
        made = deploys.mark(options["name"], by=actor_of(options).name, using=alias)
        value = {"name": made.name, "at": format_instant(made.at), "by": made.by}
        self.confirm(options, value, [f"marked {made.name or 'a deployment'} at {value['at']}"])

    def do_check(self, alias: str, options: dict[str, Any]) -> None:
        """Exits 3 when an invariant is broken, and not mended."""
        slack = timedelta(milliseconds=span_ms(options["slack"], "--slack"))
        now = clock.now(alias)
        findings = invariants.check(now=now, slack=slack, using=alias)
        silent = http_workers.silent(now=now, using=alias)
        waiting = {name: one._asdict() for name, one in backlog.backlog(now=now, using=alias).items()}
        wrong = self.wrong_workflows(alias, repair=options["repair"])
        troubles = [*health.problems(now=now, using=alias), *health.of_keys(alias)]
        if options["format"] == "json":
            self.emit(
                {
                    "checked": sorted(invariants.RULES),
                    "broken": [finding._asdict() for finding in findings],
                    "silent_workers": [one._asdict() for one in silent],
                    "backlog": waiting,
                    "wrong_workflows": [str(drift) for drift in wrong],
                    "troubles": [one.as_json() for one in troubles],
                }
            )
        else:
            for finding in findings:
                self.print_line(
                    f"{finding.name} broken: {finding.rule}"
                    f" (for example {', '.join(finding.examples)})",
                    style=self.style.ERROR,
                )
            for drift in wrong:
                mended = " (repaired)" if options["repair"] else ""
                self.print_line(f"{drift}{mended}", style=self.style.ERROR)
            for one in silent:
                self.print_line(
                    f"worker {one.worker_id or 'without a name'} of {one.client} sends no heartbeats:"
                    f" {one.jobs} of its jobs will end by their heartbeat_timeout",
                    style=self.style.WARNING,
                )
            for problem in troubles:
                self.print_line(str(problem), style=self.style.WARNING)
            if not (findings or wrong) and options["verbosity"]:
                self.print_line(f"{len(invariants.RULES)} invariants hold")
            self._backlog(waiting, selectors.COUNT_CAP)
        if findings or (wrong and not options["repair"]):
            sys.exit(EXIT_OVERDUE)

    def _changed(self, word: str, names: list[str], options: dict[str, Any]) -> None:
        lines = (
            f"{name} {'' if name in names else 'was already '}{word}" for name in options["queues"]
        )
        self.confirm(options, {word: names}, lines)


def _extended(made: Extension) -> dict[str, Any]:
    return inspect.describe(made.job) | {
        "extended_by_ms": made.extended_by_ms,
        "soft_deadline_at": format_instant(made.soft_deadline_at),
    }


def _ids(options: dict[str, Any]) -> list[UUID]:
    return [parse_id(text, "job") for text in options["ids"]]


def _family(family: exposition.Family) -> dict[str, Any]:
    """A metric with its samples, for ``--format json``."""
    samples = [
        {"labels": dict(zip(family.labels, values, strict=True)), "value": _value(value)}
        for values, value in sorted(family.values.items())
    ]
    return {"name": family.name, "type": family.kind, "help": family.help, "samples": samples}


def _value(value: float | exposition.Histogram) -> Any:
    if isinstance(value, exposition.Histogram):
        return {"count": value.count, "sum": value.sum, "buckets": [list(one) for one in value.below]}
    return value
