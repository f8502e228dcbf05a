"""The job list: what each tab shows and offers, and its rows as HTML.

A job has two lines: what it is, and why it failed or waits. They are written here and not by Django's
list, whose cells cost a template each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode
from uuid import UUID

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs.admin import search
from django_ojs.admin.cells import (
    Column,
    attempt_of,
    badge,
    select_box,
    since,
    time_of,
    translated,
    written,
)
from django_ojs.admin.job_menu import JobMenu
from django_ojs.admin.redaction import redacted
from django_ojs.admin.sorting import SORTS, Sort
from django_ojs.domain.failures import cause_of
from django_ojs.domain.job import ran_for
from django_ojs.domain.reserved import is_own
from django_ojs.domain.states import LIVE, State
from django_ojs.models import Job, Queue, Worker
from django_ojs.services.explain import not_claimed, not_promoted
from django_ojs.services.phrases import full_moment, humanize_duration
from django_ojs.services.verbs import VERBS

T = TypeVar("T")
MOST_ARGS = 160
"""Characters of the arguments that are shown."""
MOST_MESSAGE = 200
MOST_TEXT = 2_000
"""Of larger arguments and tags nothing is shown, so that a page does not read megabytes."""
MOST_TAGS = 5
_TONE = {
    State.COMPLETED: "good",
    State.ACTIVE: "run",
    State.DISCARDED: "bad",
    State.RETRYABLE: "warn",
}


@dataclass(frozen=True, slots=True, eq=False)
class JobListing:
    """What the rows of a page share.

    ``asked`` are the parameters of the list that its links keep; ``small`` has tags and, where the user
    may see them, arguments; ``paused`` and ``workers`` are of the queues of available jobs; ``page``
    has the address of the page of a job. ``known`` keeps what is the same in many rows.
    """

    now: datetime
    page: Callable[[object], str]
    asked: Mapping[str, str]
    small: Mapping[UUID, Sequence[Any]]
    paused: Mapping[str, Queue]
    workers: Sequence[Worker]
    menu: JobMenu
    selectable: bool
    known: dict[Any, Any] = field(default_factory=dict)

    def once(self, make: Callable[..., T], *about: Any) -> T:
        """What a function makes of these, made once."""
        key = (make, *about)
        if key not in self.known:
            self.known[key] = make(self, *about)
        return self.known[key]  # type: ignore[no-any-return]

    def narrowed(self, **parameters: str) -> str:
        """The address of the list with these parameters, from its first page."""
        return "?" + urlencode({**self.asked, **parameters})

    def with_word(self, qualifier: str, value: str) -> str:
        """The address of the list that is searched for a value too, empty if it cannot be written."""
        words = search.narrowed(self.asked.get("q", ""), qualifier, value)
        return self.narrowed(q=words) if words else ""


# What a row shows


def _chip(url: str, text: str, *, whole: str = "", tone: str = "") -> SafeString:
    """A value that narrows the list to itself."""
    if not url:
        return format_html('<span class="{}">{}</span>', tone, text)
    kind = f"ojs-chip ojs-{tone}" if tone else "ojs-chip"
    return format_html('<a class="{}" href="{}" title="{}">{}</a>', kind, url, whole or text, text)


def _word(page: JobListing, qualifier: str, value: str) -> SafeString:
    return _chip(page.with_word(qualifier, value), value)


def _job(row: Any, page: JobListing) -> SafeString:
    """The type, and the beginning of the arguments."""
    _tags, *rest = page.small.get(row.pk, (None,))
    args = "" if not rest or is_own(type=row.type) else preview(rest[0])
    shown = format_html('<code class="ojs-args">{}</code>', args) if args else ""
    return format_html("{} {}", page.once(_word, "type", row.type), shown)


def preview(args: Any) -> str:
    """Arguments in one line, redacted and cut; nothing for those that were too large to read."""
    if not isinstance(args, list) or not args:
        return ""
    text = json.dumps(redacted(args), ensure_ascii=False)[1:-1]
    # What was stored as half of a character is no text.
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= MOST_ARGS else f"{text[:MOST_ARGS]}…"


def _queue(row: Any, page: JobListing) -> SafeString:
    return page.once(_only, row.queue)


def _only(page: JobListing, queue: str) -> SafeString:
    return _chip(page.narrowed(queue=queue), queue)


def _state(row: Any, page: JobListing) -> SafeString:
    return page.once(_badge, row.state)


def _badge(page: JobListing, state: str) -> SafeString:
    return badge(_TONE.get(State(state), "quiet"), Job.States(state).label)


class JobMoment(NamedTuple):
    """The time that matters of a job in a state, and words for it in the past and in the future."""

    column: str
    past: Any
    future: Any = None


_MOMENTS: Mapping[str, JobMoment] = {
    State.SCHEDULED: JobMoment("scheduled_at", gettext_lazy("due %s ago"), gettext_lazy("runs in %s")),
    State.RETRYABLE: JobMoment(
        "scheduled_at", gettext_lazy("due %s ago"), gettext_lazy("retries in %s")
    ),
    State.PENDING: JobMoment("created_at", gettext_lazy("created %s ago")),
    State.AVAILABLE: JobMoment("enqueued_at", gettext_lazy("available for %s")),
    State.ACTIVE: JobMoment("started_at", gettext_lazy("started %s ago")),
    State.COMPLETED: JobMoment("finished_at", gettext_lazy("completed %s ago")),
    State.CANCELLED: JobMoment("finished_at", gettext_lazy("cancelled %s ago")),
    State.DISCARDED: JobMoment("finished_at", gettext_lazy("discarded %s ago")),
}


def moment_of(row: Any, now: datetime) -> tuple[datetime, str] | None:
    """The time that matters in the state of a job, and words for how far it is from ``now``."""
    column, past, future = _MOMENTS[row.state]
    moment: datetime | None = getattr(row, column)
    if moment is None:
        return None
    if row.state == State.DISCARDED and row.error:
        past = _("failed %s ago")
    words = future if future is not None and moment > now else past
    return moment, words % humanize_duration(max(moment - now, now - moment))


def _when(row: Any, page: JobListing) -> SafeString | str:
    found = moment_of(row, page.now)
    return "" if found is None else time_of(*found)


def _budget(row: Any, page: JobListing) -> SafeString | str:
    """The used part of the execution timeout, as a bar and in words."""
    if row.started_at is None:
        return ""
    used = page.now - row.started_at
    limit = timedelta(milliseconds=row.timeout_ms + row.extended_ms)
    part = min(1.0, max(0.0, used / limit)) if limit else 1.0
    return format_html(
        '<meter class="ojs-budget" min="0" max="1" low="0.8" high="0.95" optimum="0" value="{}">'
        "</meter> {}",
        round(part, 3),
        time_of(row.started_at, f"{humanize_duration(used)} / {humanize_duration(limit)}"),
    )


def _heartbeat(row: Any, page: JobListing) -> SafeString | str:
    return "" if row.heartbeat_at is None else since(row.heartbeat_at, page.now)


def _duration(row: Any, page: JobListing) -> str:
    """The duration of the last attempt."""
    span = ran_for(row)
    return "" if span is None else humanize_duration(span)


def _waited(row: Any, page: JobListing) -> str:
    """Time from becoming available to the start."""
    if row.started_at is None or row.enqueued_at is None:
        return ""
    return humanize_duration(max(timedelta(0), row.started_at - row.enqueued_at))


# The tabs


@dataclass(frozen=True, slots=True)
class TabLayout:
    """A tab: its orders and the index that has the natural one, which is the first; its columns, and
    what can be done with its jobs.

    ``index`` is ``None`` where planners choose it unaided.
    """

    sorts: Sequence[Sort]
    index: str | None
    columns: Sequence[Column]
    actions: frozenset[str]


def _for(*states: State) -> frozenset[str]:
    """The operations on jobs in these states."""
    return frozenset(name for name, verb in VERBS.items() if verb.states & {*states})


_JOB = Column("job", gettext_lazy("job"), _job)
_QUEUE = Column("queue", gettext_lazy("queue"), _queue)
_STATE = Column("state", gettext_lazy("state"), _state)
_ATTEMPT = Column("attempts", gettext_lazy("attempt"), lambda row, page: attempt_of(row))
_WHEN = Column("when", gettext_lazy("when"), _when)
_BUDGET = Column("budget", gettext_lazy("time used"), _budget)
_HEARTBEAT = Column("heartbeat_age", gettext_lazy("last heartbeat"), _heartbeat)
_DURATION = Column("duration", gettext_lazy("duration"), _duration)
_WAITED = Column("waited", gettext_lazy("waited"), _waited)
_ANY = (_JOB, _QUEUE, _STATE, _ATTEMPT, _WHEN)
_WAITING = (_JOB, _QUEUE, _ATTEMPT, _WHEN)
_RUNNING = (_JOB, _QUEUE, _ATTEMPT, _BUDGET, _HEARTBEAT)
_ENDED = (_JOB, _QUEUE, _ATTEMPT, _WHEN, _DURATION)
DUE, FINISHED, DEAD = "ojs_job_due", "ojs_job_finished", "ojs_job_dead"


def _layout(tab: str, index: str | None, columns: Sequence[Column], *states: State) -> TabLayout:
    return TabLayout(SORTS[tab], index, columns, _for(*states))


LAYOUTS: Mapping[str, TabLayout] = {
    "": _layout("", None, _ANY, *State),
    "overdue": _layout("overdue", None, _ANY, *LIVE),
    "dead_letter": _layout("dead_letter", DEAD, _ENDED, State.DISCARDED),
    **{
        state: _layout(state, index, columns, state)
        for state, index, columns in (
            (State.SCHEDULED, DUE, _WAITING),
            (State.PENDING, None, _WAITING),
            (State.AVAILABLE, None, _WAITING),
            (State.ACTIVE, None, _RUNNING),
            (State.RETRYABLE, DUE, _WAITING),
            (State.COMPLETED, FINISHED, (*_ENDED, _WAITED)),
            (State.CANCELLED, FINISHED, _ENDED),
            (State.DISCARDED, FINISHED, _ENDED),
        )
    },
}
"""By state, by filter where it has an order of its own, and of the dead letter."""


# The rows


def rows(found: Iterable[Any], columns: Sequence[Column], page: JobListing) -> SafeString:
    """The rows of a page, each a body of the table with two lines."""
    columns = translated(columns)
    return format_html_join("", "{}", ((_row(row, columns, page),) for row in found))


def _row(row: Any, columns: Sequence[Column], page: JobListing) -> SafeString:
    short = f"…{str(row.pk)[-12:]}"
    found = moment_of(row, page.now)
    when = "" if found is None else f"{found[1]}: {full_moment(found[0])}"
    box = format_html('<td class="action-checkbox" rowspan="2">{}</td>', select_box(row.pk, short))
    return format_html(
        '<tbody class="ojs-job" data-key="{}"><tr>{}{}{}</tr><tr><td class="field-why" colspan="{}">'
        '<a class="ojs-id" href="{}" title="{}">{}</a> {}{}</td></tr></tbody>',
        row.pk,
        box if page.selectable else "",
        written(columns, row, page),
        page.menu.of_row(row, short, when),
        len(columns),
        page.page(row.pk),
        row.pk,
        short,
        _error(row, page) if row.error else _waits(row, page),
        _marks(row, page),
    )


def _error(row: Any, page: JobListing) -> SafeString:
    """The last error by the last part of its name, and the first line of its message."""
    error, cause = row.error, cause_of(row.error)
    name, first = str(error.get("type", "")), cause or error
    chip = _chip(page.with_word("error", name), _last(name), whole=name, tone="bad")
    if cause is not None:
        chip = format_html("<b>{}</b>, {}", _last(str(cause.get("type", ""))), chip)
    line = str(first.get("message", "")).partition("\n")[0]
    line = line if len(line) <= MOST_MESSAGE else f"{line[:MOST_MESSAGE]}…"
    return format_html('<span class="ojs-problem">{} {}</span>', chip, line)


def _last(name: str) -> str:
    return (name.rpartition(".")[2] or name)[:80]


def _waits(row: Any, page: JobListing) -> SafeString | str:
    """Why a job waits, as far as it is more than its turn; how far one is that runs."""
    match row.state:
        case State.AVAILABLE if row.held:
            said = [_("A rate limit holds it.")]
        case State.AVAILABLE:
            said = page.once(_not_claimed, row.queue, row.type)
        case State.SCHEDULED if row.scheduled_at is not None:
            said = not_promoted(row.scheduled_at, page.now)
        case State.PENDING:
            said = [_("It is pending: it waits until it is activated.")]
        case State.ACTIVE if row.progress is not None:
            said = [f"{round(row.progress * 100)} %", row.progress_message[:MOST_MESSAGE]]
        case _:
            return ""
    return format_html('<span class="ojs-waits">{}</span>', " ".join(said)) if said else ""


def _not_claimed(page: JobListing, queue: str, kind: str) -> list[str]:
    return not_claimed(queue, kind, page.paused.get(queue), page.workers)


def _marks(row: Any, page: JobListing) -> SafeString:
    """Its worker and its tags."""
    tags = page.small.get(row.pk, (None,))[0]
    found = [("worker", row.worker_id)] if row.worker_id else []
    found += [("tag", tag) for tag in tags[:MOST_TAGS]] if isinstance(tags, list) else []
    chips = ((page.once(_word, name, str(value)),) for name, value in found)
    return format_html_join("", " {}", chips)
