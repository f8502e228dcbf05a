"""What all shapes are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rest_framework import serializers
from rest_framework.serializers import (
    BooleanField,
    CharField,
    DictField,
    IntegerField,
    ListField,
    Serializer,
)

from django_ojs.domain.states import State


class Raw(serializers.Field[Any, Any, Any, Any]):
    """A value by its JSON schema."""

    def __init__(self, schema: Mapping[str, Any], text: str = "") -> None:
        super().__init__(help_text=text or None)
        self.schema = {**schema, "description": text} if text else dict(schema)


class Shape(Serializer[Any]):
    """An object; ``needed`` names the properties that are always there, ``None`` all of them.

    Of ``either`` one is needed.
    """

    needed: ClassVar[frozenset[str] | None] = None
    either: ClassVar[Sequence[str]] = ()

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """The fields, required or not."""
        fields = super().get_fields()
        for name, field in fields.items():
            field.required = self.needed is None or name in self.needed
        return fields


class Request(Shape):
    """A body; everything is optional but what a subclass says."""

    needed = frozenset()


def _text(text: str = "", **schema: Any) -> Raw:
    return Raw({"type": "string", **schema}, text)


def _or_null(kind: str = "string", text: str = "") -> Raw:
    return Raw({"type": [kind, "null"]}, text)


def _count() -> Raw:
    return Raw({"type": "integer", "minimum": 0})


def _when(text: str = "") -> Raw:
    return Raw({"type": "string", "format": "date-time"}, text)


def _duration(text: str = "", *, least: int = 1) -> Raw:
    forms = [{"type": "integer", "minimum": least}, {"type": "string", "examples": ["30s", "PT5M"]}]
    return Raw({"anyOf": forms}, text or "Seconds, or a duration.")


def _ms(text: str = "") -> Raw:
    return Raw({"type": "integer", "minimum": 0, "maximum": 315_619_200_000}, text)


def _more_ms() -> Raw:
    return Raw({"type": "integer", "minimum": 1, "maximum": 315_619_200_000})


def _moment_asked(text: str) -> Raw:
    return _text(text, examples=["2030-01-01T00:00:00Z", "PT5M", "+30s"])


def _object(text: str = "") -> DictField:
    return DictField(help_text=text or None)


def _strings(text: str = "") -> ListField:
    return ListField(child=CharField(), help_text=text or None)


UUID_TEXT: Mapping[str, Any] = {"type": "string", "format": "uuid"}
TYPE = {
    "type": "string",
    "maxLength": 255,
    "pattern": r"^[a-z][a-z0-9_-]*(\.[a-z][a-z0-9_-]*)*$",
    "examples": ["report.generate"],
}
QUEUE = {"type": "string", "maxLength": 255, "pattern": r"^[a-z0-9][a-z0-9_\-.]*$"}
STATE = {"type": "string", "enum": [str(state) for state in State]}
PRIORITY = {
    "anyOf": [
        {"type": "integer", "minimum": -100, "maximum": 100},
        {"type": "string", "enum": ["HIGH", "NORMAL", "LOW"]},
    ]
}


class ErrorDetail(Shape):
    """What went wrong. ``type`` equals ``code``, ``doc_url`` equals ``docs_url``."""

    code = CharField()
    type = CharField()
    message = CharField()
    retryable = BooleanField(help_text="Whether the same request may work later.")
    details = _object("`field` names the part of the request that is wrong.")
    request_id = CharField()
    hint = CharField()
    docs_url = CharField()
    doc_url = CharField()


class Error(Shape):
    """The envelope of every error."""

    error = ErrorDetail()


class Pagination(Shape):
    """Where in a list this page is. The total is counted up to 10,000."""

    needed = frozenset({"total", "limit", "offset", "has_more", "page", "per_page"})
    total = _count()
    total_is_capped = BooleanField()
    limit = IntegerField()
    offset = _count()
    has_more = BooleanField()
    page = IntegerField()
    per_page = IntegerField()
    next_cursor = CharField(help_text="`cursor` of the next page.")


class Warned(Shape):
    """What was asked for and is not done as asked; `index` is the place in a batch."""

    needed = frozenset({"field", "message"})
    index = IntegerField()
    near = CharField(help_text="What was probably meant.")
    field = CharField()
    message = CharField()
