"""Operations on more jobs than are done at once: a job of our own that walks pages by the key.

It is enqueued like any other, shows its progress, can be cancelled, and goes on where it was when
its worker dies: its checkpoint is the last page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from django_ojs import clock, conf
from django_ojs.domain.envelope import from_call
from django_ojs.domain.job import Actor, JobRecord
from django_ojs.services.enqueue import enqueue

TYPE = "ojs.admin.bulk"
QUEUE = "ojs-admin"
OWN_PREFIX = "ojs."
"""How the types of django_ojs itself begin."""

MOST = 1_000_000
_POSSIBLE = frozenset({"retry", "run_now", "cancel", "edit", "discard", "purge"})


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs: as the list was narrowed."""

    state: str | None = None
    queue: str | None = None
    search: str | None = None
    lens: str | None = None
    dead_letter: bool = False


def possible(operation: str) -> bool:
    """Whether an operation may be done to any number of jobs."""
    return operation in _POSSIBLE


def start(
    operation: str,
    narrowed: Filter,
    cleaned: Mapping[str, Any],
    actor: Actor,
    *,
    using: str | None = None,
) -> JobRecord:
    """Enqueue the job that does it. The jobs that are made after it are left alone."""
    using = using or conf.current().database
    now = clock.now(using)
    plain = {key: value for key, value in cleaned.items() if isinstance(value, (str, int, bool))}
    arguments = [operation, asdict(narrowed), plain, asdict(actor)]
    envelope = from_call(TYPE, arguments, now=now, queue=QUEUE, meta={"operation": operation})
    return enqueue([envelope], now=now, using=using)[0]
