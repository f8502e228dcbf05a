"""``ojs list|enqueue|retry|cancel``: find jobs, make one, act on some or on all that match."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError, CommandParser

from django_ojs import clock
from django_ojs.domain.durations import format_instant
from django_ojs.domain.envelope import from_call
from django_ojs.domain.errors import InvalidRequest, OJSError
from django_ojs.domain.job import JobRow
from django_ojs.domain.reserved import OWN_PREFIX, OWN_QUEUE, is_own
from django_ojs.domain.states import TERMINAL, WAITING, State
from django_ojs.management.base import (
    OJSCommand,
    actor_of,
    add_call,
    call_of,
    json_option,
    parse_id,
    plural,
    table,
)
from django_ojs.management.times import expiry_of, on_the_wire, past_moment
from django_ojs.services import editing, inspect, operate, query
from django_ojs.services.enqueue import enqueue
from django_ojs.services.query import JobQuery
from django_ojs.store import selectors

AddVerb = Callable[..., CommandParser]
_FILTERS = ("state", "queue", "type", "worker_id", "error_type", "since", "until")
_PAGE = 200
_REASONS = 5
_MANY = f"{selectors.COUNT_CAP}+"


class JobVerbs(OJSCommand):
    """The verbs that find and change jobs."""

    def add_job_verbs(self, verbs: Any, add: AddVerb) -> None:
        """Declare them."""
        listed = add(verbs, "list", "jobs, the newest first; all conditions hold")
        _add_filters(listed)
        listed.add_argument("--limit", type=int, default=50, help="at most this many (default 50)")
        listed.add_argument("--after", metavar="ID", help="go on behind this job")
        made = add(verbs, "enqueue", "insert a job")
        add_call(made)
        made.add_argument("--queue", help="default that of the type")
        made.add_argument("--priority", type=int, help="-100 to 100, higher first")
        made.add_argument("--delay", help="seconds, 5m, 2d, PT1H")
        made.add_argument("--unique", metavar="JSON", help="a policy, a JSON object")
        made.add_argument("--throttle", help="one job in this time: seconds, 5m, 2d, PT1H")
        made.add_argument("--debounce", help="replace the one before, and start so much later")
        retry = add(verbs, "retry", "make discarded jobs available again", reason=True)
        retry.add_argument("--expires-at", help="new absolute expiry, or 'none' to clear it")
        retry.add_argument(
            "--allow-duplicate", action="store_true", help="even while an equal unique job is there"
        )
        _add_selection(retry)
        edited = add(verbs, "edit", "change waiting jobs", reason=True)
        edited.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help=f"one of {', '.join(editing.EDITABLE)}; retry is a JSON object; may be repeated",
        )
        edited.add_argument(
            "--clear",
            action="append",
            default=[],
            metavar="NAME",
            choices=editing.EDITABLE,
            help="back to the default; may be repeated",
        )
        _add_selection(edited)
        _add_selection(add(verbs, "cancel", "cancel waiting and running jobs", reason=True))

    def do_list(self, alias: str, options: dict[str, Any]) -> None:
        """Jobs that match."""
        after = parse_id(options["after"], "job") if options["after"] else None
        asked = _query(options, alias)
        jobs = query.page(asked, limit=options["limit"], after=after, using=alias)
        rows = [("ID", "TYPE", "QUEUE", "STATE", "ATTEMPT", "CREATED", "ERROR")]
        for job in jobs:
            error = job.json("error") or {}
            created = format_instant(job.created_at)
            rows.append(
                (str(job.id), job.type, job.queue, job.state, str(job.attempt), created, _error(error))
            )
        self.answer(
            options, [inspect.describe(job) for job in jobs], table(rows) if jobs else ["no jobs"]
        )
        if len(jobs) == options["limit"] and options["format"] != "json":
            self.print_line(f"more: --after {jobs[-1].id}", trouble=True)

    def do_enqueue(self, alias: str, options: dict[str, Any]) -> None:
        """Insert a job, checked like those of ``django_ojs.enqueue`` and, as over HTTP, not of ours."""
        if is_own(type=options["type"]):
            raise InvalidRequest("TYPE", f"must not begin with {OWN_PREFIX!r}, which is reserved")
        if is_own(queue=options["queue"] or ""):
            raise InvalidRequest("--queue", f"{OWN_QUEUE} is for the work of django_ojs itself")
        args, kwargs = call_of(options)
        given = {name: options[name] for name in ("queue", "priority")}
        for name in ("delay", "throttle", "debounce"):
            given[name] = None if options[name] is None else on_the_wire(options[name])
        given["unique"] = json_option("--unique", options["unique"], dict)
        chosen = {name: value for name, value in given.items() if value is not None}
        now = clock.now(alias)
        if kwargs:
            chosen["kwargs"] = kwargs
        envelope = from_call(options["type"], args, now=now, **chosen)
        # Where the queue is, keys are checked too.
        job = enqueue([envelope], now=now, using=alias if options["database"] else None)[0]
        there = ", and was there already" if job.deduplicated else ""
        line = f"{job.id} {job.type} is {job.state}{there}"
        self.confirm(options, inspect.describe(job), [line])

    def do_retry(self, alias: str, options: dict[str, Any]) -> None:
        """Discarded jobs, by id or by filter."""
        expiry = expiry_of(options, "none", alias)

        def work(ids: Sequence[UUID]) -> list[JobRow]:
            return operate.retry_dead(
                ids,
                actor=actor_of(options),
                expires_at=expiry,
                allow_duplicate=options["allow_duplicate"],
                using=alias,
            )

        self._act(work, "retry", (State.DISCARDED,), alias, options)

    def do_edit(self, alias: str, options: dict[str, Any]) -> None:
        """Waiting jobs, by id or by filter."""
        changes: dict[str, Any] = dict.fromkeys(options["clear"])
        for text in options["set"]:
            name, given, value = text.partition("=")
            if not given or name not in editing.EDITABLE:
                rule = f"must be NAME=VALUE: the names are {', '.join(editing.EDITABLE)}"
                raise InvalidRequest("--set", rule)
            if name in options["clear"]:
                raise InvalidRequest("--clear", f"{name} is set too")
            changes[name] = _value(name, value)
        if not changes:
            raise InvalidRequest("--set", "say what to change: --set NAME=VALUE, --clear NAME")
        # Before any job is looked at: a bad value is one for all of them.
        from_call("any", (), now=clock.now(alias), **changes)

        def work(ids: Sequence[UUID]) -> list[JobRow]:
            return operate.edit(ids, changes, actor=actor_of(options), using=alias)

        self._act(work, "edit", tuple(state for state in State if state in WAITING), alias, options)

    def do_cancel(self, alias: str, options: dict[str, Any]) -> None:
        """Jobs that have not ended, by id or by filter."""

        def work(ids: Sequence[UUID]) -> list[JobRow]:
            return operate.cancel(ids, actor=actor_of(options), using=alias)

        states = tuple(state for state in State if state not in TERMINAL)
        self._act(work, "cancel", states, alias, options)

    def _act(
        self,
        work: Callable[[Sequence[UUID]], list[JobRow]],
        verb: str,
        states: Sequence[State],
        alias: str,
        options: dict[str, Any],
    ) -> None:
        filtered = any(options[name] is not None for name in _FILTERS)
        if options["ids"] and filtered:
            raise InvalidRequest("ID", "name jobs or filters, not both")
        if options["ids"]:
            ids = [parse_id(text, "job") for text in options["ids"]]
            if options["dry_run"]:
                found = selectors.jobs(ids, using=alias).values()
                self._count(sum(job.state in states for job in found), options)
                return
            jobs = work(ids)
            lines = (f"{job.id} {job.type} is {job.state}" for job in jobs)
            self.confirm(options, [inspect.describe(job) for job in jobs], lines)
            return
        if not filtered:
            raise InvalidRequest("ID", "name jobs, or filters such as --queue and --type")
        if options["state"] is None:
            options["state"] = list(states)
        elif wrong := [state for state in options["state"] if state not in states]:
            raise InvalidRequest("--state", f"{verb} is for {', '.join(states)}, not for {wrong[0]}")
        asked = _query(options, alias)
        number = query.count(asked, using=alias)
        if options["dry_run"] or not number:
            self._count(number, options)
            return
        self._ask(f"{verb} {_shown(number)} {'job' if number == 1 else 'jobs'}?", options)
        done, left, why = self._each(work, asked, alias)
        said = [f"{verb}: {plural(done, 'job')}" + (f", {left} left as before" if left else "")]
        said += [f"  {job_id}: {reason}" for job_id, reason in why.items()]
        self.confirm(options, {"done": done, "left": left, "why": why}, said)

    def _count(self, number: int, options: Mapping[str, Any]) -> None:
        self.confirm(options, {"matching": number}, [f"{_shown(number)} match"])

    def _ask(self, question: str, options: Mapping[str, Any]) -> None:
        """Go on only if it is wanted; where nobody can be asked, ``--yes`` is needed."""
        if options["yes"]:
            return
        if not sys.stdin.isatty():
            raise CommandError(f"{question} Say --yes, or --dry-run to count only.", returncode=2)
        # Not by ``input``, which asks on the output that may go into a pipe.
        self.stderr.write(f"{question} [y/N] ", style_func=str, ending="")
        self.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CommandError("nothing was changed")

    def _each(
        self, work: Callable[[Sequence[UUID]], list[JobRow]], asked: JobQuery, alias: str
    ) -> tuple[int, int, dict[str, str]]:
        """Page by page, each in a transaction of its own; a job that cannot be changed is left, and of
        the first few it is said why.
        """
        done = left = 0
        why: dict[str, str] = {}
        last: UUID | None = None
        while jobs := query.page(asked, limit=_PAGE, after=last, oldest_first=True, using=alias):
            last = jobs[-1].id
            ids = [job.id for job in jobs]
            try:
                done += len(work(ids))
            except OJSError:
                for job_id in ids:
                    try:
                        done += len(work([job_id]))
                    except OJSError as error:
                        left += 1
                        if left <= _REASONS:
                            why[str(job_id)] = str(error)
        return done, left, why


def _add_filters(parser: CommandParser) -> None:
    group = parser.add_argument_group("which jobs")
    group.add_argument("--state", action="append", choices=[*map(str, State)], help="may be repeated")
    group.add_argument("--queue", action="append", help="may be repeated, and end in *")
    group.add_argument("--type", action="append", help="may be repeated, and end in *")
    group.add_argument("--worker", dest="worker_id", help="that runs it, or ran it last")
    group.add_argument("--error", dest="error_type", help="the type of the last error")
    group.add_argument("--since", help="made at or after a time, or so long ago (24h, 5d)")
    group.add_argument("--until", help="made before a time, or longer ago than that")


def _add_selection(parser: CommandParser) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID")
    _add_filters(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask, having counted them")
    parser.add_argument("--dry-run", action="store_true", help="only count them")


def _query(options: Mapping[str, Any], alias: str) -> JobQuery:
    given = {name: options[name] for name in _FILTERS}
    for name in ("since", "until"):
        if given[name] is not None:
            given[name] = past_moment(given[name], f"--{name}", alias)
    return JobQuery.of(using=alias, **given)


def _shown(number: int) -> str:
    return _MANY if number >= selectors.COUNT_CAP else str(number)


def _value(name: str, text: str) -> Any:
    """The value of an option as Python takes it."""
    if name == "retry":
        return json_option("--set retry", text, dict)
    if name != "priority":
        return text if name == "queue" else on_the_wire(text)
    try:
        return int(text)
    except ValueError:
        raise InvalidRequest("--set priority", "must be an integer from -100 to 100") from None


def _error(error: Mapping[str, Any]) -> str:
    text = f"{error['type']}: {error.get('message', '')}" if error else ""
    return text if len(text) <= 60 else text[:59] + "…"
