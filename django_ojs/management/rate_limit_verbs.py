"""``ojs rate-limit list|show|set|clear``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandParser

from django_ojs import clock
from django_ojs.domain.durations import format_instant
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.rate_limit import limits_text
from django_ojs.management.base import OJSCommand, actor_of, table
from django_ojs.management.times import moment, on_the_wire
from django_ojs.management.workflow_verbs import AddVerb
from django_ojs.models import RateLimit
from django_ojs.services.rate_limits import operate, read

_MOST = 1000
_STARTS = re.compile(r"(?P<limit>\d+)/(?P<period>.+)")


class RateLimitVerbs(OJSCommand):
    """The verbs about rate limits."""

    def add_rate_limit_verbs(self, parser: CommandParser, add: AddVerb) -> None:
        """Declare the subcommands."""
        verbs = parser.add_subparsers(dest="rate_limit_verb", required=True, metavar="VERB")
        listed = add(verbs, "list", "the rate limits, by key: what is taken and who waits")
        listed.add_argument("--waiting", action="store_true", help="only those that jobs wait for")
        listed.add_argument("--limit", type=int, default=50, help="at most this many (default 50)")
        add(verbs, "show", "one rate limit").add_argument("key", metavar="KEY")
        changed = add(verbs, "set", "limits that win over those of the jobs", reason=True)
        changed.add_argument("key", metavar="KEY", help="a key, or queue:NAME for all jobs of a queue")
        changed.add_argument("--concurrency", type=int, help="how many run at once; 0 stops the key")
        changed.add_argument("--rate", metavar="N/PERIOD", help="starts in any such time: 100/1m")
        changed.add_argument("--throttle", metavar="N/PERIOD", help="starts, evenly spaced: 5/1s")
        changed.add_argument("--until", metavar="T", help="a time, or from now: 1h (default for good)")
        add(verbs, "clear", "let the limits of the jobs hold again", reason=True).add_argument(
            "key", metavar="KEY"
        )

    def do_rate_limit(self, alias: str, options: dict[str, Any]) -> None:
        """One of the subcommands."""
        verb: Callable[[str, dict[str, Any]], None] = getattr(
            self, f"_rate_limit_{options['rate_limit_verb']}"
        )
        verb(alias, options)

    def _rate_limit_list(self, alias: str, options: dict[str, Any]) -> None:
        limit = options["limit"]
        if not 0 < limit <= _MOST:
            raise InvalidRequest("--limit", f"must be from 1 to {_MOST}")
        rows = RateLimit.objects.using(alias).order_by("key")
        if options["waiting"]:
            rows = rows.filter(exceeded=True)
        found = read.states(rows[:limit], clock.now(alias), alias)
        shown = [("KEY", "LIMITS", "RUNNING", "ADMITTED", "WAITING", "OPENS")]
        shown += [
            (
                one.row.key,
                limits_text(one.limits) + (" (override)" if one.overridden else ""),
                str(one.running),
                str(one.admitted),
                str(one.waiting),
                format_instant(one.opens_at) if one.waiting and one.opens_at else "",
            )
            for one in found
        ]
        lines = table(shown) if found else ["no rate limits"]
        self.answer(options, [described(one) for one in found], lines)

    def _rate_limit_show(self, alias: str, options: dict[str, Any]) -> None:
        self._say(read.state_of(options["key"], using=alias), options)

    def _rate_limit_set(self, alias: str, options: dict[str, Any]) -> None:
        limits: dict[str, Any] = {}
        if options["concurrency"] is not None:
            limits["concurrency"] = options["concurrency"]
        for name in ("rate", "throttle"):
            if options[name] is not None:
                found = _STARTS.fullmatch(options[name])
                if found is None:
                    raise InvalidRequest(f"--{name}", "must be like 100/1m")
                limits[name] = {"limit": int(found["limit"]), "period": on_the_wire(found["period"])}
        until = None if options["until"] is None else moment(options["until"], "--until", alias)
        key = options["key"]
        unused = read.is_unused(key, alias)
        operate.override(key, limits, until=until, actor=actor_of(options), using=alias)
        self._say(read.state_of(key, using=alias), options)
        if unused:
            self.print_line(f"{key}: no job has had this key yet: is it right?", trouble=True)

    def _rate_limit_clear(self, alias: str, options: dict[str, Any]) -> None:
        operate.clear_override(options["key"], actor=actor_of(options), using=alias)
        self._say(read.state_of(options["key"], using=alias), options)

    def _say(self, found: read.RateLimitState, options: dict[str, Any]) -> None:
        value = described(found)
        lines = [f"{name:16} {shown}" for name, shown in value.items() if shown not in (None, "")]
        self.answer(options, value, lines)


def described(found: read.RateLimitState) -> dict[str, Any]:
    """A rate limit in plain values."""
    times = {
        "override_until": found.row.override_until,
        "blocked_until": found.row.blocked_until,
        "opens_at": found.opens_at if found.waiting else None,
    }
    return {
        "key": found.row.key,
        "limits": limits_text(found.limits),
        "on_limit": found.limits.on_limit,
        "overridden": found.overridden,
        "overridden_by": found.row.override_by,
        "running": found.running,
        "admitted": found.admitted,
        "waiting": found.waiting,
        **{name: None if at is None else format_instant(at) for name, at in times.items()},
    }
