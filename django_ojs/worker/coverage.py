"""What a worker claims from: the queues that it serves, and the types that it has handlers for."""

from __future__ import annotations

from collections.abc import Sequence

from django_ojs import clock
from django_ojs.domain.envelope import OWN_PREFIX
from django_ojs.services import queues
from django_ojs.services.bulk import QUEUE as OWN_QUEUE
from django_ojs.services.claim import sources
from django_ojs.store.claiming import Source
from django_ojs.worker import registry

_LOOK_EVERY = 5.0


def _sensible(source: Source) -> bool:
    """Our own jobs have a queue of their own, and it has no others."""
    return str(source.type).startswith(OWN_PREFIX) == (source.queue == OWN_QUEUE)


class Coverage:
    """The sources, in the order of service; without names all queues, looked up now and then.

    Called by the desk, in its thread.
    """

    def __init__(self, named: Sequence[str], excluded: Sequence[str], *, using: str) -> None:
        self._named = [name for name in named if name not in excluded]
        self._all = not named
        self._excluded = excluded
        self._using = using
        self._looked_at = float("-inf")
        self._heard: set[str] = set()
        self._sources: list[Source] = []

    def __call__(self) -> list[Source]:
        """Where to claim from now."""
        now = clock.boottime()
        if now - self._looked_at > _LOOK_EVERY:
            # Before the look: what is heard of during it asks for another one.
            self._looked_at = now
            try:
                names = self._names()
            except Exception:
                self.look_again()
                raise
            every = sources(names, registry.types(), ranked=not self._all)
            self._sources = list(filter(_sensible, every))
        return self._sources

    def _names(self) -> list[str]:
        if not self._all:
            return self._named
        # A queue gets its row after the commit that announces it, so that it may be missing.
        known = {*queues.known(using=self._using), *self._heard}
        return [name for name in sorted(known) if name not in self._excluded]

    def look_again(self) -> None:
        """Look the queues up at the next opportunity."""
        self._looked_at = float("-inf")

    def heard_of(self, queue: str) -> None:
        """A queue was named in a notification: if it is new, look it up at the next opportunity."""
        known = {source.queue for source in self._sources}
        if self._all and queue and queue not in self._excluded and queue not in known:
            self._heard.add(queue)
            self.look_again()
