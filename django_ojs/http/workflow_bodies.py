"""The definition of a workflow in a request, in every form that clients send (OJS workflows 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django_ojs.domain.durations import parse_ms, parse_seconds_ms
from django_ojs.domain.envelope import Envelope, from_wire
from django_ojs.domain.errors import InvalidRequest, OJSError
from django_ojs.domain.ids import parse_uuid7
from django_ojs.domain.jsonvalue import MAX_META_BYTES, encode
from django_ojs.domain.reserved import check_meta_keys
from django_ojs.domain.workflow import (
    CALLBACKS,
    MAX_DEPTH,
    MAX_NAME,
    Call,
    Definition,
    Step,
    When,
    WorkflowKind,
    check,
)
from django_ojs.http import option_names

_KINDS = {kind.value: kind for kind in WorkflowKind}
_MEMBERS = ("steps", "jobs")
_NESTED = (*_MEMBERS, "callbacks")
_OF_STEPS = frozenset({"id", "depends_on", "when", "callback_type"})
KNOWN = frozenset(
    {*_NESTED, "type", "id", "name", "options", "meta", "metadata", "state", "specversion"}
    | {"workflow_timeout", "workflow_timeout_ms"}
)
"""What a workflow may have; ``metadata`` and ``state`` are of answers."""
Parse = Callable[[Mapping[str, Any], str], Envelope]
"""Makes an envelope of the body of a job, for the caller of the request; and where it stands."""


def definition_of(body: Mapping[str, Any], parse: Parse, *, now: datetime) -> Definition:
    """The workflow that a request asks for. Raises :class:`InvalidRequest` naming the place."""
    try:
        made = _Reader(parse, now).workflow(body, "", {}, 1)
        check(made)
    except InvalidRequest as error:
        found = [{"path": error.details.get("field", ""), "message": error.message}]
        error.details = {**error.details, "validation_errors": found}
        raise
    return made


class _Reader:
    def __init__(self, parse: Parse, now: datetime) -> None:
        self._parse = parse
        self._now = now

    def workflow(
        self, body: Mapping[str, Any], path: str, defaults: Mapping[str, Any], depth: int
    ) -> Definition:
        if depth > MAX_DEPTH:
            raise InvalidRequest(path, f"must not be nested deeper than {MAX_DEPTH} workflows")
        kind = body.get("type")
        if kind is not None and (not isinstance(kind, str) or kind not in _KINDS):
            raise InvalidRequest(_join(path, "type"), f"must be one of {', '.join(_KINDS)}")
        own = self._options(body, path)
        options = {**_left_out(defaults, own), **own, **_meta_below(own, defaults)}
        name = body.get("name")
        if name is not None and not _is_name(name):
            rule = f"must be a string of at most {MAX_NAME} printable characters"
            raise InvalidRequest(_join(path, "name"), rule)
        field = "jobs" if body.get("steps") is None and body.get("jobs") is not None else "steps"
        items = body.get(field)
        if not isinstance(items, list) or not items:
            raise InvalidRequest(_join(path, field), "must be an array of at least one step")
        if not all(isinstance(item, Mapping) for item in items):
            raise InvalidRequest(_join(path, field), "must hold objects")
        place = _join(path, field)
        members, late = _split(items, kind)
        keys = _keys(members, place)
        steps = [self._step(item, f"{place}[{index}]", options, keys, depth) for index, item in members]
        callbacks = {name: self._call(item, f"{place}[{index}]", options) for name, index, item in late}
        callbacks |= self._callbacks(body, path, options)
        chosen, steps = _shaped(kind, steps, bool(callbacks), place)
        return Definition(
            chosen,
            steps,
            callbacks,
            name=name or "",
            timeout_ms=_timeout(body, path),
            id=parse_uuid7(body["id"], "id") if depth == 1 and body.get("id") is not None else None,
            meta=_meta(body, path),
        )

    def _options(self, body: Mapping[str, Any], path: str) -> Mapping[str, Any]:
        """The options of a workflow, checked once, and not again for every job."""
        own = _object(body, "options", path)
        if own:
            try:
                from_wire({"type": "job", "args": [], "options": own}, now=self._now)
            except InvalidRequest as error:
                raise InvalidRequest(_join(path, error.field), error.rule) from None
        return own

    def _callbacks(
        self, body: Mapping[str, Any], path: str, options: Mapping[str, Any]
    ) -> dict[str, Call]:
        found = {}
        for name, item in _object(body, "callbacks", path).items():
            place = _join(path, f"callbacks.{name[:80]}")
            if name not in CALLBACKS:
                raise InvalidRequest(place, f"is none of {', '.join(CALLBACKS)}")
            if item is not None:
                if not isinstance(item, Mapping):
                    raise InvalidRequest(place, "must be an object")
                found[name] = self._call(item, place, options)
        return found

    def _step(
        self,
        item: Mapping[str, Any],
        place: str,
        options: Mapping[str, Any],
        keys: Mapping[str, int],
        depth: int,
    ) -> Step:
        what: Call | Definition
        if any(item.get(name) is not None for name in _NESTED):
            what = self.workflow(item, place, options, depth + 1)
        else:
            what = self._call(item, place, options)
        return Step(what, _key(item), _depends(item, place, keys), _when(item, place))

    def _call(self, item: Mapping[str, Any], place: str, defaults: Mapping[str, Any]) -> Call:
        given = _object(item, "options", place)
        plain = {key: value for key, value in item.items() if key not in _OF_STEPS}
        own = {key: value for key, value in given.items() if value is not None and key not in _OF_STEPS}
        options = {**_left_out(defaults, plain, own), **own}
        meta = _meta_below(plain, defaults)
        try:
            envelope = self._parse({**plain, **meta, "options": options}, place)
        except InvalidRequest as error:
            error.details = {**error.details, "field": _join(place, error.field)}
            error.message = f"{place}: {error.message}"
            raise
        except OJSError as error:
            error.message = f"{place}: {error.message}"
            raise
        start = envelope.scheduled_at
        if start is None or envelope.scheduled_text is not None:
            return Call(envelope)
        # A time from now counts from when the step is enqueued.
        delay_ms = (start - self._now) // timedelta(milliseconds=1)
        return Call(envelope._replace(scheduled_at=None), max(0, delay_ms))


def _left_out(defaults: Mapping[str, Any], *given: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of options that a job does not have by any of their names; not its meta."""
    known = [name for place in given for name in place if place[name] is not None]
    return option_names.without(defaults, [*known, "meta"])


