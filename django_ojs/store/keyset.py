"""Keyset pagination: positions in a list that is ordered by the columns of one index.

The columns together are unique, which is why the last one mostly is the primary key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Field, Model, Q

Keys = Sequence[tuple[str, bool]]
"""The columns, and whether each is descending."""
_LONGEST = timedelta(days=36_500)
"""Every database counts it in microseconds."""


def order(keys: Keys, *, back: bool = False) -> list[str]:
    """The arguments of ``order_by``; ``back`` reverses the list."""
    return [f"-{name}" if down is not back else name for name, down in keys]


def beyond(keys: Keys, last: Sequence[Any], *, back: bool = False, inclusive: bool = False) -> Q:
    """The rows after the one with these values; with ``back`` those before it, and with ``inclusive``
    that row too.

    The first condition is implied by the others: it is the range of the index that is read, which no
    planner derives from an OR.
    """
    found, same = Q(), Q()
    for place, ((name, down), value) in enumerate(zip(keys, last, strict=True)):
        word = "lt" if down is not back else "gt"
        if inclusive and place == len(keys) - 1:
            word += "e"
        found |= same & Q(**{f"{name}__{word}": value})
        same &= Q(**{name: value})
    if len(keys) == 1:
        return found
    name, down = keys[0]
    return Q(**{f"{name}__{'lte' if down is not back else 'gte'}": last[0]}) & found


def encode(values: Sequence[Any]) -> list[str]:
    """The values of a row as text, for a cursor."""
    return [value.isoformat() if isinstance(value, datetime) else str(value) for value in values]


def decode(
    model: type[Model],
    keys: Keys,
    text: Sequence[str],
    others: Mapping[str, Field[Any, Any]] | None = None,
) -> list[Any]:
    """The values that :func:`encode` turned into text; ``others`` are the fields of keys that are no
    columns.

    Raises ``ValueError``, ``OverflowError`` or :class:`django.core.exceptions.ValidationError` for
    values that no row can have.
    """
    found = []
    for (name, _down), part in zip(keys, text, strict=True):
        field: Any = model._meta.pk if name == "pk" else (others or {}).get(name)
        field = field or model._meta.get_field(name)
        found.append(_comparable(field.to_python(part)))
    return found


def _comparable(value: Any) -> Any:
    """The value, if databases can compare with it: a time must be valid in every time zone."""
    if value is None or (isinstance(value, str) and "\0" in value):
        raise ValueError("no value of a key")
    if isinstance(value, timedelta) and abs(value) > _LONGEST:
        raise ValueError("no span of time")
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError("no time zone")
        value = value.astimezone(UTC)
        for day in (timedelta(1), timedelta(-1)):
            _ = value + day
    return value
