"""Progress and checkpoints of jobs (OJS progress, OJS durable execution)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from django_ojs import clock
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.jsonvalue import MAX_META_BYTES, encode, sanitise_text
from django_ojs.domain.states import State
from django_ojs.http import responses
from django_ojs.http.base import OJSViewSet, missing
from django_ojs.http.lease_claim import lease_claim_of
from django_ojs.http.views.jobs import extension
from django_ojs.services import checkpoints, fencing, inspect, leases, operate
from django_ojs.services.leases import MAX_CHECKPOINT_BYTES, Progress
from django_ojs.store.contention import atomically

MAX_MESSAGE_BYTES = 1024


class ProgressViewSet(OJSViewSet):
    """How far a job is."""

    scopes = {"report": ("work",), "retrieve": ("inspect", "work")}

    def report(self, request: Request, job_id: str | None = None) -> Response:
        """Progress of the running attempt, a sign of life; of another job it changes nothing."""
        body = self.body()
        job_id = self.job_id_of(job_id, body)
        fraction = _fraction(body)
        message = body.get("message", "")
        if not isinstance(message, (str, type(None))):
            raise InvalidRequest("message", "must be a string")
        data = body.get("data")
        text = None if data is None else encode(data, "data", max_bytes=MAX_META_BYTES)
        checkpoint = body.get("checkpoint")
        if checkpoint is not None:
            checkpoint = encode(checkpoint, "checkpoint", max_bytes=MAX_CHECKPOINT_BYTES)
        by_ms = extension(body, ("extend_timeout",))
        record = self.job(job_id, fresh=True)
        if record.state == State.ACTIVE:
            now = clock.now(self.using)
            lease_claim = lease_claim_of(self, body)
            lease = fencing.authorize_report(record, lease_claim, now=now, using=self.using)
            # Progress is monotonic: ignore late, smaller values.
            further = max(fraction or 0.0, record.progress or 0.0)
            said = sanitise_text(message or "", MAX_MESSAGE_BYTES)
            reported = Progress(lease, further, said, text, record)

            def store() -> None:
                if not leases.progress([reported], using=self.using):
                    raise fencing.refused(record, "lease_lost")
                if checkpoint is not None:
                    checkpoints.save(record.id, checkpoint, {}, lease_claim, using=self.using)

            if checkpoint is None:
                store()
            else:
                atomically(self.using, store)
            if by_ms is not None:
                actor = self.actor()
                operate.extend_timeout([record.id], by_ms, lease=lease, actor=actor, using=self.using)
            record = inspect.find(record.id, using=self.using)
        updated_at = responses.moment(clock.now(self.using))
        return Response(responses.progress(record, acknowledged=True, updated_at=updated_at))

    def retrieve(self, request: Request, job_id: str) -> Response:
        """The last progress, ``null`` when none was reported."""
        return Response(responses.progress(self.job(job_id, fresh=True)))


class CheckpointViewSet(OJSViewSet):
    """Where the next attempt resumes."""

    scopes = {
        "save": ("work",),
        "retrieve": ("work", "inspect"),
        "resume": ("work", "inspect"),
        "destroy": ("work",),
    }

    def save(self, request: Request, job_id: str) -> Response:
        """Save a checkpoint: any JSON value of up to 1 MiB. A sign of life."""
        record = self.job(job_id, fresh=True)
        body = self.body()
        if "state" not in body:
            raise InvalidRequest("state", "is required")
        state = encode(body["state"], "state", max_bytes=MAX_CHECKPOINT_BYTES)
        info = {name: body[name] for name in ("metadata", "step_index") if body.get(name) is not None}
        encode(info, "metadata", max_bytes=MAX_CHECKPOINT_BYTES)
        saved = checkpoints.save(record.id, state, info, lease_claim_of(self, body), using=self.using)
        return Response(responses.checkpoint(saved))

    def retrieve(self, request: Request, job_id: str) -> Response:
        """The checkpoint, 404 when there is none."""
        record = self.job(job_id)
        if record.checkpoint is None:
            raise missing("checkpoint", job_id)
        return Response(responses.checkpoint(record))

    def resume(self, request: Request, job_id: str) -> Response:
        """Whether there is a checkpoint, and which; never 404 for a job that exists."""
        record = self.job(job_id)
        if record.checkpoint is None:
            return Response({"has_checkpoint": False, "job_id": job_id})
        saved = responses.checkpoint(record)["checkpoint"]
        return Response({"has_checkpoint": True, "job_id": job_id, "checkpoint": saved})

    def destroy(self, request: Request, job_id: str) -> Response:
        """Forget the checkpoint, if there is one."""
        record = self.job(job_id)
        lease_claim = lease_claim_of(self, self.body(required=False))
        checkpoints.clear(record.id, lease_claim, using=self.using)
        return Response({"deleted": True, "job_id": job_id})


def _fraction(body: Mapping[str, Any]) -> float | None:
    """The progress that a report names; ``None`` for one that has data only."""
    for name, whole in (("progress", 1.0), ("percentage", 100.0)):
        value = body.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InvalidRequest(name, "must be a number")
        fraction = min(max(value, -1), 101) / whole
        if not math.isfinite(fraction):
            raise InvalidRequest(name, "must be a finite number")
        return min(1.0, max(0.0, fraction))
    if body.get("data") is not None:
        return None
    raise InvalidRequest("progress", "is required: 0 to 1, or percentage from 0 to 100, or data")
