"""The columns of the job list, which depend on the tab."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from django_ojs.admin.cells import attempt_of, badge, column, span_of
from django_ojs.domain.failures import cause_of
from django_ojs.services.phrases import humanize_duration

_TONE = {
    "completed": "good",
    "active": "run",
    "discarded": "bad",
    "retryable": "warn",
    "cancelled": "quiet",
}


class JobColumns:
    """A mixin of the job admin. The list sets the current time as ``ojs_now`` on its rows."""

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        """The columns of the tab."""
        common = ("short_id", "type", "queue", "badge", "attempts", "age")
        match request.GET.get("state"):
            case "active":
                return (*common, "worker_id", "budget", "heartbeat_age")
            case "scheduled" | "retryable":
                return (*common, "runs_in", "problem")
            case "completed":
                return (*common, "duration", "waited")
            case _:
                return (*common, "problem")

    @admin.display(description=_("id"))
    def short_id(self, row: Any) -> str:
        """The last twelve digits of the id; the first ones are its time."""
        return format_html('<span title="{}">…{}</span>', row.pk, str(row.pk)[-12:])

    @admin.display(description=_("state"))
    def badge(self, row: Any) -> str:
        return badge(_TONE.get(row.state, "quiet"), row.get_state_display())

    @column(_("attempt"))
    def attempts(self, row: Any) -> str:
        return attempt_of(row)

    @column(_("age"))
    def age(self, row: Any) -> str:
        return span_of(row.ojs_now - row.created_at, row.created_at)

    @admin.display(description=_("problem"))
    def problem(self, row: Any) -> str:
        """The type of the last error, and the first line of its message."""
        error = row.error
        if not error:
            return ""
        cause = cause_of(error)
        first = cause or error
        line = str(first.get("message", "")).partition("\n")[0][:100]
        kind = str(first.get("type", ""))[:80]
        if cause is not None:
            kind = f"{kind}, {error['type']}"
        return format_html('<b class="ojs-bad">{}</b> {}', kind, line)

    @admin.display(description=_("time used"))
    def budget(self, row: Any) -> str:
        """The used part of the execution timeout, as a bar and in words."""
        if row.started_at is None:
            return ""
        used = row.ojs_now - row.started_at
        limit = timedelta(milliseconds=row.timeout_ms + row.extended_ms)
        part = min(1.0, max(0.0, used / limit)) if limit else 1.0
        return format_html(
            '<meter class="ojs-budget" min="0" max="1" low="0.8" high="0.95" optimum="0" value="{}">'
            "</meter> {} / {}",
            round(part, 3),
            humanize_duration(used),
            humanize_duration(limit),
        )

    @column(_("last heartbeat"))
    def heartbeat_age(self, row: Any) -> str:
        if row.heartbeat_at is None:
            return ""
        return span_of(row.ojs_now - row.heartbeat_at, row.heartbeat_at)

    @column(_("runs in"))
    def runs_in(self, row: Any) -> str:
        """Time until the job becomes available."""
        if row.scheduled_at is None:
            return ""
        return span_of(row.scheduled_at - row.ojs_now, row.scheduled_at)

    @column(_("duration"))
    def duration(self, row: Any) -> str:
        """The duration of the last attempt."""
        if row.started_at is None or row.finished_at is None:
            return ""
        return humanize_duration(row.finished_at - row.started_at)

    @column(_("waited"))
    def waited(self, row: Any) -> str:
        """Time from becoming available to the start."""
        if row.started_at is None or row.enqueued_at is None:
            return ""
        return humanize_duration(max(timedelta(0), row.started_at - row.enqueued_at))
