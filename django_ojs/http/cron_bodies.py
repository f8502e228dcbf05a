"""A schedule in a request, in every form that clients send (OJS cron 2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django_ojs.domain import schedule
from django_ojs.domain.envelope import Envelope
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.schedule import ScheduleSpec
from django_ojs.http import option_names

_EXPRESSION = ("expression", "cron", "schedule")
_OF_JOB = ("type", "args", "meta", "metadata", "options")
_TEMPLATE = "job_template"
_ALIASES: Mapping[str, tuple[str, ...]] = {
    "scheduled_at": ("delay_until", "scheduled_at"),
    "retry": ("retry", "retry_policy"),
    "meta": ("meta", "metadata"),
}
"""Fields of a job by the names that they have on the wire; the first that is there is meant."""
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "timezone": ("timezone",),
    "overlap": ("overlap_policy", "overlap"),
    "catch_up": ("catch_up",),
    "catch_up_within": ("catch_up_within",),
    "jitter": ("jitter",),
    "enabled": ("enabled",),
    "starts_at": ("starts_at",),
    "ends_at": ("ends_at",),
    "description": ("description",),
}
"""The options of a schedule, by the names that they have on the wire, which the first of them is."""
KNOWN = frozenset(
    {"name", "specversion", "reason", _TEMPLATE, *_EXPRESSION, *_OF_JOB}
    | {name for names in _OPTIONS.values() for name in names}
)
"""What the body of a schedule may have."""
Parse = Callable[[Mapping[str, Any]], Envelope]
"""Makes an envelope of the body of a job, for the caller of the request."""


def spec_of(body: Mapping[str, Any], parse: Parse) -> ScheduleSpec:
    """The schedule that a request asks for; the fields of ``job_template`` win over flat ones.

    Raises :class:`InvalidRequest` naming the field as the client wrote it.
    """
    template = _template(body)
    flat = {name: body[name] for name in _OF_JOB if body.get(name) is not None}
    given = {"args": [], **flat, **{k: v for k, v in template.items() if v is not None}}
    try:
        envelope = parse(given)
    except InvalidRequest as error:
        written = _written(error.field, given, template)
        error.details = {**error.details, "field": written}
        error.message = f"{written}{error.message.removeprefix(error.field)}"
        raise
    field, expression = _first(body, _EXPRESSION)
    if expression is None:
        raise InvalidRequest("expression", "is required")
    if body.get("name") is None:
        raise InvalidRequest("name", "is required")
    options = {name: _first(body, names)[1] for name, names in _OPTIONS.items()}
    try:
        return schedule.make(body["name"], expression, envelope, options)
    except InvalidRequest as error:
        named = {"expression": field, "schedule": field}
        named |= {name: _first(body, names)[0] for name, names in _OPTIONS.items()}
        named |= {name: _written(name, given, template) for name in schedule.NOT_REPEATED}
        raise InvalidRequest(named.get(error.field, error.field), error.rule) from None


def _template(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """What ``job_template`` has, if it is there. Raises :class:`InvalidRequest` if it is no object."""
    template = body.get(_TEMPLATE)
    if template is not None and not isinstance(template, Mapping):
        raise InvalidRequest(_TEMPLATE, "must be an object")
    return template or {}


def _written(field: str, given: Mapping[str, Any], template: Mapping[str, Any]) -> str:
    """Where the client wrote a field of the job: in its options or not, in the template or flat."""
    name = _top(field)
    options = given.get("options")
    inside = options if isinstance(options, Mapping) else {}
    for prefix, place in (("options.", inside), ("", given)):
        for alias in _ALIASES.get(name, (name,)):
            if place.get(alias) is not None:
                path = prefix + alias + field.removeprefix(name)
                return f"{_TEMPLATE}.{path}" if _top(path) in template else path
    return field


def _top(path: str) -> str:
    return path.partition(".")[0].partition("[")[0]


def merged(known: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    """The schedule that is there, as we show it, with what a request changes in its own spelling."""
    replaced = {
        name
        for names in (_EXPRESSION, *_OPTIONS.values())
        for name in names
        if any(one in body for one in names)
    }
    changes = {**_template(body), **{name: body[name] for name in _OF_JOB if name in body}}
    template = _changed(known[_TEMPLATE], changes)
    kept = {name: known[name] for name in KNOWN if name in known and name not in replaced}
    kept = {name: value for name, value in kept.items() if name not in _OF_JOB}
    return {**kept, **{k: v for k, v in body.items() if k not in _OF_JOB}, _TEMPLATE: template}


def _changed(template: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The request for the jobs with its changes: what they name goes, wherever it was and whichever
    name it had. Options that are no object, such as ``null``, stand for all of them.
    """
    options = changes.get("options", {})
    if not isinstance(options, Mapping):
        return {**option_names.without(template, changes), **changes}
    named = [*changes, *options]
    options = {**option_names.without(template["options"], named), **options}
    return {**option_names.without(template, named), **changes, "options": options}


def _first(body: Mapping[str, Any], names: tuple[str, ...]) -> tuple[str, Any]:
    for name in names:
        if body.get(name) is not None:
            return name, body[name]
    return names[0], None
