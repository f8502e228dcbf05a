"""The dead letter: what was given up and kept for an operator (OJS dead letter)."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from django_ojs.domain.errors import NotFound
from django_ojs.domain.job import JobRow
from django_ojs.http import listing, responses
from django_ojs.http.base import OJSViewSet, missing
from django_ojs.http.replica import from_replica
from django_ojs.http.views.jobs import revive
from django_ojs.services import inspect, operate
from django_ojs.store.sessions import statement_timeout


class DeadLetterViewSet(OJSViewSet):
    """Dead-lettered jobs."""

    scopes = {
        "list": ("inspect",),
        "stats": ("inspect",),
        "retrieve": ("inspect",),
        "retry": ("administer",),
        "destroy": ("administer",),
    }
    bare = False
    """Whether a deletion is answered without a body."""

    @from_replica
    def list(self, request: Request) -> Response:
        """The dead letter, newest first."""
        self.use(listing.database_of(request))
        return Response(listing.dead_letter(request, self.caller, using=self.using))

    @from_replica
    def stats(self, request: Request) -> Response:
        """How many, by queue, type and error; of the newest ten thousand."""
        with statement_timeout(listing.TIME_LIMIT_MS, using=self.using):
            return Response(inspect.dead_letter_stats(list(self.caller.queues), using=self.using))

    def retrieve(self, request: Request, job_id: str) -> Response:
        """One dead-lettered job."""
        return Response(responses.wrapped(self._kept(job_id)))

    def retry(self, request: Request, job_id: str) -> Response:
        """Make a discarded job available again: attempts and timeouts start from zero (decision R5)."""
        record = revive(self._dead(job_id).id, self.body(required=False), self)
        return Response(responses.wrapped(record))

    def destroy(self, request: Request, job_id: str) -> Response:
        """Delete a dead-lettered job for good."""
        record = self._kept(job_id)
        operate.purge([record.id], actor=self.acting(), using=self.using)
        if self.bare:
            return Response(status=204)
        return Response({"deleted": True, "job_id": job_id})

    def _dead(self, job_id: str) -> JobRow:
        try:
            return self.job(job_id)
        except NotFound:
            raise missing("dead_letter_job", job_id) from None

    def _kept(self, job_id: str) -> JobRow:
        record = self._dead(job_id)
        if not record.dead_letter:
            raise missing("dead_letter_job", job_id)
        return record


class BareDeadLetterViewSet(DeadLetterViewSet):
    """The same below ``/admin``, where a deletion has no body."""

    bare = True
