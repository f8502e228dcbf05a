"""Rate limits."""

from __future__ import annotations

from django_ojs.domain.rate_limit import MAX_CONCURRENCY, MAX_STARTS, ON_LIMIT
from django_ojs.http.openapi import fields as f


class StartsInput(f.Component):
    """So many starts in so long a time."""

    needed = frozenset({"limit", "period"})
    limit = f.integer(minimum=0, maximum=MAX_STARTS)
    period = f.described(
        {"type": ["string", "number"]},
        "ISO 8601, `10s`, seconds, or one of `second`, `minute`, `hour`, `day`.",
    )


class OverridableLimits(f.Component):
    """At least one of `concurrency`, `rate` and `throttle`; all of them hold."""

    concurrency = f.integer("How many may run at once.", minimum=0, maximum=MAX_CONCURRENCY)
    rate = f.described(
        StartsInput, "Starts in any window of this length. Also a number, with `period`."
    )
    throttle = f.described(StartsInput, "Starts, evenly spaced. Also `max_per_second`, a number.")
    on_limit = f.one_of(*ON_LIMIT)


class RateLimitInput(OverridableLimits):
    """The limits that a job shares with the others of its key."""

    key = f.text("What they share. Without: all jobs of the queue.")


class OverrideRequest(OverridableLimits, f.Body):
    """Limits that win over those of the jobs."""

    expires_at = f.moment("Until when. Without: for good.")
    reason = f.text("Why.")


class ConcurrencyComponent(f.Component):
    """`active` run, or are over and perhaps still run; `admitted` are let in and not yet fetched."""

    limit = f.count()
    active = f.count()
    admitted = f.count()
    available = f.count()


class RateComponent(f.Component):
    """How many have started in the window."""

    limit = f.count()
    period = f.text()
    current_count = f.count()
    window_resets_at = f.nullable(description="When the oldest start leaves the window.")


class ThrottleComponent(f.Component):
    """When the next may start."""

    limit = f.count()
    period = f.text()
    next_allowed_at = f.nullable()


class RateLimitComponent(f.Component):
    """A rate limit as it stands."""

    needed = frozenset({"key", "on_limit", "waiting_count", "next_opening_at", "blocked_until"})
    key = f.text()
    concurrency = ConcurrencyComponent
    rate = RateComponent
    throttle = ThrottleComponent
    on_limit = f.one_of(*ON_LIMIT)
    waiting_count = f.count()
    next_opening_at = f.nullable(description="When the time lets the next one in.")
    blocked_until = f.nullable(description="What a handler asked for by `rate_limit_until`.")
    override = f.mapping("The operator's limits, and `expires_at`.")


RateLimitPage = f.page("RateLimitPage", "rate_limits", RateLimitComponent)
