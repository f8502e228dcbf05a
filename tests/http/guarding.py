"""What the tests of security ask, and what they compare."""

from __future__ import annotations

import json
from typing import Any

from django.test import Client

from django_ojs.models import Attempt, Event, Job, Queue
from tests.http.support import Answer, Api
from tests.http.test_matrix import Operation

MISSING = "019539a4-b68c-7def-8000-1a2b3c4d5e6f"
GOOD = json.dumps({"type": "test.job", "args": []}).encode()


def error(answer: Answer, status: int, code: str) -> dict[str, Any]:
    assert (answer.status, answer.code) == (status, code), answer.raw[:500]
    found: dict[str, Any] = answer.body["error"]
    return found


def call(op: Operation, api: Api, **headers: str) -> Answer:
    return api(op.method, f"/{op.path}", {} if op.method != "GET" else None, **headers)


def everything() -> tuple[list[Any], ...]:
    tables = (Job, Attempt, Queue, Event)
    return tuple(list(model.objects.order_by("pk").values()) for model in tables)


def read(client: Client, path: str = "/ojs/v1/jobs", **headers: str) -> Answer:
    response = client.get(path, headers=headers)
    return Answer(response.status_code, dict(response.items()), response.content)
