"""The registry of workers and their directives (OJS worker protocol 6)."""

from __future__ import annotations

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from django_ojs import clock
from django_ojs.domain.errors import Conflict
from django_ojs.http import listing, responses
from django_ojs.http.base import OJSViewSet, missing
from django_ojs.http.replica import from_replica
from django_ojs.models import Worker
from django_ojs.services import workers

CLIENT = "client"
_MOST_NAMED = 10


class WorkerViewSet(OJSViewSet):
    """The workers, in this project's processes and over HTTP.

    Clients choose the names of their workers, so that several may share one. A path means the
    caller's own worker first; the query parameter ``client`` names the owner.
    """

    scopes = {
        "list": ("inspect",),
        "retrieve": ("inspect",),
        "health": ("inspect", "work"),
        "quiet": ("administer",),
        "terminate": ("administer",),
        "resume": ("administer",),
        "destroy": ("administer", "work"),
    }

    @from_replica
    def list(self, request: Request) -> Response:
        """The workers that are not yet forgotten."""
        listing.allow(request)
        now = clock.now(self.using)
        rows = self._visible()
        page = listing.listed(
            request,
            rows,
            lambda found: [responses.worker(row, now) for row in found],
            "workers",
            keys=("name", "principal"),
            large="labels",
        )
        states = [(item["status"], item["state"]) for item in page["items"]]
        page["summary"] = {
            "total": page["pagination"]["total"],
            "running": sum(status == "healthy" for status, _ in states),
            "quiet": sum(status == "degraded" for status, _ in states),
            "stale": sum(status == "stale" for status, _ in states),
        }
        return Response(page)

    def retrieve(self, request: Request, worker_id: str) -> Response:
        """One worker."""
        return Response(self._response(self._find(worker_id)))

    def health(self, request: Request, worker_id: str) -> Response:
        """Whether a worker is alive, and whether it takes jobs."""
        return Response(self._response(self._find(worker_id)))

    def quiet(self, request: Request, worker_id: str) -> Response:
        """Tell a worker to claim nothing more."""
        return self._direct(worker_id, "quiet")

    def terminate(self, request: Request, worker_id: str) -> Response:
        """Tell a worker to finish and end."""
        return self._direct(worker_id, "terminate")

    def resume(self, request: Request, worker_id: str) -> Response:
        """Take back what a worker was told."""
        return self._direct(worker_id, None)

    def destroy(self, request: Request, worker_id: str) -> Response:
        """Deregister a worker; its jobs keep their leases. A worker may do so for itself."""
        found = self._find(worker_id, own=not self.caller.may("administer"))
        acting = self.acting()
        actor = None if found.principal == self.caller.key else acting
        workers.deregister(found.name, found.principal, actor=actor, using=self.using)
        return Response({"ok": True, "deleted": True, "worker_id": worker_id})

    def _direct(self, worker_id: str, order: str | None) -> Response:
        key = self._find(worker_id).pk
        row = workers.direct(key, order, actor=self.acting(), using=self.using)
        return Response(self._response(row))

    def _response(self, row: Worker) -> responses.JsonObject:
        shape = responses.worker(row, clock.now(self.using))
        return {**shape, "worker": shape}

    def _find(self, worker_id: str, *, own: bool = False) -> Worker:
        """The worker that a path means; with ``own`` only the caller's."""
        listing.allow(self.request, frozenset({CLIENT}), frozenset())
        client = self.request.query_params.get(CLIENT)
        rows = self._visible().filter(name=worker_id)
        mine = rows.filter(principal=self.caller.key)
        if client is not None:
            found = list((mine if own else rows).filter(principal=client))
        else:
            found = list(mine) or ([] if own else list(rows.order_by("principal")[:_MOST_NAMED]))
        if not found:
            raise missing("worker", worker_id)
        if len(found) > 1:
            raise Conflict(
                f"Several clients have a worker {worker_id!r}: say with the query parameter"
                f" '{CLIENT}' whose is meant, empty for a worker of the project.",
                field=CLIENT,
                clients=[row.principal for row in found],
            )
        return found[0]

    def _visible(self) -> QuerySet[Worker]:
        """All workers; for a credential of some queues only its own."""
        rows = Worker.objects.using(self.using).all()
        return rows if self.caller.unrestricted else rows.filter(principal=self.caller.key)
