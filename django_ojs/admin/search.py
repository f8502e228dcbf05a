"""The search of the job list: ids by their index, the rest in a bounded window (UX 2.4)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db.models import F, Q
from django.db.models.fields.json import KeyTransform

_WORD = re.compile(r'(?:([a-z]+(?:\.[\w.-]+)?):)?(?:"([^"]*)"|(\S+))')


@dataclass(slots=True)
class Search:
    """What was asked: ids, conditions that read rows (with the places in JSON columns that they
    name), and the words that nothing could be made of. ``job_id`` is the id that stands alone.

    An index for each qualifier would be written with every change of every job, for the few looks
    that people take; and in the newest rows is what they look for.
    """

    ids: Q = field(default_factory=Q)
    windowed: Q = field(default_factory=Q)
    places: dict[str, Any] = field(default_factory=dict)
    job_id: UUID | None = None
    unknown: list[str] = field(default_factory=list)


def parse(text: str) -> Search:
    """The words of a search: ``type:mail.send error:timeout args.order_id:42 tag:"a b"``."""
    found = Search()
    for match in _WORD.finditer(text):
        name, quoted, plain = match.groups()
        value = quoted if quoted is not None else plain
        if name is None:
            _bare(found, value)
            continue
        head, _, key = name.partition(".")
        if key and head in ("args", "meta"):
            _json(found, head, key, value)
        elif not key and head in _QUALIFIERS:
            _QUALIFIERS[head](found, value)
        else:
            found.unknown.append(match[0])
    return found


def _bare(found: Search, value: str) -> None:
    try:
        found.job_id = UUID(value)
        found.ids &= Q(pk=found.job_id)
    except ValueError:
        found.unknown.append(value)


def _id(found: Search, value: str) -> None:
    try:
        found.ids &= Q(pk=UUID(value))
    except ValueError:
        found.unknown.append(f"id:{value}")


def _type(found: Search, value: str) -> None:
    found.windowed &= Q(type__startswith=value[:-1]) if value.endswith("*") else Q(type=value)


def _queue(found: Search, value: str) -> None:
    found.windowed &= Q(queue=value)


def _worker(found: Search, value: str) -> None:
    found.windowed &= Q(worker_id=value)


def _tag(found: Search, value: str) -> None:
    # As text: not every database can look into an array.
    found.windowed &= Q(tags__icontains=json.dumps(value, ensure_ascii=False))


def _error(found: Search, value: str) -> None:
    found.windowed &= Q(error__type=value)


_QUALIFIERS: dict[str, Callable[[Search, str], None]] = {
    "id": _id,
    "type": _type,
    "queue": _queue,
    "worker": _worker,
    "tag": _tag,
    "error": _error,
}


class _Step(KeyTransform):
    """A key in a JSON value. On PostgreSQL one arrow after another: a path takes twice as long."""

    def as_postgresql(self, compiler: Any, connection: Any) -> Any:
        """The arrow; whole numbers are places in a list."""
        before, parameters = compiler.compile(self.lhs)
        try:
            key: int | str = int(self.key_name)
        except ValueError:
            key = self.key_name
        return f"({before} -> %s)", (*parameters, key)


def _json(found: Search, column: str, key: str, value: str) -> None:
    """``args.order_id:42``: in the first argument if that is an object; numbers match as text too."""
    # Not by a path of names, in which a key could be the name of a lookup.
    place: Any = F(column)
    for part in (("0",) if column == "args" else ()) + tuple(filter(None, key.split("."))):
        place = _Step(part, place)
    name = f"ojs_place_{len(found.places)}"
    found.places[name] = place
    wanted: list[Any] = [value]
    try:
        wanted.append(json.loads(value))
    except ValueError:
        pass
    plain = [item for item in wanted if not isinstance(item, (dict, list))]
    # Together: the value is then taken out of each row once. A list cannot ask for null.
    matching = Q(**{f"{name}__in": [item for item in plain if item is not None]})
    found.windowed &= matching | Q(**{name: None}) if None in plain else matching
