"""Reports about many attempts at once, each under its lease."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from django_ojs.domain.errors import InvalidRequest, OJSError
from django_ojs.domain.job import LARGE, JobRow
from django_ojs.domain.jsonvalue import MAX_RESULT_BYTES, encode
from django_ojs.domain.leases import Lease
from django_ojs.domain.states import State
from django_ojs.http import listing, problems, responses
from django_ojs.http.base import OJSViewSet, missing, parse_each
from django_ojs.http.lease_claim import lease_id_in, parse_lease
from django_ojs.services.acknowledge import acknowledge_by_lease
from django_ojs.services.fencing import refused
from django_ojs.services.settle import Outcome, Report, SettleResult, Verdict, settle
from django_ojs.store import selectors

MAX_REPORTS = 100
"""The most jobs that one fetch returns."""


class ReportViewSet(OJSViewSet):
    """Batches of reports."""

    scopes = {"ack": ("work",)}

    def ack(self, request: Request) -> Response:
        """These attempts succeeded: each is answered for itself, and one refusal holds up no other."""
        items = self.body().get("jobs")
        if not isinstance(items, list) or not 0 < len(items) <= MAX_REPORTS:
            raise InvalidRequest("jobs", f"must be an array of 1 to {MAX_REPORTS} reports")
        outcomes = parse_each("jobs", items, partial(_outcome, principal=self.caller.key))
        ids = [outcome.lease.job_id for outcome in outcomes]
        seen = set(ids) if self.caller.unrestricted else self._visible(ids)
        settled = self._settle([outcome for outcome in outcomes if outcome.lease.job_id in seen])
        results = [
            self._response(job_id, next(settled) if job_id in seen else missing("job", str(job_id)))
            for job_id in ids
        ]
        done = all(result["acknowledged"] for result in results)
        return Response({"acknowledged": done, "count": len(results), "results": results})

    def _visible(self, ids: Sequence[UUID]) -> set[UUID]:
        records = selectors.jobs(ids, without=LARGE, using=self.using)
        return {job_id for job_id, record in records.items() if self.caller.sees(record.queue)}

    def _settle(self, outcomes: Sequence[Outcome]) -> Iterator[JobRow | OJSError]:
        """The outcome of each report, in order."""
        results: dict[Lease, str | None] = {}
        for outcome in outcomes:
            results.setdefault(outcome.lease, outcome.result)
        ended = acknowledge_by_lease(results, self.caller.key, using=self.using)
        others = self._settle_read([one for one in outcomes if one.lease not in ended])
        for outcome in outcomes:
            yield ended[outcome.lease] if outcome.lease in ended else next(others)

    def _settle_read(self, outcomes: Sequence[Outcome]) -> Iterator[JobRow | OJSError]:
        """The same by what their rows say; settled in parts whose jobs fit into memory."""
        ids = [outcome.lease.job_id for outcome in outcomes]
        start = 0
        for part in selectors.parts_that_fit(ids, listing.MAX_BYTES, using=self.using):
            these = outcomes[start : start + len(part)]
            start += len(part)
            for outcome, done in zip(these, settle(these, using=self.using), strict=True):
                problem = _verdict(outcome, done)
                yield problem if isinstance(problem, OJSError) else problem.small()

    def _response(self, job_id: UUID, answer: JobRow | OJSError) -> responses.JsonObject:
        if isinstance(answer, OJSError):
            problem = problems.of(answer, request_id=self.request_id)
            return {"acknowledged": False, "id": str(job_id), "job_id": str(job_id), **problem}
        return responses.acknowledged(answer)


def _outcome(item: Any, *, principal: str) -> Outcome:
    if not isinstance(item, dict):
        raise InvalidRequest("job", "must be an object with job_id and lease_id")
    field = "id" if item.get("job_id") is None else "job_id"
    try:
        job_id = UUID(item[field])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InvalidRequest("job_id", "must be the id of a job") from None
    result = None
    if "result" in item:
        result = encode(item["result"], "result", max_bytes=MAX_RESULT_BYTES)
    held = Lease(job_id, parse_lease(lease_id_in(item), "lease_id"))
    return Outcome(held, Report.ACK, result, principal=principal)


def _verdict(outcome: Outcome, settled: SettleResult) -> JobRow | OJSError:
    if settled.job is None:
        return missing("job", str(outcome.lease.job_id))
    if settled.verdict is Verdict.LOST:
        return refused(settled.job, "lease_lost" if settled.job.state == State.ACTIVE else "not_active")
    return settled.job
