"""Bad bodies at every route: an envelope, never a 5xx, and nothing written."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import cycle
from typing import Any
from uuid import UUID

import pytest
from django.urls import get_resolver

from django_ojs.http.routing import features
from django_ojs.models import Job, Worker
from django_ojs.services.operate import discard
from tests.http.refusing import LONE, MISSING, error_of
from tests.http.support import Answer, Api, enqueue, fetch, look

# Every route

BODIES: dict[str, bytes] = {
    "empty": b"",
    "null": b"null",
    "array": b"[]",
    "string": b'"x"',
    "number": b"1",
    "true": b"true",
    "half": b'{"a":',
    "two": b"{}{}",
    "single quotes": b"{'a': 1}",
    "comma": b'{"a":1,}',
    "text": b"hello",
    "blank": b"   ",
    "invalid utf-8": b'{"a":"\xff\xfe"}',
    "cut utf-8": b'{"a":"\xc3',
    "overlong": b'{"a":"\xc0\x80"}',
    "utf-16": '{"a":1}'.encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf{}",
    "control character": b'{"a":"\x01"}',
    "brackets": b"[" * 100_000,
    "objects": b'{"a":' * 100_000,
    "nan": b'{"a":NaN}',
    "digits": b'{"a":' + b"9" * 5000 + b"}",
}


def with_body(*, aliases: bool = True) -> Iterator[tuple[str, str]]:
    """Every path of every method that has a body."""
    assert get_resolver().url_patterns
    for part in features():
        for route in part.routes:
            for method in route.actions:
                if method in ("post", "put", "patch"):
                    yield route.path, method
                    yield from ((path, method) for path in route.aliases if aliases)


def test_the_walk_is_complete() -> None:
    walk = list(with_body())
    assert len(walk) > 40
    assert {"jobs", "jobs/batch", "workers/fetch", "workers/beat"} <= {path for path, _ in walk}


@pytest.mark.slow
@pytest.mark.parametrize("kind", BODIES)
def test_every_route_answers_a_bad_body_with_the_envelope(api: Api, kind: str) -> None:
    waiting, active = enqueue(api, queue="waiting"), enqueue(api, queue="active")
    fetch(api, "active")
    dead = enqueue(api, queue="dead")
    discard([UUID(dead["id"])])
    before = list(Job.objects.order_by("pk").values())
    workers = list(Worker.objects.values())
    jobs = cycle([waiting, active, dead])
    # Another one first for each kind: every route meets all three with some of them.
    for _ in range([*BODIES].index(kind) % 3):
        next(jobs)
    for template, method in with_body():
        job = next(jobs)
        place = "/" + template.format(
            job_id=job["id"],
            workflow_id=MISSING,
            worker_id="w1",
            name="waiting",
            key="k",
            type="t",
            version="1",
        )
        if kind == "empty":
            if not _acts_without_a_body(template):
                refused_or_conflict(api(method.upper(), place), place)
            continue
        answer = api(method.upper(), place, BODIES[kind])
        found = (answer.status, error_of(answer)["code"])
        expected = {(400, "invalid_payload"), (400, "invalid_request")}
        assert found in expected, (method, place, answer.raw[:200])
    assert list(Job.objects.order_by("pk").values()) == before
    assert list(Worker.objects.values()) == workers


def _acts_without_a_body(template: str) -> bool:
    last = template.rsplit("/", 1)[-1]
    return last in {
        "cancel",
        "retry",
        "ack",
        "nack",
        "fail",
        "pause",
        "resume",
        "quiet",
        "terminate",
        "trigger",
    } and ("{" in template)


def refused_or_conflict(answer: Answer, where: str) -> None:
    assert answer.status in (400, 409), (where, answer.raw[:200])
    error_of(answer)


@pytest.mark.slow
def test_every_route_survives_bodies_of_the_wrong_shape(api: Api) -> None:
    """Every field that any endpoint reads, at every endpoint: 4xx or done, never a 5xx.

    Each with a value of one type: which, goes by a hash of route and field, so that it is the same
    every time, and every field meets every type somewhere.
    """
    names = [
        "type",
        "args",
        "id",
        "queue",
        "priority",
        "meta",
        "tags",
        "retry",
        "timeout",
        "scheduled_at",
        "expires_at",
        "options",
        "jobs",
        "name",
        "job_id",
        "worker_id",
        "lease",
        "lease_id",
        "attempt",
        "result",
        "error",
        "requeue",
        "directive",
        "response_code",
        "queues",
        "count",
        "wait_ms",
        "visibility_timeout",
        "active_jobs",
        "active_job_ids",
        "leases",
        "state",
        "shutdown",
        "labels",
        "pid",
        "hostname",
        "progress",
        "percentage",
        "message",
        "data",
        "extend_timeout",
        "metadata",
        "step_index",
        "reason",
        "schema",
        "by",
        "steps",
        "callbacks",
        "workflow_timeout",
    ]
    values: tuple[Any, ...] = (True, 10**30, LONE, [None], {"a": {}})
    met: dict[str, set[int]] = {name: set() for name in names}
    job = enqueue(api)
    fetch(api)
    for template, method in with_body(aliases=False):
        path = template.format(
            job_id=job["id"],
            workflow_id=MISSING,
            worker_id="w1",
            name="other",
            key="k",
            type="t",
            version="1",
        )
        base: dict[str, Any] = {"worker_id": "w1", "job_id": MISSING, "queues": ["none"]}
        if "{job_id}" in template and template.rsplit("/", 1)[-1] not in ("progress", "checkpoint"):
            path = path.replace(job["id"], MISSING)
        if template in ("jobs", "jobs/batch"):
            base |= {"type": "test.job", "args": [], "queue": "other"}
        if template == "workflows":
            base |= {"type": "group", "jobs": [{"type": "test.job", "args": [], "queue": "other"}]}
        if template == "workers/fetch":
            base["wait_ms"] = 0
        for name in names:
            chosen = zlib.crc32(f"{method} {template} {name}".encode()) % len(values)
            if (name, values[chosen]) == ("wait_ms", 10**30):
                chosen = 0
            met[name].add(chosen)
            answer = api(method.upper(), f"/{path}", {**base, name: values[chosen]})
            where = (method, path, name, values[chosen])
            assert answer.status < 500, (where, answer.raw[:300])
            if answer.status >= 400:
                error_of(answer)
    everything = set(range(len(values)))
    assert {name for name in names if met[name] != everything} == {"wait_ms"}
    assert look(api, job)["state"] == "active"
