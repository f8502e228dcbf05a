"""A clock of a job as a bar: what is used of its limit, with the grace period hatched behind it."""

from __future__ import annotations

from datetime import timedelta

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_ojs.admin.clocks import TimeoutClock
from django_ojs.services.phrases import humanize_duration

_WIDTH, _HEIGHT = 160, 12
_NONE = timedelta(0)


def bar(clock: TimeoutClock, grace: timedelta) -> SafeString:
    """The bar of a clock that runs, empty for another; the execution timeout has a grace period."""
    if not clock.limit or clock.used is None or clock.left is None:
        return SafeString("")
    more = grace if clock.name == "execution" else _NONE
    whole = clock.limit + more
    used = round(_WIDTH * min(max(clock.used, _NONE), whole) / whole, 1)
    end = round(_WIDTH * clock.limit / whole, 1)
    tone = "bad" if clock.used > clock.limit else "warn" if clock.used > 0.8 * clock.limit else "run"
    said = _("%(used)s of %(limit)s used") % {
        "used": humanize_duration(clock.used),
        "limit": humanize_duration(clock.limit),
    }
    return format_html(
        '<svg class="ojs-chart ojs-clock" role="img" width="{w}" height="{h}" viewBox="0 0 {w} {h}">'
        '<title>{said}</title><defs><pattern id="ojs-grace-{name}" width="5" height="5"'
        ' patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<line x1="0" y1="0" x2="0" y2="5" stroke="currentColor" stroke-width="2"/></pattern></defs>'
        '<rect width="{end}" height="{h}" fill="currentColor" fill-opacity="0.15"/>'
        '<rect x="{end}" width="{rest}" height="{h}" fill="url(#ojs-grace-{name})" fill-opacity="0.5"/>'
        '<rect width="{used}" height="{h}" class="ojs-bar ojs-bar-{tone}"/></svg>',
        w=_WIDTH,
        h=_HEIGHT,
        said=said,
        name=clock.name,
        end=end,
        rest=round(_WIDTH - end, 1),
        used=used,
        tone=tone,
    )
