"""Schedules: register, look, list, change, pause, run now, delete (OJS cron 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from django_ojs import clock
from django_ojs.domain.envelope import Envelope, from_wire
from django_ojs.domain.errors import Conflict, InvalidRequest, PermissionDenied
from django_ojs.domain.near import NearMisses
from django_ojs.domain.schedule import ScheduleSource
from django_ojs.domain.unique import UniquePolicy
from django_ojs.http import cron_responses, listing
from django_ojs.http.base import OJSViewSet, missing
from django_ojs.http.cron_bodies import KNOWN, merged, spec_of
from django_ojs.http.limits import charge_enqueue
from django_ojs.http.replica import from_replica
from django_ojs.models import Schedule, ScheduleRun
from django_ojs.services import databases
from django_ojs.services.job_defaults import queue_of, unique_policy, warnings_about
from django_ojs.services.schedules import operate

_FILTERS = frozenset({"enabled"})


class CronViewSet(OJSViewSet):
    """The schedules. A caller sees those of its queues."""

    scopes = {
        "create": ("produce",),
        "list": ("inspect",),
        "retrieve": ("inspect",),
        "runs": ("inspect",),
        "update": ("administer",),
        "partial_update": ("administer",),
        "destroy": ("administer",),
        "pause": ("administer",),
        "resume": ("administer",),
        "trigger": ("administer",),
    }

    def create(self, request: Request) -> Response:
        """Register a schedule: 201, or 200 where one of the name is changed."""
        return self._put(self.body())

    @from_replica
    def list(self, request: Request) -> Response:
        """The schedules, by name."""
        listing.allow(request, _FILTERS)
        found = Schedule.objects.using(self.using).all()
        if (enabled := request.query_params.get("enabled")) is not None:
            if enabled not in ("true", "false"):
                raise InvalidRequest("enabled", "must be true or false")
            on = found.filter(enabled=True, paused_at__isnull=True)
            found = on if enabled == "true" else found.exclude(pk__in=on.values("pk"))
        only = None if self.caller.unrestricted else ("queue", self.caller.sees)
        page = listing.listed(request, found, _shown, "crons", keys=("name",), only=only)
        return Response({**page, "cron_jobs": page["crons"], "count": len(page["crons"])})

    def retrieve(self, request: Request, name: str) -> Response:
        """One schedule."""
        return Response(cron_responses.answer(self._row(name)))

    @from_replica
    def runs(self, request: Request, name: str) -> Response:
        """What became of its ticks, the latest first."""
        listing.allow(request)
        row = self._row(name)
        found = ScheduleRun.objects.using(self.using).filter(schedule=row.name)
        page = listing.listed(request, found, _runs, "runs", keys=("tick",), down=True)
        return Response(page)

    def update(self, request: Request, name: str) -> Response:
        """Replace a schedule that is there."""
        body = self._of(name)
        self._row(name)
        return self._put({**body, "name": name})

    def partial_update(self, request: Request, name: str) -> Response:
        """Change what the body names; ``enabled`` pauses and resumes."""
        body = self._of(name)
        row = self._row(name)
        enabled = body.pop("enabled", None)
        if enabled is not None and not isinstance(enabled, bool):
            raise InvalidRequest("enabled", "must be true or false")
        if body.keys() - {"reason"}:
            known = {**cron_responses.schedule(row), "enabled": row.enabled}
            self._put(merged(known, body))
        if enabled is not None:
            act = operate.resume if enabled else operate.pause
            act(name, actor=self.acting(), using=self.using)
        return Response(cron_responses.answer(self._row(name)))

    def destroy(self, request: Request, name: str) -> Response:
        """Delete a schedule; its jobs stay."""
        actor = self.acting()
        self._row(name)
        row = operate.delete(name, actor=actor, using=self.using)
        return Response(cron_responses.answer(row, deleted=True, name=name))

    def pause(self, request: Request, name: str) -> Response:
        """Let it have no ticks until it is resumed."""
        actor = self.acting()
        self._row(name)
        row, _ = operate.pause(name, actor=actor, using=self.using)
        return Response(cron_responses.answer(row))

    def resume(self, request: Request, name: str) -> Response:
        """End a pause."""
        actor = self.acting()
        self._row(name)
        row, _ = operate.resume(name, actor=actor, using=self.using)
        return Response(cron_responses.answer(row))

    def trigger(self, request: Request, name: str) -> Response:
        """Enqueue its job now."""
        actor = self.acting()
        self._row(name)
        row, run = operate.run_now(name, actor=actor, using=self.using)
        more = {"job_id": None if run.job_id is None else str(run.job_id)}
        return Response(cron_responses.answer(row, run=cron_responses.run(run), **more))

    def _of(self, name: str) -> dict[str, Any]:
        """The body, whose name is that of the path."""
        body = dict(self.body())
        if body.pop("name", name) != name:
            raise InvalidRequest("name", "must be the name in the path")
        return body

    def _put(self, body: Mapping[str, Any]) -> Response:
        now = clock.now(self.using)
        misses = NearMisses()

        def parse(job: Mapping[str, Any]) -> Envelope:
            envelope = from_wire(job, now=now)
            self.may_use(queue_of(envelope), "queue")
            for field, near in misses.of(job):
                self.warn(field, f"is not known; did you mean {near!r}?", near=near)
            for warning in warnings_about(envelope):
                self.warn(warning["field"], warning["message"])
            return envelope

        spec = spec_of(body, parse)
        if not self.caller.unrestricted:
            _refuse_wide(unique_policy(spec.envelope))
        for field in sorted(body.keys() - KNOWN):
            self.warn(field[:80], "is not known, and ignored")
        self.use(databases.of_envelopes([spec.envelope]))
        known = Schedule.objects.using(self.using).filter(pk=spec.name).first()
        if known is None:
            self._refuse_second(spec.name)
        elif not self.caller.sees(known.queue):
            raise PermissionDenied("This credential may not change the schedule.", field="name")
        self.quota = charge_enqueue(self.caller, 1, self.body_bytes)
        self.first_use([queue_of(spec.envelope)])
        row, is_new = operate.put(
            spec, source=ScheduleSource.HTTP, actor=self.acting(), using=self.using
        )
        headers = {"Location": f"/ojs/v1/cron/{row.name}"} if is_new else {}
        return Response(cron_responses.answer(row), status=201 if is_new else 200, headers=headers)

    def _refuse_second(self, name: str) -> None:
        """Raise :class:`Conflict` if another database has a schedule of this name: both would fire."""
        there = databases.of_schedule(name)
        if there != self.using and Schedule.objects.using(there).filter(pk=name).exists():
            raise Conflict("the schedule is in another database: delete it first", name=name)

    def _row(self, name: str) -> Schedule:
        """A schedule that the caller may see. Raises :class:`NotFound`, also for a foreign queue."""
        self.use(databases.of_schedule(name))
        row = Schedule.objects.using(self.using).filter(pk=name).first()
        if row is None or not self.caller.sees(row.queue):
            raise missing("cron", name)
        return row


def _refuse_wide(policy: UniquePolicy | None) -> None:
    """Raise :class:`InvalidRequest` for jobs that would meet, or replace, those of any queue: at its
    ticks nobody asks what the caller may see (decision L13).
    """
    if policy is not None and (policy.key is not None or "queue" not in policy.keys):
        raise InvalidRequest(
            "unique", "must have 'queue' among its keys: this credential has some queues only"
        )


def _shown(found: Sequence[Schedule]) -> list[Any]:
    return [cron_responses.schedule(row) for row in found]


def _runs(found: Sequence[ScheduleRun]) -> list[Any]:
    return [cron_responses.run(one) for one in found]
