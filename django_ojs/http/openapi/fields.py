"""JSON Schemas: what components are made of, and the components that the others share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from django_ojs.domain.states import State

JsonSchema = dict[str, Any]
"""May hold a :class:`Component` wherever a schema may stand: it becomes a reference."""
MOST_MS = 315_619_200_000


class Component:
    """A named schema of the document: an object whose properties are the class attributes.

    Its description is the docstring, its name that of the class, without the suffix ``Component``
    that keeps classes apart from those of the models. ``needed`` are the required properties,
    ``None`` means all of them; of ``either`` one is required. Further properties are allowed.
    """

    needed: ClassVar[frozenset[str] | None] = None
    either: ClassVar[Sequence[str]] = ()


class Body(Component):
    """The body of a request: nothing is required unless a subclass names it."""

    needed = frozenset()


def described(schema: Any, description: str = "") -> JsonSchema:
    """The schema with a description, which a reference cannot have itself."""
    if isinstance(schema, type):
        schema = {"allOf": [schema]}
    return {**schema, **({"description": description} if description else {})}


def text(description: str = "", **constraints: Any) -> JsonSchema:
    return described({"type": "string", **constraints}, description)


def name(description: str = "") -> JsonSchema:
    """A string of at most 255 characters."""
    return {**text(description), "maxLength": 255}


def one_of(*values: str) -> JsonSchema:
    return text(enum=list(values))


def integer(description: str = "", **constraints: int) -> JsonSchema:
    return described({"type": "integer", **constraints}, description)


def count() -> JsonSchema:
    """An integer of at least 0."""
    return integer(minimum=0)


def number() -> JsonSchema:
    """A floating-point number."""
    return {"type": "number", "format": "double"}


def boolean(description: str = "") -> JsonSchema:
    return described({"type": "boolean"}, description)


def anything(description: str = "") -> JsonSchema:
    return described({}, description)


def nullable(kind: str = "string", description: str = "") -> JsonSchema:
    return described({"type": [kind, "null"]}, description)


def mapping(description: str = "", values: Mapping[str, Any] | None = None) -> JsonSchema:
    """An object with any keys, whose values have the schema ``values``."""
    return described({"type": "object", "additionalProperties": dict(values or {})}, description)


def array(items: Any, description: str = "", **constraints: int) -> JsonSchema:
    return {**described({"type": "array", "items": items}, description), **constraints}


def strings(description: str = "") -> JsonSchema:
    return array(text(), description)


def timestamp(description: str = "") -> JsonSchema:
    """A time in RFC 3339."""
    return text(description, format="date-time")


def moment(description: str) -> JsonSchema:
    """A time in RFC 3339, or a duration from now."""
    return text(description, examples=["2030-01-01T00:00:00Z", "PT5M", "+30s"])


def duration(description: str = "Seconds, or a duration.", *, minimum: int = 1) -> JsonSchema:
    """Seconds as an integer, or a duration as text."""
    forms = [integer(minimum=minimum), text(examples=["30s", "PT5M"])]
    return described({"anyOf": forms}, description)


def milliseconds(description: str = "", *, minimum: int = 0) -> JsonSchema:
    """Milliseconds, up to ten years."""
    return integer(description, minimum=minimum, maximum=MOST_MS)


def uuid(description: str = "") -> JsonSchema:
    """A UUID in its canonical form."""
    return text(description, format="uuid")


def queue() -> JsonSchema:
    """The name of a queue (OJS core 5.4)."""
    return text(maxLength=255, pattern=r"^[a-z0-9][a-z0-9_\-.]*$")


def job_type() -> JsonSchema:
    """A job type (OJS core 5.3)."""
    pattern = r"^[a-z][a-z0-9_-]*(\.[a-z][a-z0-9_-]*)*$"
    return text(maxLength=255, pattern=pattern, examples=["report.generate"])


def state() -> JsonSchema:
    return one_of(*map(str, State))


def priority(description: str = "") -> JsonSchema:
    """A priority by number or by name."""
    forms = [integer(minimum=-100, maximum=100), one_of("HIGH", "NORMAL", "LOW")]
    return described({"anyOf": forms}, description)


def directive(description: str = "") -> JsonSchema:
    """What a failure asks to be done with the job (OJS worker protocol)."""
    return described(one_of("RETRY", "DISCARD", "DEAD_LETTER", "FAIL"), description)


class ErrorDetail(Component):
    """What went wrong. ``type`` equals ``code``, ``doc_url`` equals ``docs_url``."""

    code = text()
    type = text()
    message = text()
    retryable = boolean("Whether the same request may work later.")
    details = mapping("`field` names the part of the request that is wrong.")
    request_id = text()
    hint = text()
    docs_url = text()
    doc_url = text()


class Error(Component):
    """The envelope of every error."""

    error = ErrorDetail


class Pagination(Component):
    """Where in a list this page is. The total is counted up to 10,000."""

    needed = frozenset({"total", "limit", "offset", "has_more", "page", "per_page"})
    total = count()
    total_is_capped = boolean()
    limit = integer()
    offset = count()
    has_more = boolean()
    page = integer()
    per_page = integer()
    next_cursor = text("`cursor` of the next page.")


def page(name: str, items: str, item: type[Component]) -> type[Component]:
    """The component ``name``: a page of a list, under two names."""
    listed = array(item)
    doc = f"A page of {items}; ``items`` equals ``{items}``."
    return type(
        name, (Component,), {"__doc__": doc, items: listed, "items": listed, "pagination": Pagination}
    )


class Warned(Component):
    """What was asked for and is not done as asked; `index` is the place in a batch."""

    needed = frozenset({"field", "message"})
    index = integer()
    near = text("What was probably meant.")
    field = text()
    message = text()
