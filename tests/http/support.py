"""Speak to the binding, in this process or over a socket, by the same words."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.test import Client

MEDIA = "application/openjobspec+json"


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        """The JSON value."""
        return json.loads(self.raw)

    @property
    def code(self) -> str:
        """The code of the error."""
        return str(self.body["error"]["code"])


class Api:
    """A caller with a token: ``api.post("/jobs", {...})``; paths are below ``/ojs/v1``."""

    def __init__(self, token: str | None) -> None:
        self.token = token

    def get(self, path: str, **headers: str) -> Answer:
        """GET."""
        return self("GET", path, None, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        """POST a JSON value."""
        return self("POST", path, body, **headers)

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """One request; ``body`` is bytes, or a JSON value. Header names with ``_`` for ``-``."""
        full = path[1:] if path.startswith("//") else f"/ojs/v1{path}"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token is not None:
            named.setdefault("Authorization", f"Bearer {self.token}")
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        if data:
            named.setdefault("Content-Type", MEDIA)
        return self.send(method, full, data, named)

    def send(self, method: str, path: str, data: bytes, headers: dict[str, str]) -> Answer:
        """Through Django's handler, in this process."""
        client = Client(raise_request_exception=False)
        media = headers.pop("Content-Type", "")
        response = client.generic(method, path, data, content_type=media, headers=headers)
        if response.streaming:
            return Answer(response.status_code, dict(response.items()), b"")
        return Answer(response.status_code, dict(response.items()), response.content)


class LiveApi(Api):
    """The same over a socket."""

    def __init__(self, port: int, token: str | None = "dev") -> None:
        super().__init__(token)
        self.port = port

    def send(self, method: str, path: str, data: bytes, headers: dict[str, str]) -> Answer:
        """Over a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, data or None, headers)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()


def enqueue(api: Api, **body: Any) -> dict[str, Any]:
    """The envelope of a new job."""
    answer = api.post("/jobs", {"type": "test.job", "args": [], **body})
    assert answer.status == 201, answer.raw
    job: dict[str, Any] = answer.body["job"]
    return job


def fetch(api: Api, *queues: str, worker: str | None = "w1", **body: Any) -> list[dict[str, Any]]:
    """The jobs that a worker gets."""
    asked = {"queues": list(queues or ("default",)), **body}
    if worker is not None:
        asked["worker_id"] = worker
    answer = api.post("/workers/fetch", asked)
    assert answer.status == 200, answer.raw
    jobs: list[dict[str, Any]] = answer.body["jobs"]
    return jobs


def look(api: Api, job: Mapping[str, Any]) -> dict[str, Any]:
    """The envelope of a job as it is now."""
    answer = api.get(f"/jobs/{job['id']}")
    assert answer.status == 200, answer.raw
    found: dict[str, Any] = answer.body["job"]
    return found


def refused_field(answer: Answer, field: str) -> None:
    """A 400 that names the field."""
    assert (answer.status, answer.code) == (400, "invalid_request"), answer.raw
    assert answer.body["error"]["details"]["field"] == field
