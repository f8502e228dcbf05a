"""The fields of the workers' requests: fetch, report, beat, register (OJS worker protocol)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from django_ojs.domain.durations import parse_ms, parse_seconds_ms
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.jsonvalue import MAX_META_BYTES, encode
from django_ojs.domain.names import check_worker_id
from django_ojs.http.base import integer_field, text_field
from django_ojs.http.lease_claim import parse_lease
from django_ojs.models import Worker

MAX_HELD = 1000
_FORMS = ("active_job_ids", "jobs", "leases", "active_jobs")
"""The fields of a beat that may name jobs; the first one that holds a list is used."""
_PHASES = {
    "running": Worker.Phase.RUNNING,
    "active": Worker.Phase.RUNNING,
    "quiet": Worker.Phase.QUIET,
    "terminate": Worker.Phase.TERMINATE,
    "drain": Worker.Phase.DRAIN,
    "draining": Worker.Phase.DRAIN,
}


def visibility_ms_of(body: Mapping[str, Any]) -> int | None:
    """The visibility timeout of a fetch or a beat in milliseconds, ``None`` without one."""
    for name in ("visibility_timeout_ms", "visibility_ms"):
        if body.get(name) is not None:
            return parse_ms(body[name], name)
    if body.get("visibility_timeout") is not None:
        return parse_seconds_ms(body["visibility_timeout"], "visibility_timeout")
    return None


def worker_id_of(body: Mapping[str, Any]) -> str:
    """The id of the worker, which must fit into one segment of a path."""
    worker_id = text_field(body, "worker_id")
    if worker_id is None:
        raise InvalidRequest("worker_id", "is required")
    return check_worker_id(worker_id, "worker_id")


def queue_name(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidRequest("queues", "must hold strings")
    return value


class Named(NamedTuple):
    """What a beat names: jobs, each with its lease if that is given, and texts that are no job's id."""

    jobs: list[tuple[UUID, UUID | None]]
    unknown: list[str]


def named_jobs(body: Mapping[str, Any]) -> Named:
    """The jobs that a beat names. Raises :class:`InvalidRequest` for what is not a list of them."""
    forms = {field: body[field] for field in _FORMS if body.get(field) is not None}
    for field, given in forms.items():
        if not isinstance(given, list) and (field != "active_jobs" or type(given) is not int):
            number = " or their number" if field == "active_jobs" else ""
            raise InvalidRequest(field, f"must be an array of jobs{number}")
    lists = {field: given for field, given in forms.items() if isinstance(given, list)}
    alone = [] if body.get("job_id") is None else [body["job_id"]]
    field, given = next(iter(lists.items()), ("job_id", alone))
    if len(given) > MAX_HELD:
        raise InvalidRequest(field, f"must not name more than {MAX_HELD} jobs")
    found: dict[UUID, UUID | None] = {}
    unknown: dict[str, None] = {}
    for item in given:
        lease: UUID | None = None
        if isinstance(item, Mapping):
            if (value := item.get("lease_id")) is not None:
                lease = parse_lease(value, f"{field}.lease_id")
            item = item.get("job_id", item.get("id"))
        if not isinstance(item, str) or len(item) > 255 or not item.isprintable():
            raise InvalidRequest(field, "must hold job ids")
        try:
            found[UUID(item)] = lease
        except ValueError:
            # No job has such an id: lost, and the beat still counts for the others.
            unknown[item] = None
    return Named(list(found.items()), list(unknown))


def running_jobs(body: Mapping[str, Any], named: Named) -> int:
    given = body.get("active_jobs")
    if type(given) is int:
        if not 0 <= given <= 1_000_000:
            raise InvalidRequest("active_jobs", "must be from 0 to 1000000, or a list of job ids")
        return given
    return len(named.jobs) + len(named.unknown)


def phase_of(body: Mapping[str, Any]) -> str | None:
    shutdown = body.get("shutdown")
    if not isinstance(shutdown, bool | None):
        raise InvalidRequest("shutdown", "must be true or false")
    if shutdown:
        return Worker.Phase.DRAIN
    state = body.get("state")
    return _PHASES.get(state) if isinstance(state, str) else None


def worker_facts(body: Mapping[str, Any], queues: list[str] | None) -> dict[str, Any]:
    """What a worker reports about itself, as columns of its row."""
    facts: dict[str, Any] = {}
    for name in ("hostname", "version"):
        value = text_field(body, name)
        if value is not None:
            facts[name] = value
    for name in ("pid", "concurrency"):
        number = integer_field(body, name, least=0, most=2**31 - 1)
        if number is not None:
            facts[name] = number
    labels = body.get("labels")
    if labels is not None:
        if isinstance(labels, list):
            labels = {"labels": labels}
        if not isinstance(labels, Mapping):
            raise InvalidRequest("labels", "must be an object or an array")
        encode(labels, "labels", max_bytes=MAX_META_BYTES)
        facts["labels"] = dict(labels)
    if queues is not None:
        facts["queues"] = queues
    return facts
