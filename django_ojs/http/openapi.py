"""The OpenAPI document, from the routes that are registered; needs ``drf-spectacular``.

Nothing imports this module while requests are served. It needs no place in ``INSTALLED_APPS``, and
the project's ``SPECTACULAR_SETTINGS`` change nothing. To write the document anew::

    python manage.py shell -c "from django_ojs.http import openapi; print(openapi.dump(), end='')"
"""

from __future__ import annotations

import inspect
import json
import re
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from django.urls import get_resolver
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.settings import SPECTACULAR_DEFAULTS, patched_settings
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse

from django_ojs.http import media, routing
from django_ojs.http import serializers as s
from django_ojs.http.base import OPEN
from django_ojs.http.listing import MAX_LIMIT, MAX_OFFSET
from django_ojs.http.problems import PROBLEMS

Kind = type[s.Shape]

_ROOT = f"/{routing.BASE}"
_TEXT = {"type": "string"}


def _whole(least: int, most: int | None = None) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, **({} if most is None else {"maximum": most})}


_PAGE: Mapping[str, tuple[Any, str]] = {
    "limit": (_whole(1), f"How many; more than {MAX_LIMIT} is lowered to it. Also `per_page`."),
    "offset": (_whole(0, MAX_OFFSET), "How many to skip; beyond the limit follow `next_cursor`."),
    "page": (_whole(1), "Instead of `offset`, with `per_page`."),
    "per_page": (_whole(1), "With `page`."),
}
_CURSOR: Mapping[str, tuple[Any, str]] = {"cursor": (_TEXT, "`next_cursor` of an earlier page.")}
_LIST: Mapping[str, tuple[Any, str]] = {**_PAGE, **_CURSOR}
_JOBS: Mapping[str, tuple[Any, str]] = {
    **_LIST,
    "state": (_TEXT, "One or more, with commas."),
    "queue": (_TEXT, "One or more, with commas."),
    "type": (_TEXT, "One or more, with commas; may end in `.*`."),
    "worker_id": (_TEXT, "Who runs it."),
    "error_type": (_TEXT, "Type of the last error."),
    "dead_letter": ({"type": "string", "enum": ["true", "false"]}, "Whether it is kept there."),
    "since": (_TEXT, "Made at or after this time: RFC 3339."),
    "until": (_TEXT, "Made before this time: RFC 3339."),
    "order": ({"type": "string", "enum": ["desc", "asc"]}, "Newest first, or oldest first."),
    "sort": ({"type": "string", "enum": ["created_at"]}, "The only order that there is."),
}
_WAIT: Mapping[str, tuple[Any, str]] = {
    "wait": ({"type": "string", "enum": ["true", "false"]}, "Until the job has ended."),
    "timeout": (_whole(1), "Seconds to wait; 30 at most, and by default. Then 408."),
}
_DEAD = {name: _JOBS[name] for name in (*_LIST, "queue", "type", "error_type")}
_KINDS: Mapping[str, tuple[Any, str]] = {
    "types": (_TEXT, "Kinds of events, with commas; may end in `*`. Also `type`."),
    "queues": (_TEXT, "With commas. Also `queue`."),
    "job_id": (_TEXT, "Events of this job only."),
    "after": (_TEXT, "The id of the last event that is known."),
}
_EVENTS: Mapping[str, tuple[Any, str]] = {
    **_KINDS,
    "limit": _PAGE["limit"],
    "cursor": (_TEXT, "The same as `after`."),
    "since": (_TEXT, "RFC 3339; without `after`."),
}
_WHOSE: Mapping[str, tuple[Any, str]] = {
    "client": (
        _TEXT,
        "Whose worker, as in the list; empty for one of the project. Without: the caller's own, or the"
        " only one of that name. 409 where there are several.",
    ),
}
_CHANNEL = (_TEXT, "`all`, `job:<id>` or `queue:<name>`.")
_LEASE = "`lease.id` of the fetch, instead of `lease_id` in the body."
_PARAMETERS: Mapping[str, tuple[Any, str]] = {
    "job_id": ({"type": "string", "format": "uuid"}, "The id of a job."),
    "worker_id": (_TEXT, "The id of a worker."),
    "name": (_TEXT, "The name of a queue."),
    "type": (_TEXT, "A job type."),
    "version": (_whole(1, 2**31 - 1), "Of the schema."),
    "code": ({"type": "string", "enum": list(PROBLEMS)}, "A code of an error."),
}
_DESCRIPTION = """\
The HTTP binding of Open Job Spec 1.0, as django-ojs serves it.

Every error has the envelope `Error`. Objects may have further properties. A trailing slash does not
matter. Bodies may be `application/json` too, and compressed with gzip or deflate. With the header
`OJS-Version` the type of the answer is `application/openjobspec+json; profile="application/json"`,
and `queue` in answers about a queue is its name. `X-Request-Id` comes back with the answer."""
_SCHEME = """\
A token of `manage.py ojs token`. The roles of a requirement are scopes of the token, of which one is
needed; requirements of one operation are alternatives. The session of a staff user will do too."""
_FIXED = ("SERVE_", "DEFAULT_GENERATOR_CLASS")
_SETTINGS: Mapping[str, Any] = {
    **{name: value for name, value in SPECTACULAR_DEFAULTS.items() if not name.startswith(_FIXED)},
    "TITLE": "django-ojs",
    "DESCRIPTION": _DESCRIPTION,
    "VERSION": media.VERSION,
    "OAS_VERSION": "3.1.0",
    "APPEND_COMPONENTS": {
        "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "description": _SCHEME}}
    },
    "COMPONENT_SPLIT_PATCH": False,
    "POSTPROCESSING_HOOKS": [],
    "SCHEMA_PATH_PREFIX": _ROOT,
}


