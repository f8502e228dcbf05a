"""What clients may not write, whatever they send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from django_ojs.clock import FrozenClock
from django_ojs.domain.envelope import READ, SYSTEM_MANAGED
from django_ojs.domain.limits import NAMES
from django_ojs.models import Job
from tests.http.refusing import refused, row
from tests.http.support import Api, enqueue, fetch, look


def evil() -> dict[str, Any]:
    """A value for every column of a job."""
    values: dict[str, Any] = {
        "UUIDField": "019539a4-b68c-7def-8000-ffffffffffff",
        "DateTimeField": "2031-01-01T00:00:00Z",
        "BooleanField": True,
        "FloatField": 0.99,
        "JSONField": {"evil": 1},
        "SmallIntegerField": 99,
        "IntegerField": 99,
        "BigIntegerField": 99,
    }
    found = {f.attname: values.get(f.get_internal_type(), "evil") for f in Job._meta.concrete_fields}
    assert len(found) > 40 and {"state", "lease_id", "lease_principal", "digest"} <= set(found)
    return found


LIMIT_COLUMNS = {f"{name}_ms" for name in NAMES}


def without(names: set[str]) -> dict[str, Any]:
    return {key: value for key, value in evil().items() if key not in names}


def differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> set[str]:
    """The columns in which two jobs differ."""
    left, right = row(one), row(other)
    return {name for name in left if left[name] != right[name]}


@pytest.mark.fault("F123", "S7")
def test_no_column_is_written_by_an_enqueue(api: Api, frozen: FrozenClock) -> None:
    own = {"id", "type", "queue", "priority", "args", "meta", "tags", "retry"}
    own |= {"scheduled_at", "expires_at"} | LIMIT_COLUMNS
    plain = enqueue(api)
    tried = enqueue(api, **without(own))
    assert differ(plain, tried) <= {"id", "extra"}
    assert {"unique_key", "lease_id", "state", "error"}.isdisjoint(row(tried)["extra"])
    assert look(api, tried)["state"] == "available"
    inside = enqueue(api, options=without(own))
    assert differ(plain, inside) <= {"id"}
    batch = api.post("/jobs/batch", {"jobs": [{"type": "test.job", "args": [], **without(own)}]})
    assert differ(plain, batch.body["jobs"][0]) <= {"id", "extra"}


@pytest.mark.fault("F123", "S7")
def test_no_column_is_written_by_a_change(api: Api, frozen: FrozenClock) -> None:
    plain, tried = enqueue(api), enqueue(api)
    own = {"priority", "queue"} | LIMIT_COLUMNS
    refused(api("PATCH", f"/jobs/{tried['id']}", without(own)), 400, "invalid_request", "body")
    assert differ(plain, tried) == {"id"}
    assert api("PATCH", f"/jobs/{tried['id']}", {"priority": 5, **without(own)}).status == 200
    assert api("PATCH", f"/jobs/{plain['id']}", {"priority": 5}).status == 200
    assert differ(plain, tried) == {"id"}
    for path in ("cancel", "retry", "activate", "extend"):
        api.post(f"/jobs/{tried['id']}/{path}", {**without(set()), "expires_at": None})
        if path == "cancel":
            api.post(f"/jobs/{plain['id']}/cancel")
    assert differ(plain, tried) == {"id"}


@pytest.mark.fault("F123", "S7")
def test_no_column_is_written_by_a_worker(api: Api, frozen: FrozenClock) -> None:
    body = {"retry": {"jitter": False}, "timeout": 600}
    plain, tried = enqueue(api, queue="a", **body), enqueue(api, queue="b", **body)
    claimed = fetch(api, "a")[0]
    asked = {**without({"queue"}), "queues": ["b"], "worker_id": "w1", "visibility_timeout_ms": None}
    answer = api.post("/workers/fetch", asked)
    assert answer.status == 200, answer.raw
    taken = answer.body["jobs"][0]
    assert taken["id"] == tried["id"]
    same = {"id", "queue", "lease_id"}
    assert differ(plain, tried) == same
    frozen.advance(1)
    beat = {"worker_id": "w1", "active_jobs": [plain["id"]]}
    assert api.post("/workers/heartbeat", beat).body["jobs_extended"] == [plain["id"]]
    beat = {**asked, "active_jobs": [tried["id"]], "state": "running"}
    assert api.post("/workers/heartbeat", beat).body["jobs_extended"] == [tried["id"]]
    assert differ(plain, tried) == same
    lease_claim = {"worker_id", "attempt", "lease_id", "id"}
    said = {"progress": 0.5, "lease_id": claimed["lease"]["id"]}
    assert api.post(f"/jobs/{plain['id']}/progress", said).status == 200
    own = {*lease_claim, "checkpoint"}
    said = {**without(own), "progress": 0.5, "lease_id": taken["lease"]["id"]}
    assert api.post(f"/jobs/{tried['id']}/progress", said).status == 200
    assert differ(plain, tried) == same
    failed = {"job_id": plain["id"], "error": "boom"}
    assert api.post("/workers/nack", failed).status == 200
    failed = {**without(lease_claim), "job_id": tried["id"], "error": "boom"}
    assert api.post("/workers/nack", failed).status == 200
    assert differ(plain, tried) == {"id", "queue"}
    frozen.advance(60)
    fetch(api, "a", "b", count=2)
    assert api.post(f"/jobs/{plain['id']}/ack", {"result": 1}).status == 200
    done = {**without(lease_claim), "result": 1}
    assert api.post(f"/jobs/{tried['id']}/ack", done).status == 200
    assert differ(plain, tried) == {"id", "queue"}
    assert row(tried)["state"] == "completed"


def test_unknown_fields_are_kept_and_returned(api: Api) -> None:
    unknown = {"x_own": {"a": [1, None, "é😀"]}, "ext_x": 5, "Ünï": True, "sys": None, "__class__": "x"}
    job = enqueue(api, **unknown)
    found, claimed = look(api, job), fetch(api)[0]
    assert {name: found[name] for name in unknown} == unknown
    assert {name: claimed[name] for name in unknown} == unknown
    listed = api.get("/jobs").body["jobs"][0]
    assert {name: listed[name] for name in unknown} == unknown


def test_names_that_only_the_database_knows_are_unknown_fields(api: Api) -> None:
    shown = set(look(api, enqueue(api, progress=0.5)))
    names = without(shown | SYSTEM_MANAGED | READ | {"workflow_step_id"})
    assert {"extra", "digest", "incident", "hooks", "finished_at", "deadline_at"} <= set(names)
    job = enqueue(api, queue="other", **names)
    for found in (look(api, job), api.get("/jobs?queue=other").body["jobs"][0], fetch(api, "other")[0]):
        assert {name: found[name] for name in names} == names
    assert api.post(f"/jobs/{job['id']}/ack", {"result": 1}).status == 200
    done = look(api, job)
    assert {name: done[name] for name in names} == names
    assert done["state"] == "completed"


def test_unknown_fields_do_not_shadow_ours(api: Api) -> None:
    ours = {
        "job": {"id": "x"},
        "lease": {"id": "x"},
        "lease_id": "x",
        "errors": ["x"],
        "total_attempts": 9,
    }
    job = enqueue(api, **ours, unique_key="x")
    found = look(api, job)
    assert found["id"] == job["id"]
    assert not {"lease", "lease_id", "errors", "unique_key"} & set(found)
