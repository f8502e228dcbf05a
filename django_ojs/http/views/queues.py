"""Queues: list, look, pause, resume, create (OJS HTTP binding 11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from django_ojs import clock, conf
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.kept import check_queue_config
from django_ojs.domain.names import check_queue_name
from django_ojs.http import listing, media, responses
from django_ojs.http.base import OJSViewSet, missing
from django_ojs.http.replica import from_replica
from django_ojs.models import Queue
from django_ojs.services import databases, queues
from django_ojs.services.stream import any_of


class QueueViewSet(OJSViewSet):
    """The queues. A queue comes into being with its first use."""

    scopes = {
        "list": ("inspect",),
        "create": ("administer",),
        "retrieve": ("inspect",),
        "stats": ("inspect",),
        "pause": ("administer",),
        "resume": ("administer",),
    }

    @from_replica
    def list(self, request: Request) -> Response:
        """Every queue that was ever used, and ``default``."""
        listing.allow(request)
        if self.caller.sees("default"):
            queues.ensure(["default"], using=conf.current().database)
        rows = Queue.objects.using(self.using).all()
        if not self.caller.unrestricted:
            rows = rows.filter(any_of("name", self.caller.queues))

        def shape(found: Sequence[Queue]) -> list[responses.JsonObject]:
            counts = queues.counts_of([row.name for row in found], using=self.using)
            return [responses.queue(row.name, row, counts[row.name]) for row in found]

        return Response(listing.listed(request, rows, shape, "queues", keys=("name",)))

    def create(self, request: Request) -> Response:
        """Make a queue known before its first use."""
        body = self.body()
        if not isinstance(body.get("name"), str):
            raise InvalidRequest("name", "is required")
        name = self.may_use(check_queue_name(body["name"], "name"), "name")
        if body.get("config") is not None:
            check_queue_config(body["config"])
            self.warn("config", "not kept: a queue has no configuration yet")
        self.use(databases.of_filter(name))
        is_new = bool(self.first_use([name]))
        actor = self.acting()
        queues.create(name, is_new=is_new, actor=actor, using=self.using)
        return Response(self._response(name), status=201)

    def retrieve(self, request: Request, name: str) -> Response:
        """A queue with its jobs by state; one that nobody used yet is empty."""
        return Response(self._response(self._seen(name)))

    @from_replica
    def stats(self, request: Request, name: str) -> Response:
        """Counts, and the figures of the last hour."""
        name = self._seen(name)
        shape = self._response(name)
        recent = queues.last_hour(name, using=self.using)
        counts = shape["counts"]
        shape["stats"] = {
            "queue": name,
            "depth": shape["depth"],
            "max_depth": None,
            **counts,
            "dead": recent.pop("dead"),
            **recent,
        }
        shape["computed_at"] = responses.moment(clock.now(self.using))
        return Response(shape)

    def pause(self, request: Request, name: str) -> Response:
        """Stop claims from the queue; enqueueing goes on."""
        return self._switch(name, True)

    def resume(self, request: Request, name: str) -> Response:
        """Allow claims again."""
        return self._switch(name, False)

    def _switch(self, name: str, paused: bool) -> Response:
        name = self.may_use(self._seen(check_queue_name(name, "queue")), "queue")
        actor = self.acting()
        self.first_use([name])
        (queues.pause if paused else queues.resume)([name], actor=actor, using=self.using)
        shape = self._response(name)
        word = "paused_at" if paused else "resumed_at"
        shape.setdefault(word, responses.moment(clock.now(self.using)))
        return Response(shape)

    def _seen(self, name: str) -> str:
        if not self.caller.sees(name):
            raise missing("queue", name)
        self.use(databases.of_filter(name))
        return name

    def _response(self, name: str) -> responses.JsonObject:
        row = Queue.objects.using(self.using).filter(pk=name).first()
        shape = responses.queue(name, row, queues.counts(name, using=self.using))
        # A string for those who send OJS-Version, an object for the others.
        inside: Any = name if media.speaks_version(self.request) else dict(shape)
        return {**shape, "queue": inside}