class Operation(NamedTuple):
    """What an action takes and gives, by status; ``None`` is an answer without a body.

    ``in_body`` replaces ``body`` where the path does not say which job is meant.
    """

    answers: Mapping[int, Kind | str | None]
    body: Kind | None = None
    in_body: Kind | None = None
    query: Mapping[str, tuple[Any, str]] = {}
    lease: bool = False


def _ok(
    answer: Kind | str | None, body: Kind | None = None, *, status: int = 200, **more: Any
) -> Operation:
    return Operation({status: answer}, body, **more)


def _less(query: Mapping[str, tuple[Any, str]], name: str) -> Mapping[str, tuple[Any, str]]:
    return {key: value for key, value in query.items() if key != name}


_STREAM = "text/event-stream"
OPERATIONS: Mapping[str, Operation] = {
    "JobViewSet.create": Operation({201: s.JobAnswer, 200: s.JobAnswer}, s.JobRequest),
    "JobViewSet.batch": _ok(s.BatchAnswer, s.BatchRequest, status=201),
    "JobViewSet.list": _ok(s.JobPage, query=_JOBS),
    "JobViewSet.retrieve": _ok(s.JobAnswer),
    "JobViewSet.result": _ok(s.Result, query=_WAIT),
    "JobViewSet.cancel": _ok(s.JobAnswer, s.Reason, query={"reason": (_TEXT, "Why.")}),
    "JobViewSet.activate": _ok(s.JobAnswer, s.Reason),
    "JobViewSet.retry": _ok(s.JobAnswer, s.RetryRequest),
    "JobViewSet.partial_update": _ok(s.JobAnswer, s.JobPatch),
    "JobViewSet.extend": _ok(s.JobAnswer, s.ExtendRequest, lease=True),
    "FlatJobViewSet.retrieve": _ok(s.Job),
    "WorkViewSet.fetch": _ok(s.FetchAnswer, s.FetchRequest),
    "WorkViewSet.ack": _ok(s.Settled, s.JobAckRequest, in_body=s.AckRequest, lease=True),
    "WorkViewSet.nack": _ok(s.Settled, s.JobNackRequest, in_body=s.NackRequest, lease=True),
    "ReportViewSet.ack": _ok(s.AckBatchAnswer, s.AckBatchRequest),
    "WorkViewSet.beat": _ok(s.BeatAnswer, s.BeatRequest),
    "WorkViewSet.register": _ok(s.RegisterAnswer, s.RegisterRequest),
    "WorkViewSet.deregister": _ok(s.Deregistered, s.DeregisterRequest),
    "WorkerViewSet.list": _ok(s.WorkerPage, query=_LIST),
    "WorkerViewSet.retrieve": _ok(s.WorkerAnswer, query=_WHOSE),
    "WorkerViewSet.health": _ok(s.WorkerAnswer, query=_WHOSE),
    "WorkerViewSet.quiet": _ok(s.WorkerAnswer, s.Reason, query=_WHOSE),
    "WorkerViewSet.terminate": _ok(s.WorkerAnswer, s.Reason, query=_WHOSE),
    "WorkerViewSet.resume": _ok(s.WorkerAnswer, s.Reason, query=_WHOSE),
    "WorkerViewSet.destroy": _ok(s.Deregistered, query=_WHOSE),
    "ProgressViewSet.report": _ok(
        s.Progress, s.JobProgressRequest, in_body=s.ProgressRequest, lease=True
    ),
    "ProgressViewSet.retrieve": _ok(s.Progress),
    "CheckpointViewSet.save": _ok(s.Checkpoint, s.CheckpointRequest, lease=True),
    "CheckpointViewSet.retrieve": _ok(s.Checkpoint),
    "CheckpointViewSet.resume": _ok(s.Resume),
    "CheckpointViewSet.destroy": _ok(s.Deleted, lease=True),
    "QueueViewSet.list": _ok(s.QueuePage, query=_LIST),
    "QueueViewSet.create": _ok(s.QueueAnswer, s.QueueRequest, status=201),
    "QueueViewSet.retrieve": _ok(s.QueueAnswer),
    "QueueViewSet.stats": _ok(s.QueueStats),
    "QueueViewSet.pause": _ok(s.QueueAnswer, s.Reason),
    "QueueViewSet.resume": _ok(s.QueueAnswer, s.Reason),
    "DeadLetterViewSet.list": _ok(s.JobPage, query=_DEAD),
    "DeadLetterViewSet.stats": _ok(s.DeadLetterStats),
    "DeadLetterViewSet.retrieve": _ok(s.JobAnswer),
    "DeadLetterViewSet.retry": _ok(s.JobAnswer, s.RetryRequest),
    "DeadLetterViewSet.destroy": _ok(s.Deleted),
    "BareDeadLetterViewSet.destroy": _ok(None, status=204),
    "EventViewSet.list": _ok(s.EventPage, query=_EVENTS),
    "EventViewSet.stream": _ok(_STREAM, query={"channel": _CHANNEL, **_KINDS}),
    "EventViewSet.of_job": _ok(_STREAM, query=_less(_KINDS, "job_id")),
    "EventViewSet.of_queue": _ok(_STREAM, query=_less(_KINDS, "queues")),
    "SystemViewSet.health": Operation({200: s.Health, 503: s.Health}),
    "SystemViewSet.ready": Operation({200: s.Ready, 503: s.Ready}),
    "SystemViewSet.manifest": _ok(s.Manifest),
    "SystemViewSet.problem": _ok(s.Problem),
    "SystemViewSet.stats": _ok(s.Stats),
    "SchemaViewSet.list": _ok(s.SchemaPage, query=_LIST),
    "SchemaViewSet.latest": _ok(s.Schema),
    "SchemaViewSet.versions": _ok(s.SchemaVersions),
    "SchemaViewSet.retrieve": _ok(s.Schema),
    "SchemaViewSet.update": Operation({201: s.SchemaStored, 200: s.SchemaStored}, s.SchemaRequest),
    "SchemaViewSet.destroy": _ok(s.SchemaDeleted),
}
"""By viewset and action; by names, because extensions are not to be imported from here."""