def _meta_below(own: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """``metadata``, which ``meta`` wins over, with the meta of the defaults below what is there."""
    lowest, above = defaults.get("metadata") or {}, defaults.get("meta") or {}
    given = own.get("metadata")
    if not (lowest or above) or not isinstance(given, (Mapping, type(None))):
        return {}
    return {"metadata": {**lowest, **above, **(given or {})}}


def _split(
    items: Sequence[Mapping[str, Any]], kind: str | None
) -> tuple[list[tuple[int, Mapping[str, Any]]], list[tuple[str, int, Mapping[str, Any]]]]:
    """Members, and callbacks that are written as steps behind all others."""
    members: list[tuple[int, Mapping[str, Any]]] = []
    late: list[tuple[str, int, Mapping[str, Any]]] = []
    for index, item in enumerate(items):
        name = _callback_name(item)
        if name is not None and item.get("depends_on") and kind in (None, WorkflowKind.BATCH):
            late.append((name, index, item))
        else:
            members.append((index, item))
    return (members, late) if members else (list(enumerate(items)), [])


def _callback_name(item: Mapping[str, Any]) -> str | None:
    options = item.get("options")
    given = options.get("callback_type") if isinstance(options, Mapping) else None
    for name in (given, item.get("callback_type"), item.get("id")):
        if isinstance(name, str) and name.replace("-", "_") in CALLBACKS:
            return name.replace("-", "_")
    return None


def _key(item: Mapping[str, Any]) -> str:
    key = item.get("id")
    return "" if key is None else str(key)


def _keys(members: Sequence[tuple[int, Mapping[str, Any]]], place: str) -> dict[str, int]:
    keys: dict[str, int] = {}
    for position, (index, item) in enumerate(members):
        # What a step without an id is called in answers.
        key = f"step-{position}" if item.get("id") is None else item["id"]
        if not key or not _is_name(key):
            raise InvalidRequest(f"{place}[{index}].id", "must be a string of 1 to 255 characters")
        if key in keys:
            raise InvalidRequest(f"{place}[{index}].id", f"is the id of another step too: {key!r}")
        keys[key] = position
    return keys


def _is_name(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MAX_NAME and all(map(str.isprintable, value))


def _depends(item: Mapping[str, Any], place: str, keys: Mapping[str, int]) -> tuple[int, ...]:
    names = item.get("depends_on")
    if names is None:
        return ()
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidRequest(f"{place}.depends_on", "must be an array of ids of steps")
    for name in names:
        if name not in keys:
            raise InvalidRequest(f"{place}.depends_on", f"names no step: {name[:100]!r}")
    return tuple(dict.fromkeys(keys[name] for name in names))


def _when(item: Mapping[str, Any], place: str) -> When:
    options = item.get("options")
    inside = options.get("when") if isinstance(options, Mapping) else None
    when = inside if item.get("when") is None else item["when"]
    if when is None:
        return When.COMPLETED
    if not isinstance(when, str) or when not in list(When):
        raise InvalidRequest(f"{place}.when", f"must be one of {', '.join(When)}")
    return When(when)


def _shaped(
    kind: str | None, steps: list[Step], has_callbacks: bool, place: str
) -> tuple[WorkflowKind, list[Step]]:
    """The kind that was named, or the one that the dependencies make; a chain's steps get theirs."""
    depends = any(step.depends_on for step in steps)
    in_line = all(
        step.depends_on == ((index - 1,) if index else ()) for index, step in enumerate(steps)
    )
    if kind == WorkflowKind.CHAIN and depends and not in_line:
        raise InvalidRequest(place, "must be in the order in which they depend on each other")
    if kind in (WorkflowKind.GROUP, WorkflowKind.BATCH) and depends:
        raise InvalidRequest(place, f"must not depend on each other in a {kind}")
    if kind is None:
        if depends or (len(steps) == 1 and not has_callbacks):
            kind = WorkflowKind.CHAIN if in_line else WorkflowKind.DAG
        else:
            kind = WorkflowKind.BATCH if has_callbacks else WorkflowKind.GROUP
    if kind == WorkflowKind.CHAIN:
        steps = [
            replace(step, depends_on=(index - 1,) if index else ()) for index, step in enumerate(steps)
        ]
    return WorkflowKind(kind), steps


def _timeout(body: Mapping[str, Any], path: str) -> int | None:
    if body.get("workflow_timeout_ms") is not None:
        field = _join(path, "workflow_timeout_ms")
        return parse_ms(body["workflow_timeout_ms"], field)
    if body.get("workflow_timeout") is not None:
        return parse_seconds_ms(body["workflow_timeout"], _join(path, "workflow_timeout"))
    return None


def _meta(body: Mapping[str, Any], path: str) -> dict[str, Any]:
    meta = dict(_object(body, "meta", path))
    check_meta_keys(meta, _join(path, "meta"))
    encode(meta, _join(path, "meta"), max_bytes=MAX_META_BYTES)
    return meta


def _object(body: Mapping[str, Any], name: str, path: str) -> Mapping[str, Any]:
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidRequest(_join(path, name), "must be an object")
    return value


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
