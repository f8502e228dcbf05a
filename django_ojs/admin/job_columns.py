"""The columns of the job list: those of the tab, each in words and, where it helps, in colour."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs.admin.cells import labelled, span_of
from django_ojs.admin.clocks import humanize_duration
from django_ojs.domain.failures import cause_of

_TONE = {
    "completed": "good",
    "active": "run",
    "discarded": "bad",
    "retryable": "warn",
    "cancelled": "quiet",
}


class JobColumns:
    """Mixed into the admin of jobs. The list reads the time once, as ``ojs_now`` of its rows."""

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

    @admin.display(description=gettext_lazy("id"))
    def short_id(self, row: Any) -> str:
        """The random end of the id: the beginning is the time."""
        return format_html('<span title="{}">…{}</span>', row.pk, str(row.pk)[-12:])

    @admin.display(description=gettext_lazy("state"))
    def badge(self, row: Any) -> str:
        """Colour and word."""
        tone = _TONE.get(row.state, "quiet")
        return format_html('<span class="ojs-badge ojs-{}">{}</span>', tone, row.get_state_display())

    @admin.display(description=gettext_lazy("attempt"))
    def attempts(self, row: Any) -> str:
        """So many of so many."""
        return labelled(_("attempt"), f"{row.attempt}/{row.max_attempts}")

    @admin.display(description=gettext_lazy("age"))
    def age(self, row: Any) -> str:
        """Since it was created."""
        return labelled(_("age"), span_of(row.ojs_now - row.created_at, row.created_at))

    @admin.display(description=gettext_lazy("problem"))
    def problem(self, row: Any) -> str:
        """The kind of the last error, and its first line."""
        error = row.error or {}
        if not error:
            return ""
        cause = cause_of(error)
        first = cause or error
        line = str(first.get("message", "")).partition("\n")[0][:100]
        kind = str(first.get("type", ""))[:80]
        if cause is not None:
            kind = f"{kind}, {error['type']}"
        return format_html('<b class="ojs-bad">{}</b> {}', kind, line)

    @admin.display(description=gettext_lazy("time used"))
    def budget(self, row: Any) -> str:
        """How much of its execution timeout it has used: a bar, and the same in words."""
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

    @admin.display(description=gettext_lazy("last heartbeat"))
    def heartbeat_age(self, row: Any) -> str:
        """How long ago."""
        if row.heartbeat_at is None:
            return ""
        age = span_of(row.ojs_now - row.heartbeat_at, row.heartbeat_at)
        return labelled(_("last heartbeat"), age)

    @admin.display(description=gettext_lazy("runs in"))
    def runs_in(self, row: Any) -> str:
        """Until its time comes."""
        if row.scheduled_at is None:
            return ""
        left = span_of(row.scheduled_at - row.ojs_now, row.scheduled_at)
        return labelled(_("runs in"), left)

    @admin.display(description=gettext_lazy("duration"))
    def duration(self, row: Any) -> str:
        """Of the last attempt."""
        if row.started_at is None or row.finished_at is None:
            return ""
        return labelled(_("duration"), humanize_duration(row.finished_at - row.started_at))

    @admin.display(description=gettext_lazy("waited"))
    def waited(self, row: Any) -> str:
        """From becoming available to its start."""
        if row.started_at is None or row.enqueued_at is None:
            return ""
        waited = max(timedelta(0), row.started_at - row.enqueued_at)
        return labelled(_("waited"), humanize_duration(waited))
