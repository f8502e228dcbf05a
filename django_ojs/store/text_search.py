"""Conditions on the text of JSON columns: no database has an index for them, and they read each row."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from django.db.models import BooleanField, F, Func

from django_ojs.engines import EngineFamily, family_of

_SQL = tuple[str, Sequence[str]]
_REST_OF_STRING = r'(?:\\.|[^"\\])*"'
_SCALAR = rf'(?:"{_REST_OF_STRING}|[^\s,"\[\]{{}}]+)'


_CAUSE = ("details", "cause")
_PLACES = (("type",), ("message",), (*_CAUSE, "type"), (*_CAUSE, "message"))
"""Where an error has words for people."""


class _Words(NamedTuple):
    """How a family of databases says it; the patterns do not heed the case of letters."""

    text: str
    size: str
    like: str
    matches: str
    part: str
    """The text at a place in a JSON value."""
    step: str
    """What is between the names of a place."""
    glue: str
    """How texts are put together."""
    without: str = ""
    """A text without what matches; empty where there is no such function."""
    ignoring: str = "(?i)"
    """How a regular expression begins."""


_WORDS: Mapping[EngineFamily, _Words] = {
    EngineFamily.POSTGRESQL: _Words(
        text="({})::text",
        # As it is stored: what is large is not read for its size.
        size="pg_column_size({})",
        like="{} ILIKE %s",
        matches="{} ~* %s",
        part="{} #>> '{{{}}}'",
        step=",",
        glue="({})",
        without="regexp_replace({}, %s, '', 'gi')",
        ignoring="",
    ),
    EngineFamily.MYSQL: _Words(
        text="CAST({} AS CHAR) COLLATE utf8mb4_general_ci",
        size="LENGTH({})",
        like="{} LIKE %s",
        matches="{} REGEXP %s",
        part="JSON_UNQUOTE(JSON_EXTRACT({}, '$.{}'))",
        step=".",
        # Where || is OR.
        glue="CONCAT({}) COLLATE utf8mb4_general_ci",
        without="REGEXP_REPLACE({}, %s, '')",
    ),
    EngineFamily.SQLITE: _Words(
        text="{}",
        size="LENGTH({})",
        like="{} LIKE %s ESCAPE '\\'",
        matches="{} REGEXP %s",
        part="JSON_EXTRACT({}, '$.{}')",
        step=".",
        glue="({})",
    ),
}


class _Condition(Func):
    """A condition on one column."""

    output_field = BooleanField()

    def _column(self, compiler: Any) -> str:
        """The column as SQL; one of a table has no parameters."""
        (source,) = self.get_source_expressions()
        return str(compiler.compile(source)[0])


class TextInJSON(_Condition):
    """That a JSON column has a text in it, whatever the case of its letters.

    Not where the column is larger than ``most`` bytes, as it is stored. What is under a key with one of
    the words ``without`` in its name does not count: it could be guessed by searching for it.
    """

    def __init__(self, column: str, text: str, *, most: int, without: Sequence[str] = ()) -> None:
        super().__init__(F(column))
        self.text, self.most, self.without = text, most, tuple(without)

    def as_sql(self, compiler: Any, connection: Any, *_given: Any, **_context: Any) -> Any:
        """The condition: by the size, then by the text, and only what has it is looked at for keys."""
        family, column = family_of(connection), self._column(compiler)
        words = _WORDS[family]
        text = words.text.format(column)
        patterns = [_pattern(spelling) for spelling in _spellings([self.text], family)]
        found, parameters = _has(text, patterns, words)
        shown = "1 = 1"
        if names := "|".join(sorted(map(re.escape, _spellings(self.without, family)))):
            beside, more = self._beside(column, text, patterns, names, words)
            shown = f"CASE WHEN {words.matches.format(text)} THEN {beside} ELSE 1 = 1 END"
            parameters = [*parameters, _key(names, words), *more]
        size = words.size.format(column)
        found = f"CASE WHEN {found} THEN {shown} ELSE 1 = 0 END"
        return f"(CASE WHEN {size} <= {self.most} THEN {found} ELSE 1 = 0 END)", parameters

    def _beside(
        self, column: str, text: str, patterns: Sequence[str], names: str, words: _Words
    ) -> _SQL:
        """That the text is somewhere else than under these keys. Where expressions have to do, not in a
        value that has an object or a list under one of them.
        """
        if not words.without:
            value = words.like.format("CAST(ojs_value.atom AS TEXT)")
            hidden = words.matches.format("ojs_value.fullkey")
            statement = f"SELECT 1 FROM JSON_TREE({column}) ojs_value WHERE {value} AND NOT ({hidden})"
            return f"EXISTS ({statement})", [_pattern(self.text), f"{words.ignoring}{names}"]
        key = _key(names, words)
        pair = rf"{key}\s*{_SCALAR}"
        rest = words.without.format(text)
        found, parameters = _has(rest, patterns, words)
        before = [part for pattern in parameters for part in (pair, pattern)]
        return f"{found} AND NOT ({words.matches.format(rest)})", [*before, pair, key]


class TextInError(_Condition):
    """That a stored error, or what caused it, has a text in its type or message."""

    def __init__(self, column: str, text: str) -> None:
        super().__init__(F(column))
        self.text = text

    def as_sql(self, compiler: Any, connection: Any, *_given: Any, **_context: Any) -> Any:
        """The condition; what is taken out of JSON has no escapes."""
        family, column = family_of(connection), self._column(compiler)
        words = _WORDS[family]
        parts = [words.part.format(column, words.step.join(place)) for place in _PLACES]
        between = ", ' ', " if family is EngineFamily.MYSQL else " || ' ' || "
        joined = words.glue.format(between.join(f"COALESCE({part}, '')" for part in parts))
        return f"({column} IS NOT NULL AND {words.like.format(joined)})", [_pattern(self.text)]


def _has(text: str, patterns: Sequence[str], words: _Words) -> tuple[str, list[str]]:
    """That a text matches one of these patterns."""
    return f"({' OR '.join([words.like.format(text)] * len(patterns))})", [*patterns]


def _pattern(text: str) -> str:
    """What LIKE finds a text by."""
    return "%" + re.sub(r"([\\%_])", r"\\\1", text) + "%"


def _spellings(texts: Iterable[str], family: EngineFamily) -> list[str]:
    """How JSON has these texts: some databases keep the escapes with which it was written."""
    found = []
    for text in texts:
        found.append(json.dumps(text, ensure_ascii=False)[1:-1])
        if family is not EngineFamily.POSTGRESQL and not text.isascii():
            found += [json.dumps(case)[1:-1] for case in (text, text.lower(), text.upper())]
    return list(dict.fromkeys(found))


def _key(names: str, words: _Words) -> str:
    """The regular expression of a key with one of these in its name, from there on."""
    return rf"{words.ignoring}(?:{names}){_REST_OF_STRING}\s*:"
