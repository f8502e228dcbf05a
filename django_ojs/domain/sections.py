"""Settings as they are read: a dictionary in which every mistake is named by its full path."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.suggestions import did_you_mean

T = TypeVar("T")


class Section:
    """A dictionary that is being read. What is wrong in it is kept, by its full path, and read as if it
    were not there: the next mistake is looked for too. :meth:`close` refuses what nobody has asked for.
    """

    def __init__(
        self,
        value: object,
        path: str,
        wrong: list[InvalidRequest],
        key_form: str = "{}[{!r}]",
    ) -> None:
        self._path = path
        self.wrong = wrong
        self._key_form = key_form
        self._value = value if isinstance(value, Mapping) else {}
        self._known: set[str] = set()
        if not isinstance(value, Mapping):
            wrong.append(InvalidRequest(path, "must be a dict"))

    @property
    def keys(self) -> Collection[Any]:
        """All keys that are given."""
        return self._value.keys()

    def name(self, key: object) -> str:
        """The full path of a key."""
        return self._key_form.format(self._path, key)

    def refuse(self, key: object, rule: str) -> None:
        """Keep that the value of a key breaks a rule."""
        self.wrong.append(InvalidRequest(self.name(key), rule))

    def read(self, key: str, parse: Callable[[Any, str], T], default: T) -> T:
        """The value of a key as ``parse`` understands it, which gets the path too; ``default`` where
        it is not given, or wrong.
        """
        self._known.add(key)
        if key not in self._value:
            return default
        try:
            return parse(self._value[key], self.name(key))
        except InvalidRequest as error:
            self.wrong.append(error)
            return default

    def section(self, key: str) -> Section:
        """The dictionary below a key, empty where there is none."""
        self._known.add(key)
        return Section(self._value.get(key, {}), self.name(key), self.wrong)

    def close(self) -> None:
        """Refuse the keys that were not asked for."""
        for key in self._value:
            if key not in self._known:
                hint = did_you_mean(str(key), sorted(self._known), "settings")
                self.refuse(key, f"is not a setting: {hint}")


def optional(parse: Callable[[Any, str], T]) -> Callable[[Any, str], T | None]:
    """The same, or ``None``."""
    return lambda item, where: None if item is None else parse(item, where)


def text(item: object, where: str) -> str:
    """A non-empty string."""
    if not isinstance(item, str) or not item:
        raise InvalidRequest(where, "must be a non-empty string")
    return item


def secret(item: object, where: str) -> str | None:
    """A string; an empty one is as ``None``."""
    if item and not isinstance(item, str):
        raise InvalidRequest(where, "must be a string or None")
    return str(item) if item else None


def modules(item: object, where: str) -> tuple[str, ...]:
    """A list of module names, as a tuple."""
    if not isinstance(item, (list, tuple)) or not all(
        isinstance(name, str) and all(part.isidentifier() for part in name.split(".")) for name in item
    ):
        raise InvalidRequest(where, "must be a list of module names")
    return tuple(item)


def flag(item: object, where: str) -> bool:
    """``True`` or ``False``."""
    if not isinstance(item, bool):
        raise InvalidRequest(where, "must be True or False")
    return item


def flag_or(word: str) -> Callable[[Any, str], bool | str]:
    """``True``, ``False`` or this string."""

    def parse(item: object, where: str) -> bool | str:
        if isinstance(item, bool) or (isinstance(item, str) and item == word):
            return item
        raise InvalidRequest(where, f"must be {word!r}, True or False")

    return parse


def choice(*choices: str) -> Callable[[Any, str], str]:
    """One of these strings."""

    def parse(item: object, where: str) -> str:
        if item not in choices:
            raise InvalidRequest(where, f"must be one of {', '.join(choices)}")
        return str(item)

    return parse


def count(least: int) -> Callable[[Any, str], int]:
    """An integer, ``least`` or more."""

    def parse(item: object, where: str) -> int:
        if type(item) is not int or item < least:
            raise InvalidRequest(where, f"must be an integer of at least {least}")
        return item

    return parse


def words(kind: str) -> Callable[[Any, str], tuple[str, ...]]:
    """A list of non-empty strings, which are of this kind, as a tuple."""

    def parse(item: object, where: str) -> tuple[str, ...]:
        if not isinstance(item, (list, tuple)) or not all(isinstance(w, str) and w for w in item):
            raise InvalidRequest(where, f"must be a list of {kind}")
        return tuple(item)

    return parse