def document() -> dict[str, Any]:
    """The document of what this project serves."""
    # Loading the URL conf registers the slices.
    assert get_resolver().url_patterns
    with patched_settings(dict(_SETTINGS)):
        generator: Any = _Generator(routing.plain_patterns())
        made = generator.get_schema(public=True)
    # What is lazy or ordered becomes plain JSON.
    found: dict[str, Any] = json.loads(json.dumps(made, default=str))
    return found


def dump() -> str:
    """The document as text, always in the same order."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


class _Schema(AutoSchema):
    """One operation, from the table and from the viewset."""

    view: Any

    def _operation(self) -> Operation:
        for kind in type(self.view).__mro__:
            found = OPERATIONS.get(f"{kind.__name__}.{self.view.action}")
            if found is not None:
                return found
        return Operation({200: None})

    def _route(self) -> tuple[str, Sequence[str]]:
        """The slice and the aliases of the path."""
        for part in routing.slices():
            for route in part.routes:
                if _absolute(route.path) == self.path:
                    return part.name, [_absolute(alias) for alias in route.aliases]
        raise LookupError(self.path)

    def get_operation_id(self) -> str:
        """Method and path, in words."""
        words = re.findall(r"\w+", self.path.removeprefix(_ROOT).replace("-", "_"))
        return "_".join([self.method.lower(), *words])

    def get_tags(self) -> list[str]:
        """The slice."""
        return [self._route()[0]]

    def get_summary(self) -> str:
        """The docstring of the action, up to its first pause."""
        return re.split(r"[.:;](?:\s|$)", self._doc())[0]

    def get_description(self) -> str:  # type: ignore[override]
        """The docstring of the action, who may, and where else it is."""
        needed = self._scopes()
        who = "For everybody." if OPEN in needed else f"Scope: {_either(needed)}."
        aliases = self._route()[1]
        also = f"\n\nAlso at {_either(aliases, 'and')}." if aliases else ""
        return f"{self._doc()}\n\n{who}{also}"

    def _doc(self) -> str:
        action = getattr(self.view, self.view.action)
        return " ".join((inspect.getdoc(action) or "").replace("``", "`").split())

    def _scopes(self) -> Sequence[str]:
        scopes: Sequence[str] = self.view.scopes[self.view.action]
        return scopes

    def get_auth(self) -> list[dict[str, list[str]]]:
        """Alternatives, because one scope is enough."""
        needed = self._scopes()
        return [{}] if OPEN in needed else [{"bearer": [scope]} for scope in needed]

    def get_override_parameters(self) -> list[Any]:
        """Path, query and the lease."""
        operation = self._operation()
        found = [
            OpenApiParameter(name, schema, "path", description=text)
            for name in re.findall(r"{(\w+)}", self.path)
            for schema, text in [_PARAMETERS.get(name, (_TEXT, ""))]
        ]
        # A body says why, where there is one.
        query = {} if self.method != "DELETE" and operation.body is s.Reason else operation.query
        found += [
            OpenApiParameter(name, schema, "query", description=text)
            for name, (schema, text) in query.items()
        ]
        if operation.lease:
            found.append(OpenApiParameter("OJS-Lease", OpenApiTypes.UUID, "header", description=_LEASE))
        return found

    def get_request_serializer(self) -> Any:
        """The body."""
        operation = self._operation()
        if operation.in_body is not None and "{" not in self.path:
            return operation.in_body
        return operation.body

    def _get_request_body(self, direction: str = "request") -> Any:
        kind = self.get_request_serializer()
        made: Any = None if kind is None else super()._get_request_body(direction)  # type: ignore[no-untyped-call]
        # Even an empty body is one, but where nothing in it is needed.
        return {**made, "required": True} if made and (kind.needed or kind.either) else made

    def get_response_serializers(self) -> Any:
        """The answers, and the envelope of errors for every other status."""
        answers: dict[Any, Any] = {}
        for status, answer in self._operation().answers.items():
            if answer == _STREAM:
                response = OpenApiResponse(OpenApiTypes.STR, "Server-sent events.")
                answers[(status, _STREAM)] = response
            else:
                answers[status] = OpenApiResponse(answer, _answer_text(answer, status))
        answers["default"] = OpenApiResponse(s.Error, "An error.")
        return answers

    def _is_list_view(self, serializer: Any = None) -> bool:
        # Lists are objects with pages in them.
        return False

    def map_parsers(self) -> list[str]:
        """What a body may be."""
        return [media.OJS, "application/json"]

    def map_renderers(self, attribute: str) -> list[str]:
        """What an answer is."""
        return [media.OJS]

    def _map_serializer_field(self, field: Any, direction: str, bypass_extensions: bool = False) -> Any:
        if isinstance(field, s.Raw):
            return dict(field.schema)
        return super()._map_serializer_field(field, direction, bypass_extensions)  # type: ignore[no-untyped-call]

    def _map_basic_serializer(self, serializer: Any, direction: str) -> Any:
        schema = super()._map_basic_serializer(serializer, direction)  # type: ignore[no-untyped-call]
        if "description" in schema:
            schema["description"] = " ".join(schema["description"].replace("``", "`").split())
        if serializer.either:
            schema["anyOf"] = [{"required": [name]} for name in serializer.either]
        return {**schema, "additionalProperties": True}


class _Generator(SchemaGenerator):
    """Gives every view a schema of ours, so that the views need not know of any."""

    def __init__(self, patterns: Iterable[Any]) -> None:
        super().__init__(patterns=list(patterns))  # type: ignore[no-untyped-call]
        self._kept: list[_Schema] = []

    def create_view(self, callback: Any, method: str, request: Any = None) -> Any:
        """The view, with its schema."""
        view = super().create_view(callback, method, request)  # type: ignore[no-untyped-call]
        schema = _Schema()
        self._kept.append(schema)
        view.schema = weakref.proxy(schema)
        return view


def _absolute(path: str) -> str:
    return path if path.startswith("/") else _ROOT + path


def _either(words: Sequence[str], last: str = "or") -> str:
    quoted = [f"`{word}`" for word in words]
    head, tail = quoted[:-1], quoted[-1]
    return f"{', '.join(head)} {last} {tail}" if head else tail


def _answer_text(answer: Any, status: int) -> str:
    if answer is None:
        return "No body." if status == 204 else "An object."
    if status == 503:
        return "The database does not answer."
    text = (inspect.getdoc(answer) or "").replace("``", "`")
    return " ".join(text.split())
