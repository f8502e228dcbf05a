"""A job that is about to be enqueued, as enqueue middleware sees it (OJS middleware 3)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django_ojs.domain.arguments import KWARGS, split
from django_ojs.domain.envelope import Envelope, from_call
from django_ojs.domain.unique import UNIQUE_OPTIONS

_FIELDS: Mapping[str, tuple[str, ...]] = {
    "type": ("type",),
    "args": ("args_json", "meta_json"),
    "kwargs": ("args_json", "meta_json"),
    "queue": ("queue",),
    "priority": ("priority",),
    "meta": ("args_json", "meta_json"),
    "tags": ("tags",),
    "retry": ("retry",),
    "pending": ("pending",),
    "delay": ("scheduled_at", "scheduled_text"),
    "scheduled_at": ("scheduled_at", "scheduled_text"),
    "expires_at": ("expires_at", "expires_text"),
}
"""The fields of an envelope that an option of ``enqueue()`` fills; all others are limits."""


@dataclass(frozen=True, slots=True)
class EnqueueRequest:
    """A job before it is stored: what the client asked for, checked, and the id that it will have.

    Immutable; :meth:`replace` makes a changed one. What the client left out is ``None`` or empty: the
    defaults are filled in after the middleware.
    """

    id: UUID
    envelope: Envelope
    now: datetime

    @property
    def type(self) -> str:
        """The job type."""
        return self.envelope.type

    @property
    def queue(self) -> str | None:
        """The queue that was asked for."""
        return self.envelope.queue

    @property
    def priority(self) -> int | None:
        """The priority that was asked for."""
        return self.envelope.priority

    @property
    def args(self) -> list[Any]:
        """The arguments by position; a new list each time."""
        return self._arguments()[0]

    @property
    def kwargs(self) -> dict[str, Any]:
        """The arguments by keyword; a new dictionary each time."""
        return self._arguments()[1]

    def _arguments(self) -> tuple[list[Any], dict[str, Any]]:
        return split(json.loads(self.envelope.args_json), json.loads(self.envelope.meta_json))

    @property
    def meta(self) -> dict[str, Any]:
        """The meta; a new dictionary each time."""
        meta: dict[str, Any] = json.loads(self.envelope.meta_json)
        return meta

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags."""
        return self.envelope.tags

    @property
    def scheduled_at(self) -> datetime | None:
        """When it is to start, if not at once."""
        return self.envelope.scheduled_at

    @property
    def expires_at(self) -> datetime | None:
        """When it is too late to start it."""
        return self.envelope.expires_at

    def replace(self, **changes: Any) -> EnqueueRequest:
        """The same job with other ``type``, ``args``, ``kwargs`` or options of ``enqueue()``.

        An option that is ``None`` is taken back. Raises :class:`InvalidRequest` for a bad value, and
        ``TypeError`` for an unknown option and for ``id``, which cannot change.
        """
        if "id" in changes:
            raise TypeError("the id of a job cannot be changed")
        before, options = self.envelope, dict(changes)
        job_type = options.pop("type", before.type)
        if changes.keys() & {"args", "kwargs", "meta"}:
            options |= self._called(options)
        made = from_call(job_type, options.pop("args", ()), now=self.now, **options)
        fields: dict[str, Any] = {"limits": made.limits.over(before.limits)}
        for name in changes:
            fields |= {field: getattr(made, field) for field in _FIELDS.get(name, ())}
            if name in UNIQUE_OPTIONS:
                kept = {key: one for key, one in (before.extra or {}).items() if key != "unique"}
                fields["extra"] = {**kept, **(made.extra or {})} or None
            elif name not in _FIELDS and changes[name] is None:
                fields["limits"] = replace(fields["limits"], **{f"{name.removesuffix('_ms')}_ms": None})
        return EnqueueRequest(self.id, before._replace(**fields), self.now)

    def _called(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Arguments and meta after the changes, without losing that some arguments are by keyword."""
        args, kwargs = self._arguments()
        meta = self.meta if "meta" not in changes else dict(changes["meta"] or {})
        args, kwargs = changes.get("args", args), changes.get("kwargs", kwargs) or {}
        # Once marked it stays: other calls of an enqueue_many may share this meta.
        if KWARGS in self.meta and not kwargs and isinstance(args, (list, tuple)):
            args, meta = [*args, {}], {**meta, KWARGS: True}
        elif meta.get(KWARGS) is True:
            del meta[KWARGS]
        return {"args": args, "kwargs": kwargs, "meta": meta}
