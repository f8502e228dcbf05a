"""Operations on very many jobs: a job of django_ojs itself that pages through them by primary key.

It reports progress, can be cancelled, and resumes after the death of its worker: its checkpoint is the
last row of the last page. The order is signed and bound to the id of the job, so that being allowed to
enqueue or edit jobs is not enough to issue one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from django.core import signing

from django_ojs import clock
from django_ojs.domain.envelope import from_call
from django_ojs.domain.job import Actor, JobRow
from django_ojs.domain.reserved import OWN_PREFIX, OWN_QUEUE
from django_ojs.services import audit
from django_ojs.services.enqueue import enqueue
from django_ojs.store.contention import in_transaction

TYPE = f"{OWN_PREFIX}admin.bulk"
QUEUE = OWN_QUEUE

MOST = 1_000_000
_POSSIBLE = frozenset({"retry", "run_now", "cancel", "edit", "discard", "purge"})
_SALT = "django_ojs.bulk"


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs: the filters of the admin's list."""

    state: str | None = None
    queue: str | None = None
    search: str | None = None
    lens: str | None = None
    dead_letter: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """What a bulk job is to do, to which jobs, and for whom; ``user`` is the primary key of the user.

    The client address is stored in the audit only.
    """

    job: str
    operation: str
    narrowed: Filter
    cleaned: Mapping[str, Any]
    actor: Actor
    user: str
    given_at: str

    def signed(self) -> str:
        """As text that cannot be changed."""
        return signing.dumps(asdict(self), salt=_SALT, compress=True)


def read(text: str, job_id: object) -> Order:
    """The order of a job. Raises :class:`django.core.signing.BadSignature` if it is not its own."""
    found = signing.loads(text, salt=_SALT)
    if found["job"] != str(job_id):
        raise signing.BadSignature("the order is that of another job")
    narrowed, actor = Filter(**found.pop("narrowed")), Actor(**found.pop("actor"))
    return Order(**found, narrowed=narrowed, actor=actor)


def possible(operation: str) -> bool:
    """Whether an operation is available as a bulk job."""
    return operation in _POSSIBLE


@in_transaction
def start(
    operation: str,
    narrowed: Filter,
    cleaned: Mapping[str, Any],
    actor: Actor,
    *,
    user: object,
    count: str | None = None,
    using: str = "",
) -> JobRow:
    """Enqueue the job that does it, and note in the audit what it is to do, to which jobs and to how
    many (``count``, as it was confirmed). The jobs that are made after it are left alone.
    """
    now = clock.now(using)
    job_id = clock.new_id()
    plain = {key: value for key, value in cleaned.items() if isinstance(value, (str, int, bool))}
    giver = replace(actor, address="")
    order = Order(str(job_id), operation, narrowed, plain, giver, str(user), now.isoformat())
    shown = {key: value for key, value in asdict(narrowed).items() if value}
    meta = {"operation": operation, "actor": actor.name, "reason": actor.reason, "filter": shown}
    envelope = from_call(TYPE, [order.signed()], now=now, queue=QUEUE, meta=meta)
    what: dict[str, Any] = {"operation": operation, "filter": shown, "count": count}
    audit.note("bulk.started", actor, target=("job", str(job_id)), using=using, **what)
    return enqueue([envelope._replace(id=job_id)], now=now, using=using)[0]
