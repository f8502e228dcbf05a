"""The core's own periodic work, through the same door as anybody else's."""

from __future__ import annotations

from django_ojs import hooks
from django_ojs.hooks import SLICE, Chore, ChoreResult
from django_ojs.services import promote, prune, queues, rollup


def _promote(using: str) -> ChoreResult:
    promoted = promote.promote(seconds=SLICE, using=using)
    return ChoreResult({"promoted": promoted}, more=promoted > 0)


def _prune(using: str) -> ChoreResult:
    pruned = prune.prune_for(SLICE, using=using)
    return ChoreResult(pruned.counts, more=pruned.more)


def _discover(using: str) -> ChoreResult:
    return ChoreResult({"queues": queues.discover(using=using)})


PROMOTE = Chore("promote", 0.1, _promote, enforces=True, scheduled=True)
PRUNE = Chore("prune", 60.0, _prune)
DISCOVER = Chore("queues", 30.0, _discover)


def register_all() -> None:
    """Put the core's chores on the list; the reaper keeps its own record (``services.scan``)."""
    for chore in (PROMOTE, PRUNE, DISCOVER, rollup.CHORE):
        hooks.register_chore(chore)
