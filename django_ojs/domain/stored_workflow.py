"""Definitions of workflows as JSON: for steps that start later, and to tell requests apart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from django_ojs.domain import stored_envelope
from django_ojs.domain.workflow import Call, Definition, Fan, Step, When, WorkflowKind

_Dump = Callable[[Call], dict[str, Any]]


def dump(what: Call | Definition, call: _Dump = stored_envelope.dump) -> dict[str, Any]:
    """A call, or a workflow, as JSON values; ``call`` makes those of each call."""
    if isinstance(what, Call):
        return call(what)
    return {
        "workflow": what.kind.value,
        "name": what.name,
        "timeout_ms": what.timeout_ms,
        "meta": dict(what.meta),
        "members": [_dump_member(member, call) for member in what.members],
        "callbacks": {name: call(one) for name, one in what.callbacks.items()},
    }


def _dump_member(member: Step | Fan, call: _Dump) -> dict[str, Any]:
    if isinstance(member, Fan):
        return {"fan": call(member.call), "args": list(member.args)}
    return {
        "what": dump(member.what, call),
        "key": member.key,
        "depends_on": list(member.depends_on),
        "when": member.when.value,
    }


def load(values: dict[str, Any]) -> Call | Definition:
    """What :func:`dump` was given; times of its jobs count from when they are enqueued."""
    if "workflow" not in values:
        return stored_envelope.load(values)
    return Definition(
        WorkflowKind(values["workflow"]),
        [_load_member(member) for member in values["members"]],
        {name: stored_envelope.load(call) for name, call in values["callbacks"].items()},
        name=values["name"],
        timeout_ms=values["timeout_ms"],
        meta=values["meta"],
    )


def _load_member(values: dict[str, Any]) -> Step | Fan:
    if "fan" in values:
        return Fan(stored_envelope.load(values["fan"]), values["args"])
    return Step(load(values["what"]), values["key"], tuple(values["depends_on"]), When(values["when"]))


def digest(definition: Definition) -> str:
    """A fingerprint of the request: a repeated request has the same one."""
    text = json.dumps(dump(definition, _as_asked), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _as_asked(call: Call) -> dict[str, Any]:
    """The call with times as the client wrote them: what counts from now is the same tomorrow."""
    values = stored_envelope.dump(call)
    for name in ("scheduled_at", "expires_at"):
        values.pop(name, None)
    return values
