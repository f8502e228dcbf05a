"""Which database a queue is in: ``OJS["QUEUE_DATABASES"]`` (ADR 44)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.names import check_queue_name


@dataclass(frozen=True, slots=True)
class QueueDatabases:
    """``named`` has the databases of queues by their names, ``prefixes`` those of queues whose names
    begin so, the longest first. ``default`` has all others.
    """

    default: str
    named: Mapping[str, str] = field(default_factory=dict)
    prefixes: Sequence[tuple[str, str]] = ()

    @property
    def are_several(self) -> bool:
        """Whether any queue may be elsewhere than in ``default``."""
        return bool(self.named or self.prefixes)

    @property
    def aliases(self) -> tuple[str, ...]:
        """All databases, ``default`` first."""
        others = (*self.named.values(), *(alias for _, alias in self.prefixes))
        return tuple(dict.fromkeys((self.default, *others)))

    def of(self, queue: str) -> str:
        """The database of a queue: by its name, else by the longest prefix that fits."""
        alias = self.named.get(queue)
        if alias is not None:
            return alias
        return next((to for prefix, to in self.prefixes if queue.startswith(prefix)), self.default)

    def matching(self, pattern: str) -> set[str]:
        """The databases of a queue, or of all queues whose names begin with what is before a ``*``."""
        if not pattern.endswith("*"):
            return {self.of(pattern)}
        begin = pattern[:-1]
        inside = [*self.named.items(), *self.prefixes]
        return {self.of(begin), *(alias for name, alias in inside if name.startswith(begin))}


def parse_patterns(value: object, where: str) -> dict[str, str]:
    """The database by name of a queue, or by prefix with a ``*`` at its end. Raises
    :class:`InvalidRequest`.
    """
    if not isinstance(value, Mapping):
        raise InvalidRequest(where, "must be a dict")
    found: dict[str, str] = {}
    for alias, queues in value.items():
        place = f"{where}[{alias!r}]"
        if not isinstance(alias, str) or not isinstance(queues, (list, tuple)):
            raise InvalidRequest(place, "must be a list of queues, whose names may end in *")
        for queue in queues:
            if not isinstance(queue, str):
                raise InvalidRequest(place, "must be a list of queues, whose names may end in *")
            check_queue_name(queue.removesuffix("*"), place)
            if found.get(queue, alias) != alias:
                raise InvalidRequest(place, f"has {queue!r}, and so has {found[queue]!r}")
            found[queue] = alias
    return found


def queue_databases(default: str, patterns: Mapping[str, str]) -> QueueDatabases:
    """What was parsed, ready to be asked."""
    prefixes = [(name[:-1], alias) for name, alias in patterns.items() if name.endswith("*")]
    return QueueDatabases(
        default,
        {name: alias for name, alias in patterns.items() if not name.endswith("*")},
        sorted(prefixes, key=lambda item: -len(item[0])),
    )
