"""Times and limits in words, in the language and the time zone of the reader."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from django_ojs.domain.durations import format_iso
from django_ojs.domain.rate_limit import RateLimitPolicy


def humanize_duration(span: timedelta | None) -> str:
    """A span in its two largest units: ``1 h 5 min``, ``3.2 s``; a dash for ``None``."""
    if span is None:
        return "—"
    if span < timedelta(0):
        return f"-{humanize_duration(-span)}"
    seconds = span.total_seconds()
    if seconds < 60:
        return f"{seconds:.3g} {_('s')}" if seconds < 10 else f"{seconds:.0f} {_('s')}"
    for unit, name, smaller, small_name in (
        (86_400, _("d"), 3600, _("h")),
        (3600, _("h"), 60, _("min")),
        (60, _("min"), 1, _("s")),
    ):
        if seconds >= unit:
            whole, rest = divmod(int(seconds), unit)
            part = rest // smaller
            return f"{whole} {name} {part} {small_name}" if part else f"{whole} {name}"
    return "0 s"


def full_moment(moment: datetime) -> str:
    """A time with its zone: ``2026-11-22 04:19:37 CET``."""
    return f"{localtime(moment):%Y-%m-%d %H:%M:%S %Z}"


def say_moment(moment: datetime, now: datetime) -> str:
    """A time, and how far it is from ``now``."""
    distance = humanize_duration(abs(moment - now))
    said = _("in %s") % distance if moment >= now else _("%s ago") % distance
    return f"{full_moment(moment)} ({said})"


def say_limits(limits: RateLimitPolicy) -> str:
    """The limits in a few words."""
    parts = [] if limits.concurrency is None else [_("%s at once") % limits.concurrency]
    if limits.rate is not None:
        said = _("%(n)s in %(period)s")
        parts.append(said % {"n": limits.rate.limit, "period": format_iso(limits.rate.period_ms)})
    if limits.throttle is not None:
        said, period = _("%(n)s in %(period)s, evenly"), format_iso(limits.throttle.period_ms)
        parts.append(said % {"n": limits.throttle.limit, "period": period})
    return "; ".join(parts) or pgettext("limits", "none")
