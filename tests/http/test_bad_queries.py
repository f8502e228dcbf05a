"""Bad parameters of lists and streams: refused, and nothing found."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.http.refusing import error_of, refused
from tests.http.support import Api, enqueue, fetch

# Queries and paths

INJECTIONS = (
    "' or 1=1 --",
    "id;drop table ojs_job",
    "1) union select secret_hash from ojs_apitoken--",
    '"; select pg_sleep(5)--',
    "%",
    "\\",
    "args__x__regex=.*",
    "-id,args",
    "../../etc/passwd",
    "${7*7}{{7*7}}%s%(a)s",
    "x\x00y",
    "\x00",
    "\u202e😀",
    "x" * 6000,
    "٣",
    "-1",
    "1_000",
    "NaN",
)
FREE = {"queue", "queues", "worker_id", "error_type"}
"""Any text is a name here; of one that nobody uses, nothing is found."""
PARAMETERS = {
    "/jobs": (
        "state",
        "queue",
        "type",
        "worker_id",
        "dead_letter",
        "error_type",
        "since",
        "until",
        "order",
        "sort",
    ),
    "/admin/jobs": ("state", "queue", "type", "order"),
    "/dead-letter": ("queue", "type", "error_type"),
    "/events": ("types", "type", "queues", "queue", "job_id", "after", "since"),
    "/workers": (),
    "/queues": (),
}
PAGING = ("limit", "offset", "page", "per_page", "cursor")


@pytest.fixture
def something(api: Api) -> dict[str, Any]:
    """A dead job, a worker and events: something that a list could show."""
    enqueue(api, retry={"max_attempts": 1, "on_exhaustion": "dead_letter"})
    job = fetch(api)[0]
    api.post("/workers/nack", {"job_id": job["id"], "error": "x"})
    return job


@pytest.mark.slow
@pytest.mark.parametrize("path", PARAMETERS)
@pytest.mark.fault("F124", "S17")
def test_injections_in_query_parameters(api: Api, something: dict[str, Any], path: str) -> None:
    assert api.get(path).body["items"]
    for name in (*PARAMETERS[path], *PAGING):
        for text in INJECTIONS:
            answer = api.get(f"{path}?{name}={quote(text)}")
            if name in FREE and "\x00" not in text:
                assert answer.status in (200, 400), (name, text, answer.raw[:300])
                assert answer.status == 400 or answer.body["items"] == [], (name, text)
            else:
                assert answer.status in (400, 404), (name, text, answer.status, answer.raw[:300])
                error_of(answer)


@pytest.mark.parametrize("path", PARAMETERS)
@pytest.mark.parametrize(
    "name", ["search", "args__x__regex", "' or 1=1", "order_by", "id", "x" * 3000, "\x00", "q[]"]
)
@pytest.mark.fault("F125", "S16")
def test_parameters_that_do_not_exist(api: Api, path: str, name: str) -> None:
    answer = api.get(f"{path}?{quote(name)}=1")
    assert answer.status in (400, 404), answer.raw[:200]
    error_of(answer)


@pytest.mark.parametrize(
    "order", ["args", "-args", "id", "priority", "created_at desc", "asc,desc", "ASC"]
)
@pytest.mark.fault("F125", "S16")
def test_orders_without_an_index(api: Api, order: str) -> None:
    refused(api.get(f"/jobs?order={quote(order)}"), 400, "invalid_request", "order")
    refused(api.get(f"/jobs?sort={quote(order)}"), 400, "invalid_request", "sort")


@pytest.mark.fault("F124")
def test_cursors_are_signed(api: Api) -> None:
    for _ in range(3):
        enqueue(api)
    cursor = api.get("/jobs?limit=1").body["pagination"]["next_cursor"]
    assert api.get(f"/jobs?limit=1&cursor={cursor}").status == 200
    forged = (
        cursor[:-1] + ("a" if cursor[-1] != "a" else "b"),
        cursor.replace(cursor[:8], "00000000", 1),
        cursor.partition(":")[0],
        f"' or 1=1{cursor}",
        cursor + "x",
        ":",
        "~",
    )
    for text in forged:
        refused(api.get(f"/jobs?cursor={quote(text)}"), 400, "invalid_request", "cursor")
    refused(api.get(f"/dead-letter?cursor={quote(cursor)}"), 400, "invalid_request", "cursor")


@pytest.mark.fault("S16")
def test_limits_of_lists(api: Api) -> None:
    enqueue(api)
    assert api.get("/jobs?limit=999999999").body["pagination"]["limit"] == 200
    for name in ("limit", "per_page", "page"):
        refused(api.get(f"/jobs?{name}=0"), 400, "invalid_request", name)
    refused(api.get("/jobs?offset=10001"), 400, "invalid_request", "offset")
    refused(api.get("/jobs?page=999999999"), 400, "invalid_request", "offset")


@pytest.mark.parametrize(
    "text", ["job:", "queue:", "job", "everything", "' or 1=1", "job:x\x00", "queue:Q!", "queue:\x00"]
)
def test_channels_of_the_stream(api: Api, text: str) -> None:
    error_of(api.get(f"/events/stream?channel={quote(text)}"))


@pytest.mark.parametrize("text", [*INJECTIONS[:12], "evt_", "evt_x"])
def test_places_in_the_stream(api: Api, text: str) -> None:
    answer = api.get("/events/stream", Last_Event_ID=quote(text))
    refused(answer, 400, "invalid_request", "Last-Event-ID")
    refused(api.get(f"/events/stream?after={quote(text)}"), 400, "invalid_request", "after")
    error_of(api.get(f"/events/stream?types={quote(text)}"))
