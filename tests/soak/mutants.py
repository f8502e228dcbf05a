"""Defects to plant: the soak must notice each of them, or it has rotted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from django_ojs.domain.states import State
from django_ojs.services import settle
from django_ojs.store import leases, locking
from django_ojs.store.leases import Held


def no_fence() -> None:
    """A report counts for whichever attempt is running, as where reports go by the job's id alone."""
    fenced_settle, fenced_report, fenced_write = settle._settle, settle._report, leases.write

    def current(held: Held, using: str) -> Held:
        job = locking.jobs([held.job_id], using=using).get(held.job_id)
        if job is None or job.state != State.ACTIVE or job.lease_id is None:
            return held
        return Held(job.id, job.lease_id)

    def unfenced_settle(outcomes: Sequence[Any], now: Any, using: str) -> Any:
        loose = [outcome._replace(lease=current(outcome.lease, using)) for outcome in outcomes]
        return fenced_settle(loose, now, using)

    def unfenced_report(job_id: Any, evidence: Any, kind: Any, *rest: Any) -> Any:
        bare = replace(evidence, lease_id=None, worker_id=None, attempt=None, principal=None)
        return fenced_report(job_id, bare, kind, *rest)

    def unfenced_write(held: Sequence[Held], *rest: Any, using: str) -> Any:
        loose = [current(one, using) for one in held]
        kept = fenced_write(loose, *rest, using=using)
        claimed = {one.job_id: one.lease_id for one in held}
        return [lease._replace(lease_id=claimed[lease.job_id]) for lease in kept]

    settle._settle, settle._report = unfenced_settle, unfenced_report
    leases.write = unfenced_write
    _without_principals()


def _without_principals() -> None:
    """One client's report counts for a job that another one fetched."""
    from django_ojs.services import fencing

    def refusal(job: Any, evidence: Any, others: Any, *, policy: str) -> None:
        return None

    fencing.refusal = refusal


MUTANTS: dict[str, Callable[[], None]] = {"no-fence": no_fence}
