"""The search of the job list: ids by index, other words within a bounded window."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db.models import F, Q
from django.db.models.fields.json import KeyTransform

from django_ojs import conf
from django_ojs.admin.qualifiers import Term, terms
from django_ojs.admin.redaction import hides
from django_ojs.domain.reserved import OWN_PREFIX
from django_ojs.handlers import registry
from django_ojs.store.text_search import TextInError, TextInJSON

_QUALIFIER = r"[^\W\d]\w*(?:\.[\w.-]+)?"
_INDEX = re.compile("[0-9]{1,9}", re.ASCII)
"""Indexes of lists; longer numbers are taken for keys."""
_IDS = {"id": "pk", "workflow": "workflow_id"}
"""The qualifiers that are served by an index of their own."""
_SHORT_ID = re.compile("…?[0-9a-fA-F]{12}")
_FULL_ID = re.compile("[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}")
_INCIDENT = re.compile("[0-9a-f]{16}")
_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*\*?")
MOST_KEYS = 20
"""The longest path into a JSON value."""
MOST_TEXT = 8192
"""In larger arguments and results, in bytes, no text is looked for: they are too slow to read."""


@dataclass(slots=True)
class JobSearch:
    """What was asked: ids, conditions that read rows (with the places in JSON columns that they
    name), and the words that mean nothing.

    There is no index for each qualifier: it would be written with every change of a job, for a few
    searches by people, who mostly look for recent jobs.
    """

    ids: Q = field(default_factory=Q)
    windowed: Q = field(default_factory=Q)
    places: dict[str, Any] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    denied: bool = False
    """Whether a word asks for arguments or meta, which the user may not see."""
    partly: bool = False
    """Whether a text is looked for in errors only, since the user may not see arguments."""


def parse(text: str, *, shows_args: bool = True) -> JobSearch:
    """The words of a search: ``mail. error:KeyError order_id:42 tag:"a b" "card declined"``.

    Redacted values, and arguments that the user may not see, cannot be searched: a search would
    reveal them by guessing.
    """
    found = JobSearch()
    for term in terms(text, _QUALIFIER):
        name, value, typed, _quoted = term
        if name is None:
            _bare(found, term, shows_args)
            continue
        head, _, key = name.partition(".")
        # A name that is no qualifier is that of an argument.
        keys = [part for part in (key if head in ("args", "meta") else name).split(".") if part]
        if name in _IDS:
            _id(found, value, _IDS[name])
        elif name == "incident":
            _incident(found, value, typed)
        elif name in _QUALIFIERS:
            found.windowed &= _QUALIFIERS[name](value)
        elif not keys or len(keys) > MOST_KEYS or any(map(hides, keys)):
            found.unknown.append(typed)
        elif not shows_args:
            found.unknown.append(typed)
            found.denied = True
        elif head == "meta":
            found.windowed &= _at(found, "meta", keys, value)
        else:
            found.windowed &= _argument(found, keys, value)
    return found


def word(qualifier: str, value: str) -> str:
    """A word of a search for a value, empty for one that cannot be written."""
    if not value or '"' in value or not value.isprintable():
        return ""
    return f'{qualifier}:"{value}"' if " " in value else f"{qualifier}:{value}"


def words(text: str) -> list[str]:
    """The words of a search, as they were typed."""
    return [term.text for term in terms(text, _QUALIFIER)]


def narrowed(text: str, qualifier: str, value: str) -> str:
    """A search that is for this value too; empty if it cannot be written. It takes the place of another
    value, but for tags, of which a job has several.
    """
    new = word(qualifier, value)
    kept = [
        term.text
        for term in terms(text, _QUALIFIER)
        if term.text != new and (qualifier == "tag" or term.qualifier != qualifier)
    ]
    return " ".join([*kept, new]) if new else ""


def _incident(found: JobSearch, value: str, typed: str) -> None:
    if _INCIDENT.fullmatch(value):
        found.ids &= Q(incident=value)
    else:
        found.unknown.append(typed)


def _id(found: JobSearch, value: str, column: str = "pk") -> None:
    try:
        found.ids &= Q(**{column: UUID(value)})
    except ValueError:
        found.unknown.append(value)


def _bare(found: JobSearch, term: Term, shows_args: bool) -> None:
    """A word without a qualifier: an id, the end of one as the list shows it, or how a type begins; in
    quotes, or where it can be none of these, a text.
    """
    value = term.value
    if term.quoted:
        _text(found, term, shows_args)
    elif _SHORT_ID.fullmatch(value):
        found.windowed &= Q(pk__endswith=value[-12:].lower())
    elif _FULL_ID.fullmatch(value):
        _id(found, value)
    elif _TYPE.fullmatch(value):
        found.windowed &= Q(type__startswith=value.removesuffix("*"))
    else:
        _text(found, term, shows_args)


def _text(found: JobSearch, term: Term, shows_args: bool) -> None:
    """Somewhere in an error, the arguments or the result; not in what is only for us."""
    if not term.value or (not term.quoted and term.value.endswith(":")):
        # A qualifier without a value is no text that somebody looks for.
        found.unknown.append(term.text)
        return
    matching = Q(TextInError("error", term.value))
    if shows_args:
        hidden = conf.current().admin.redact
        there = Q()
        for column in ("args", "result"):
            there |= Q(TextInJSON(column, term.value, most=MOST_TEXT, without=hidden))
        matching |= there & ~Q(type__startswith=OWN_PREFIX)
    found.partly |= not shows_args
    found.windowed &= matching


def is_of_text(text: str) -> bool:
    """Whether a search looks for a text."""
    return any(term.qualifier is None and not _is_name(term) for term in terms(text, _QUALIFIER))


def as_text(text: str) -> str:
    """The same search, in which words for the beginning of a type are looked for as text; empty if it
    has none of them.
    """
    typed = list(terms(text, _QUALIFIER))
    written = [
        f'"{term.value.removesuffix("*")}"' if _begins_type(term) else term.text for term in typed
    ]
    return " ".join(written) if any(map(_begins_type, typed)) else ""


def _begins_type(term: Term) -> bool:
    if term.qualifier is not None or _is_id(term):
        return False
    return _is_name(term)


def _is_id(term: Term) -> bool:
    found = _SHORT_ID.fullmatch(term.value) or _FULL_ID.fullmatch(term.value)
    return not term.quoted and found is not None


def _is_name(term: Term) -> bool:
    """Whether a word without a qualifier is an id, or the beginning of a type."""
    return _is_id(term) or (not term.quoted and _TYPE.fullmatch(term.value) is not None)


def _type(value: str) -> Q:
    return Q(type__startswith=value[:-1]) if value.endswith("*") else Q(type=value)


def _error(value: str) -> Q:
    """By its name, or by the last part of it."""
    named = Q(error__type=value)
    return named if "." in value or not value else named | Q(error__type__endswith=f".{value}")


def _tag(value: str) -> Q:
    # As text: not every database can search an array, and some store the text unchanged.
    matching = Q()
    for ascii_only in (False,) if value.isascii() else (False, True):
        matching |= Q(tags__icontains=json.dumps(value, ensure_ascii=ascii_only))
    return matching


_QUALIFIERS: dict[str, Callable[[str], Q]] = {
    "type": _type,
    "queue": lambda value: Q(queue=value),
    "worker": lambda value: Q(worker_id=value),
    # Empty: jobs of this project's own workers, which have no credential.
    "client": lambda value: Q(lease_principal=value or None),
    "tag": _tag,
    "error": _error,
}


class _Step(KeyTransform):
    """A key in a JSON value; Django would take ``-1`` and numbers beyond all lists for places in one,
    which are errors, and escape letters in names.

    On PostgreSQL one arrow after another: a path takes twice as long.
    """

    def as_postgresql(self, compiler: Any, connection: Any) -> Any:
        """The arrow; whole numbers are places in a list."""
        before, parameters = compiler.compile(self.lhs)
        key = int(self.key_name) if _INDEX.fullmatch(self.key_name) else self.key_name
        return f"({before} -> %s)", (*parameters, key)

    as_cockroachdb = as_postgresql

    def as_mysql(self, compiler: Any, connection: Any) -> Any:
        column, path = self._path(compiler, connection)
        return f"JSON_EXTRACT({column}, %s)", (path,)

    def as_sqlite(self, compiler: Any, connection: Any, **_: Any) -> Any:
        """The path; the names of types stand for what is extracted as another type."""
        column, path = self._path(compiler, connection)
        types = ",".join(map(repr, connection.ops.jsonfield_datatype_values))
        kind = f"JSON_TYPE({column}, %s)"
        extracted = f"JSON_EXTRACT({column}, %s)"
        return f"(CASE WHEN {kind} IN ({types}) THEN {kind} ELSE {extracted} END)", (path,) * 3

    def _path(self, compiler: Any, connection: Any) -> tuple[str, str]:
        column, _none, keys = self.preprocess_lhs(compiler, connection)
        steps = (f"[{int(key)}]" if _INDEX.fullmatch(key) else f'."{key}"' for key in keys)
        return column, "$" + "".join(steps)


def _argument(found: JobSearch, keys: Sequence[str], value: str) -> Q:
    """``order_id:42``: in the first argument if that is an object, and of the types whose handlers have
    a parameter of that name, in the argument at its place. ``args.1:42`` is the second argument.
    """
    name, *rest = keys
    types: dict[int, list[str]] = {}
    for job_type in registry.types():
        handler = registry.handler_of(job_type)
        if handler is not None and name in handler.parameters:
            types.setdefault(handler.parameters.index(name), []).append(job_type)
    matching = _at(found, "args", ("0", *keys), value)
    if _INDEX.fullmatch(name):
        matching |= _at(found, "args", keys, value)
    for place, those in types.items():
        matching |= Q(type__in=those) & _at(found, "args", (str(place), *rest), value)
    return matching


def _at(found: JobSearch, column: str, keys: Sequence[str], value: str) -> Q:
    """That a JSON column has the value there; numbers match as text too."""
    wanted: list[Any] = [value]
    other = _scalar(value)
    if other is not None:
        wanted.append(other)
    matching = Q()
    # Names as they are, and escaped: not every database reads what JSON text means.
    for path in dict.fromkeys((tuple(keys), tuple(json.dumps(key)[1:-1] for key in keys))):
        # Not by a path of names, in which a key could be the name of a lookup.
        place: Any = F(column)
        for key in path:
            place = _Step(key, place)
        name = f"ojs_place_{len(found.places)}"
        found.places[name] = place
        # Together: the value is then taken out of each row once. A list cannot ask for null.
        matching |= Q(**{f"{name}__in": wanted})
        if value == "null":
            matching |= Q(**{name: None})
    return matching


def _scalar(text: str) -> bool | float | str | None:
    """The number or truth that is written so; no database knows infinite ones."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, (dict, list)) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value  # type: ignore[no-any-return]
