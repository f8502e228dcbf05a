"""``ojs``: look at jobs and act on them from a shell."""

from __future__ import annotations

import getpass
import re
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError, CommandParser

from django_ojs import clock
from django_ojs.domain.durations import format_instant, parse_instant, parse_seconds_ms
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.job import Actor, JobRecord
from django_ojs.domain.states import State
from django_ojs.management.base import EXIT_OVERDUE, OJSCommand, standard_options
from django_ojs.models import ApiToken
from django_ojs.services import backlog, inspect, operate, prune, queues, tokens, workers
from django_ojs.services.explain import explain
from django_ojs.services.operate import Extension
from django_ojs.store import invariants, selectors

_EXPIRY = "an RFC 3339 time, or a time from now such as 90d, 12h or PT12H"
_DAYS = re.compile(r"([0-9]{1,5})d", re.ASCII)


class Command(OJSCommand):
    """One subcommand per verb; every one takes ``--format json``."""

    help = "Status; inspect, explain, retry, cancel, extend, pause, prune, check, tokens."

    def add_arguments(self, parser: CommandParser) -> None:
        """The verbs."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        self._verb(verbs, "status", "jobs by state and queue, workers, when the reaper last ran")
        self._verb(verbs, "inspect", "everything about one job", ids=1)
        self._verb(verbs, "explain", "why a job is not running", ids=1)
        retry = self._verb(verbs, "retry", "give discarded jobs a new life", ids=2, reason=True)
        retry.add_argument("--expires-at", help="new absolute expiry, or 'none' to clear it")
        self._verb(verbs, "cancel", "cancel waiting and running jobs", ids=2, reason=True)
        extend = self._verb(verbs, "extend", "give a running attempt more time", ids=1, reason=True)
        extend.add_argument("by", help="seconds, 5m, PT1H")
        for name, text in (("pause", "stop claims from queues"), ("resume", "allow them again")):
            verb = self._verb(verbs, name, text, reason=True)
            verb.add_argument("queues", nargs="+", metavar="QUEUE")
        pruned = self._verb(verbs, "prune", "delete what OJS['RETENTION'] no longer keeps")
        pruned.add_argument("--limit", type=int, help="at most this many of each kind")
        pruned.add_argument("--dry-run", action="store_true")
        check = self._verb(verbs, "check", "verify the invariants of the stored jobs")
        check.add_argument("--slack", default="10", help="how late a reaper may be (default 10 s)")
        self._token_verbs(verbs.add_parser("token", help="create, list, rotate and revoke API tokens"))

    def _token_verbs(self, parser: CommandParser) -> None:
        """``ojs token create|list|rotate|revoke``."""
        verbs = parser.add_subparsers(dest="token_verb", required=True, metavar="VERB")
        create = self._verb(verbs, "create", "a token for a client; shown once")
        create.add_argument("name", metavar="CLIENT")
        create.add_argument("--scope", action="append", required=True, choices=tokens.SCOPES)
        create.add_argument(
            "--queue", action="append", help="a queue, or a prefix that ends in '*' (default all)"
        )
        create.add_argument("--expires-at", metavar="T", help=_EXPIRY)
        self._verb(verbs, "list", "all tokens, without their secrets")
        rotate = self._verb(verbs, "rotate", "a successor; the old one works on for a while")
        rotate.add_argument("name", metavar="CLIENT")
        rotate.add_argument("--overlap", default="24h", help="how long (default 24h; 0 for not at all)")
        rotate.add_argument(
            "--expires-at",
            metavar="T|never",
            help=f"of the successor: {_EXPIRY}, or never (default: as long as the old one was given)",
        )
        revoke = self._verb(verbs, "revoke", "end the tokens of a client, or one by its prefix")
        revoke.add_argument("name", metavar="CLIENT|PREFIX")

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
        """Run the verb."""
        alias = self.alias(options)
        verb: Callable[[str, dict[str, Any]], None] = getattr(self, f"do_{options['verb']}")
        with self.usable_database(alias):
            try:
                verb(alias, options)
            except InvalidRequest as error:
                raise CommandError(str(error), returncode=2) from error

    def do_status(self, alias: str, options: dict[str, Any]) -> None:
        """``ojs status``."""
        report = inspect.status(using=alias)
        if options["format"] == "json":
            self.emit(report)
            return
        self._line("jobs", report["jobs"], report["count_cap"])
        for queue in report["queues"]:
            name = queue["name"] + (" (paused)" if queue["paused"] else "")
            self._line(f"  {name}", {s: queue[s] for s in State}, report["count_cap"])
        for worker in report["workers"]:
            of = f" of {worker['client']}" if worker["client"] else ""
            self.print_line(
                f"worker {worker['id']}{of}: {worker['phase']}, {worker['running']} of "
                f"{worker['concurrency']} slots, heard {worker['heartbeat_age_seconds']} s ago"
            )
        if not report["workers"]:
            self.print_line("no workers")
        for name, when in report["last_runs"].items():
            self.print_line(f"{name} last ran at {when}")
        self._backlog(report["backlog"], report["count_cap"])
        for trouble in report["troubles"]:
            self.print_line(trouble, style=self.style.WARNING)

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

    def do_inspect(self, alias: str, options: dict[str, Any]) -> None:
        """``ojs inspect ID``."""
        job = inspect.find(_id(options["ids"][0]), using=alias)
        story = {**inspect.describe(job), "attempts": inspect.attempts_of(job, using=alias)}
        if options["format"] == "json":
            self.emit(story)
            return
        attempts = story.pop("attempts")
        for name, value in story.items():
            self.print_line(f"{name:22} {value}")
        for row in attempts:
            error = row["error"] or {}
            why = f" {error.get('type')}: {error.get('message')}" if error else ""
            self.print_line(
                f"attempt {row['attempt']} (lease {row['lease_seq']}): {row['outcome']} after "
                f"{row['seconds']} s on {row['worker_id']}{why}"
            )

    def do_explain(self, alias: str, options: dict[str, Any]) -> None:
        """``ojs explain ID``."""
        found = explain(_id(options["ids"][0]), using=alias)
        if options["format"] == "json":
            self.emit({"state": found.state, "summary": found.summary, "reasons": list(found.reasons)})
            return
        self.print_line(found.summary)
        for reason in found.reasons:
            self.print_line(f"- {reason}")

    def do_retry(self, alias: str, options: dict[str, Any]) -> None:
        """``ojs retry ID...``."""
        text = options["expires_at"]
        expiry: Any = False
        if text is not None:
            expiry = None
            if text != "none":
                expiry = _moment(text, "--expires-at", alias)
        jobs = operate.retry_dead(_ids(options), actor=_actor(options), expires_at=expiry, using=alias)
        self._jobs(jobs, options)

    def do_cancel(self, alias: str, options: dict[str, Any]) -> None:
        """``ojs cancel ID...``."""
        self._jobs(operate.cancel(_ids(options), actor=_actor(options), using=alias), options)

    def do_extend(self, alias: str, options: dict[str, Any]) -> None:
        """``ojs extend ID BY``."""
        by_ms = parse_seconds_ms(options["by"], "by")
        made = operate.extend_timeout(_ids(options), by_ms, actor=_actor(options), using=alias)
        if options["format"] == "json":
            self.emit([_extended(one) for one in made])
        elif options["verbosity"]:
            for one in made:
                self.print_line(
                    f"{one.job.id} {one.job.type} was extended by {one.extended_by_ms} ms:"
                    f" told to stop at {format_instant(one.soft_deadline_at)},"
                    f" ended at {format_instant(one.deadline_at)}"
                )

    def do_pause(self, alias: str, options: dict[str, Any]) -> None:
        """``ojs pause QUEUE...``."""
        unused = queues.unused(options["queues"], using=alias)
        changed = queues.pause(options["queues"], actor=_actor(options), using=alias)
        self._changed("paused", changed, options)
        for name in unused:
            self.print_line(f"{name}: nobody has used this queue yet: is the name right?", trouble=True)

    def do_resume(self, alias: str, options: dict[str, Any]) -> None:
        """``ojs resume QUEUE...``."""
        changed = queues.resume(options["queues"], actor=_actor(options), using=alias)
        self._changed("resumed", changed, options)

    def do_prune(self, alias: str, options: dict[str, Any]) -> None:
        """``ojs prune``."""
        counts = prune.prune(limit=options["limit"], dry_run=options["dry_run"], using=alias)
        if options["format"] == "json":
            self.emit(dict(counts))
        elif options["verbosity"]:
            word = "would delete" if options["dry_run"] else "deleted"
            shown = ", ".join(f"{name} {count}" for name, count in counts.items())
            self.print_line(f"{word}: {shown}")

    def do_check(self, alias: str, options: dict[str, Any]) -> None:
        """``ojs check``: exit 3 when an invariant is broken."""
        slack = timedelta(milliseconds=parse_seconds_ms(options["slack"], "--slack"))
        now = clock.now(alias)
        findings = invariants.check(now=now, slack=slack, using=alias)
        silent = workers.silent(now=now, using=alias)
        waiting = {name: one._asdict() for name, one in backlog.backlog(now=now, using=alias).items()}
        off = clock.disagreement(alias)
        if off is not None and options["verbosity"]:
            self.print_line(
                f"the clock of the database is {off.total_seconds():+.1f} s off this host's",
                trouble=True,
            )
        if options["format"] == "json":
            self.emit(
                {
                    "checked": sorted(invariants.RULES),
                    "broken": [finding._asdict() for finding in findings],
                    "silent_workers": [one._asdict() for one in silent],
                    "backlog": waiting,
                }
            )
        else:
            for finding in findings:
                self.print_line(
                    f"{finding.name} broken: {finding.rule}"
                    f" (for example {', '.join(finding.examples)})",
                    style=self.style.ERROR,
                )
            for one in silent:
                self.print_line(
                    f"worker {one.worker_id or 'without a name'} of {one.client} sends no heartbeats:"
                    f" {one.jobs} of its jobs will end by their heartbeat_timeout",
                    style=self.style.WARNING,
                )
            if not findings and options["verbosity"]:
                self.print_line(f"{len(invariants.RULES)} invariants hold")
            self._backlog(waiting, selectors.COUNT_CAP)
        if findings:
            sys.exit(EXIT_OVERDUE)

    def do_token(self, alias: str, options: dict[str, Any]) -> None:
        """``ojs token ...``."""
        verb: Callable[[str, dict[str, Any]], None] = getattr(self, f"_token_{options['token_verb']}")
        verb(alias, options)

    def _token_create(self, alias: str, options: dict[str, Any]) -> None:
        expires_at = None
        if options["expires_at"] is not None:
            expires_at = _moment(options["expires_at"], "--expires-at", alias)
        made = tokens.create(
            options["name"],
            scopes=options["scope"],
            queues=options["queue"] or ["*"],
            expires_at=expires_at,
            actor=_actor(options),
            using=alias,
        )
        self._shown_once(*made, options)

    def _token_rotate(self, alias: str, options: dict[str, Any]) -> None:
        overlap = timedelta(
            milliseconds=parse_seconds_ms(options["overlap"], "--overlap", allow_zero=True)
        )
        text = options["expires_at"]
        expiry: datetime | bool | None = False
        if text is not None:
            expiry = None if text == "never" else _moment(text, "--expires-at", alias)
        made = tokens.rotate(
            options["name"], overlap=overlap, expires_at=expiry, actor=_actor(options), using=alias
        )
        self._shown_once(*made, options)

    def _shown_once(self, token: ApiToken, text: str, options: dict[str, Any]) -> None:
        if options["format"] == "json":
            self.emit({"client": token.name, "prefix": token.prefix, "token": text})
            return
        self.print_line(text)
        self.print_line("This is shown once: store it now.", trouble=True)

    def _token_revoke(self, alias: str, options: dict[str, Any]) -> None:
        count = tokens.revoke(options["name"], actor=_actor(options), using=alias)
        if options["format"] == "json":
            self.emit({"revoked": count})
        else:
            self.print_line(f"{count} revoked")

    def _token_list(self, alias: str, options: dict[str, Any]) -> None:
        now = clock.now(alias)
        found = [
            {
                "client": token.name,
                "prefix": token.prefix,
                "scopes": token.scopes,
                "queues": token.queues,
                "live": tokens.is_live(token, now),
                "expires_at": token.expires_at,
                "revoked_at": token.revoked_at,
                "last_used_at": token.last_used_at,
            }
            for token in tokens.listed(using=alias)
        ]
        if options["format"] == "json":
            self.emit(found)
            return
        if not found:
            self.print_line("no tokens")
            return
        rows = [("CLIENT", "PREFIX", "STATE", "SCOPES", "QUEUES", "EXPIRES")]
        for row in found:
            state = "live" if row["live"] else "revoked" if row["revoked_at"] else "expired"
            expires = format_instant(row["expires_at"]) if row["expires_at"] else "never"
            lists = ",".join(row["scopes"]), ",".join(row["queues"])
            rows.append((row["client"], row["prefix"], state, *lists, expires))
        self.table(rows)

    def _jobs(self, jobs: list[JobRecord], options: dict[str, Any]) -> None:
        if options["format"] == "json":
            self.emit([inspect.describe(job) for job in jobs])
        elif options["verbosity"]:
            for job in jobs:
                self.print_line(f"{job.id} {job.type} is {job.state}")

    def _changed(self, word: str, names: list[str], options: dict[str, Any]) -> None:
        if options["format"] == "json":
            self.emit({word: names})
        elif options["verbosity"]:
            for name in options["queues"]:
                self.print_line(f"{name} {'' if name in names else 'was already '}{word}")


def _extended(made: Extension) -> dict[str, Any]:
    return inspect.describe(made.job) | {
        "extended_by_ms": made.extended_by_ms,
        "soft_deadline_at": format_instant(made.soft_deadline_at),
    }


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise InvalidRequest("ID", f"{text!r} is not a job id") from None


def _ids(options: dict[str, Any]) -> list[UUID]:
    return [_id(text) for text in options["ids"]]


def _moment(text: str, option: str, alias: str) -> datetime:
    """A time as people give it in a shell: whole days too, which the wire's durations have not."""
    days = _DAYS.fullmatch(text)
    value = timedelta(days=int(days[1])) if days else text
    try:
        return parse_instant(value, option, clock.now(alias))[0]
    except InvalidRequest as error:
        raise InvalidRequest(option, f"{error.rule} ({_EXPIRY})") from error


def _actor(options: dict[str, Any]) -> Actor:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = ""
    return Actor("command", name, options.get("reason", ""))
