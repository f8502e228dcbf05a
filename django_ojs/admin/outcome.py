"""What became of the jobs of bulk work that has ended, in a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from django.db import OperationalError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs import clock
from django_ojs.admin.charts import plain
from django_ojs.domain.lru import LRU
from django_ojs.domain.states import LIVE, State
from django_ojs.services import bulk_outcome
from django_ojs.services.bulk_outcome import BulkOutcome
from django_ojs.store.sessions import statement_timeout

LIMIT_MS = 1000
"""For each of the two statements: without an answer by then, nothing is said."""
_FAILED: Mapping[str, Any] = {
    "retry": gettext_lazy("%s failed again"),
    "run_now": gettext_lazy("%s failed"),
    "edit": gettext_lazy("%s failed"),
}
"""By operation: those that give a job another chance."""


_SHARE = 20
"""The heads of pages look again after so many times as long as the last look took: they are on every
page, and for tens of thousands of jobs a look takes a tenth of a second.
"""
_looked: LRU[tuple[str, UUID], tuple[float, BulkOutcome | None]] = LRU(100)
"""By database and bulk job: until when (boottime) which outcome is shown in the heads of pages."""


class OutcomeNote(NamedTuple):
    """The words, and whether they will change: some of the jobs wait or run."""

    said: str
    changes: bool


def note(
    job_id: UUID, operation: str, place: Any, *, using: str, in_head: bool = False
) -> OutcomeNote | None:
    """What became of the jobs of a bulk job, of which its checkpoint says how many it has changed;
    ``in_head`` of a page perhaps as it was a moment ago.
    """
    done = int(place.get("done", 0)) if isinstance(place, dict) else 0
    if not done:
        return None
    began, known = clock.boottime(), _looked.get((using, job_id))
    if in_head and known is not None and began < known[0]:
        found = known[1]
    else:
        found = _look(job_id, done, using)
        ended = clock.boottime()
        _looked.put((using, job_id), (ended + _SHARE * (ended - began), found))
    if found is None:
        return None
    said = _words(found, operation)
    if not found.whole:
        said = _("of the first %(count)s: %(said)s") % {"count": plain(found.jobs), "said": said}
    return OutcomeNote(said, any(found.states[state] for state in LIVE))


def _look(job_id: UUID, done: int, using: str) -> BulkOutcome | None:
    try:
        with statement_timeout(LIMIT_MS, using=using, by_index=True):
            return bulk_outcome.outcome(job_id, done, using=using)
    except OperationalError:
        return None


def _words(found: BulkOutcome, operation: str) -> str:
    states = found.states
    waiting = states[State.SCHEDULED] + states[State.PENDING] + states[State.AVAILABLE]
    parts = (
        (states[State.COMPLETED], _("%s completed")),
        (states[State.CANCELLED], _("%s cancelled")),
        (states[State.DISCARDED], _FAILED.get(operation, _("%s discarded"))),
        (states[State.RETRYABLE], _("%s waiting for another attempt")),
        (states[State.ACTIVE], _("%s running")),
        (waiting, _("%s still waiting")),
        (found.deleted, _("%s deleted")),
    )
    return ", ".join(words % plain(count) for count, words in parts if count)
