"""Events: polled by cursor, or as a stream of server-sent events (OJS events 8, OJS real-time)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.core import signing
from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.http import HttpResponse, StreamingHttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from django_ojs import clock, conf
from django_ojs.domain import events
from django_ojs.domain.durations import parse_past
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.names import check_queue_name
from django_ojs.http import listing, responses
from django_ojs.http.base import OJSViewSet, missing
from django_ojs.http.limits import STREAMS
from django_ojs.http.principal import Principal
from django_ojs.http.waiting import hung_up
from django_ojs.models import Event
from django_ojs.services import derived, stream, traces
from django_ojs.services.derived import Place
from django_ojs.services.stream import Wanted
from django_ojs.store.sessions import statement_timeout

STREAM_SECONDS = 300.0
HEARTBEAT_SECONDS = 10.0
LOOK_EVERY = 0.5
RECHECK_SECONDS = 5.0
BATCH = 100

_SALT = "django_ojs.events"
_KINDS_ASKED = frozenset({"types", "type", "event_types"})
_QUEUES_ASKED = frozenset({"queues", "queue"})


class EventViewSet(OJSViewSet):
    """Events. ``OJS["EVENTS"]`` says which kinds are stored; streams have those only."""

    scopes = {
        "list": ("inspect",),
        "stream": ("inspect",),
        "of_job": ("inspect",),
        "of_queue": ("inspect",),
    }

    def list(self, request: Request) -> Response:
        """Events in order, behind ``after`` or ``cursor``."""
        known = _KINDS_ASKED | _QUEUES_ASKED | {"job_id", "after", "since"}
        listing.allow(request, known, frozenset({"limit", "cursor"}))
        return self._listed(request, self._wanted(request))

    def _listed(self, request: Request, wanted: Wanted) -> Response:
        query, part = request.query_params, listing.page_request(request)
        after, since = self._asked_after(), query.get("since")
        with statement_timeout(listing.TIME_LIMIT_MS, using=self.using, by_index=True, in_order=True):
            if wanted.job_id is not None:
                found, more = self._history(wanted, after, since, part.limit)
                return Response(_page(part, self._shown(found), more, after))
            if since and not after:
                wanted = replace(wanted, since=self._moment(since))
            place = self._derived_place(after, wanted.since)
            page = derived.read(wanted, after=place, limit=part.limit, using=self.using)
            items = self._shown(page.events)
        if page.events or page.place != place:
            after = _cursor(page)
        return Response(_page(part, items, page.more, after))

    def _shown(self, rows: Sequence[Event]) -> Sequence[responses.JsonObject]:
        return _envelopes(rows, self.using)

    def stream(self, request: Request) -> Any:
        """Server-sent events of ``channel``: ``all``, ``job:<id>`` or ``queue:<name>``."""
        channel = request.query_params.get("channel", "all")
        kind, _, name = channel.partition(":")
        if kind == "job" and name:
            return self._of_job(request, name, "channel")
        if kind == "queue" and name:
            return self._of_queue(request, name, "channel")
        if channel != "all":
            raise InvalidRequest("channel", "must be all, job:<id> or queue:<name>")
        return self._stream(request, "channel", "job_id", *_QUEUES_ASKED)

    def of_job(self, request: Request, job_id: str) -> Any:
        """Server-sent events of one job; its history as a list for those who accept JSON only."""
        if not _wants_json(request):
            return self._of_job(request, job_id)
        listing.allow(request, _KINDS_ASKED | {"after", "since"}, frozenset({"limit", "cursor"}))
        return self._listed(request, replace(self._wanted(request), job_id=self.job(job_id).id))

    def of_queue(self, request: Request, name: str) -> Any:
        """Server-sent events of one queue."""
        return self._of_queue(request, name)

    def _of_job(self, request: Request, job_id: str, *more: str) -> Any:
        return self._stream(request, *more, *_QUEUES_ASKED, job_id=self.job(job_id).id)

    def _of_queue(self, request: Request, name: str, *more: str) -> Any:
        if not self.caller.sees(check_queue_name(name, "queue")):
            raise missing("queue", name)
        return self._stream(request, *more, "job_id", queues=[name])

    def _wanted(self, request: Request) -> Wanted:
        query = request.query_params
        kinds = _words(query, "types", "type", "event_types")
        known = events.kinds() | events.NEVER_EMITTED
        families = {"", *(kind.partition(".")[0] for kind in known)}
        for kind in kinds or ():
            stem = kind.removesuffix("*").removesuffix(".")
            if kind not in known and not (kind.endswith("*") and stem in families):
                raise InvalidRequest("types", f"{kind[:40]!r} is not a kind of event")
        queues = _words(query, "queues", "queue")
        for queue in queues or ():
            check_queue_name(queue, "queues")
        job_id = query.get("job_id")
        return Wanted(
            kinds=kinds,
            queues=queues,
            job_id=None if not job_id else self.job(job_id).id,
            within=None if self.caller.unrestricted else list(self.caller.queues),
        )

    def _history(
        self, wanted: Wanted, after: str | None, since: str | None, limit: int
    ) -> tuple[Sequence[Event], bool]:
        """Events of one job behind one of them, and whether there are more."""
        assert wanted.job_id is not None
        history = derived.history(wanted.job_id, using=self.using)
        if after:
            key = _event_key(after, self._place_field())
            ids = [event.pk for event in history]
            history = history[ids.index(key) + 1 :] if key in ids else history
        elif since:
            moment = self._moment(since)
            history = [event for event in history if event.created_at >= moment]
        found = [
            event
            for event in history
            if derived.asks(wanted, event.kind)
            and (wanted.queues is None or event.queue in wanted.queues)
            and (self.caller.unrestricted or (event.queue and self.caller.sees(event.queue)))
        ]
        page, seen = stream.filled(found[:limit], using=self.using)
        return page, seen < len(found)

    def _moment(self, since: str) -> datetime:
        return parse_past(since, "since", clock.now(self.using))

    def _asked_after(self) -> str | None:
        """The place to go on from, which wins over a time."""
        query = self.request.query_params
        return query.get("cursor") or query.get("after")

    def _place_field(self) -> str:
        """Which of its names the place was given by."""
        return "cursor" if self.request.query_params.get("cursor") else "after"

    def _derived_place(self, after: str | None, since: datetime | None) -> Place:
        """The position to continue after: from a cursor, the id of an event, or a time."""
        if after and not after.startswith("evt_"):
            try:
                return Place.unpacked(signing.loads(after, salt=_SALT))
            except signing.BadSignature:
                pass
        if after:
            return derived.place_of(_event_key(after, self._place_field()), using=self.using)
        if since:
            return derived.place_at(since, using=self.using)
        return Place()

    def _stream(self, request: Request, *more: str, **fixed: Any) -> Any:
        """A stream of events: ``more`` are further query parameters, ``fixed`` overrides the filter."""
        listing.allow(request, _KINDS_ASKED | {"after", *more}, frozenset())
        wanted = replace(self._wanted(request), **fixed)
        resumed, last = request.headers.get("Last-Event-ID"), request.query_params.get("after")
        field, last = ("Last-Event-ID", resumed) if resumed else ("after", last)
        if last:
            # 0 if retention has deleted the event: (nearly) all remaining ones are later.
            after = stream.place_of(_event_key(last, field), using=self.using) or 0
        else:
            after = stream.newest(using=self.using)
        if request.method == "HEAD":
            return HttpResponse(content_type="text/event-stream")
        limits = conf.current().http
        STREAMS.enter(self.caller, most=limits.streams, most_each=limits.streams_per_token)
        environ = request.META
        lines: Any = _Lines(self.caller, wanted, after, self.using, lambda: hung_up(environ))
        if isinstance(request._request, ASGIRequest):
            lines = _in_thread(lines)
        response = StreamingHttpResponse(lines, content_type="text/event-stream")
        response["X-Accel-Buffering"] = "no"
        return response


def _envelopes(rows: Sequence[Event], using: str) -> Sequence[responses.JsonObject]:
    named: Mapping[UUID | None, str] = traces.of_jobs({row.job_id for row in rows}, using=using)
    return [responses.event(row, named.get(row.job_id)) for row in rows]


def _page(
    part: listing.PageRequest, items: Sequence[responses.JsonObject], more: bool, after: str | None
) -> dict[str, Any]:
    paging = listing.paging(part, len(items), more)
    if after and not after.startswith("evt_"):
        last: str | None = after
    else:
        last = items[-1]["id"] if items else after
    if more:
        # To count them all would mean to derive them all.
        paging |= {"next_cursor": last, "total_is_capped": True}
    return {"events": items, "items": items, "cursor": last, "has_more": more, "pagination": paging}


def _cursor(page: derived.Page) -> str:
    """The id of the last event if every kind is stored; otherwise a signed position."""
    if page.events and not derived.derived_kinds():
        return f"evt_{page.events[-1].pk}"
    return signing.dumps(page.place.packed(), salt=_SALT)


def _event_key(event_id: str, field: str) -> UUID:
    try:
        return UUID(event_id.removeprefix("evt_"))
    except ValueError:
        raise InvalidRequest(field, "must be the id of an event") from None


def _wants_json(request: Request) -> bool:
    accepted = request.META.get("HTTP_ACCEPT", "")
    return "json" in accepted and "text/event-stream" not in accepted


class _Lines(Iterator[bytes]):
    """The bytes of one stream; closing it returns its place."""

    def __init__(
        self,
        principal: Principal,
        wanted: Wanted,
        after: int,
        using: str,
        gone: Callable[[], bool] = lambda: False,
    ) -> None:
        self._principal = principal
        self._lines: Generator[bytes, None, None] = _follow(principal, wanted, after, using, gone)
        self._open = True

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._lines)

    def close(self) -> None:
        """Called by Django when the response ends or fails."""
        if self._open:
            self._open = False
            try:
                self._lines.close()
            finally:
                STREAMS.leave(self._principal)

    def __del__(self) -> None:
        """Under ASGI a response that is dropped before its first byte is not closed otherwise."""
        self.close()


def _follow(
    principal: Principal,
    wanted: Wanted,
    after: int,
    using: str,
    gone: Callable[[], bool] = lambda: False,
) -> Generator[bytes, None, None]:
    """``gone`` tells whether the client has disconnected, which no write shows on a quiet stream."""
    start = spoken = checked = clock.boottime()
    yield b"retry: 1000\n\n"
    while (now := clock.boottime()) - start < STREAM_SECONDS:
        if now - checked >= RECHECK_SECONDS:
            checked = now
            now_is = principal.renewed(using=using)
            if now_is is None or not now_is.covers(principal, EventViewSet.scopes["stream"]):
                return
        newest = stream.newest(using=using)
        rows, more = stream.read(wanted, after=after, limit=BATCH, settled=True, using=using)
        for row, envelope in zip(rows, _envelopes(rows, using), strict=True):
            after = row.seq or after
            spoken = now
            data = json.dumps(envelope, separators=(",", ":"))
            yield f"id: evt_{row.pk}\nevent: {row.kind}\ndata: {data}\n\n".encode()
        if more:
            continue
        # Advance past events the filter excluded.
        after = max(after, newest)
        if now - spoken >= HEARTBEAT_SECONDS:
            spoken = now
            yield b":heartbeat\n\n"
        if not connections[using].in_atomic_block:
            connections[using].close()
        clock.pause(LOOK_EVERY)
        if gone():
            return


async def _in_thread(lines: _Lines) -> AsyncIterator[bytes]:
    """The same lines for ASGI, each step in a thread."""
    try:
        step = sync_to_async(lambda: next(lines, None))
        while (chunk := await step()) is not None:
            yield chunk
    finally:
        await sync_to_async(lines.close)()


def _words(query: Any, *names: str) -> list[str] | None:
    for name in names:
        if query.get(name):
            return [word for word in query[name].split(",") if word]
    return None
