"""Which job a report is about: the id in its path, in its body, or in both."""

from __future__ import annotations

import pytest

from tests.http.support import Api, enqueue, fetch, look, refused_field


@pytest.mark.parametrize("path", ["ack", "nack", "progress"])
def test_a_job_id_of_another_kind_says_so(api: Api, path: str) -> None:
    for field in ("job_id", "id"):
        answer = api.post(f"/workers/{path}", {field: 5, "progress": 0.5})
        refused_field(answer, field)
        assert "must be a string" in answer.body["error"]["message"]
    answer = api.post(f"/workers/{path}", {"progress": 0.5})
    refused_field(answer, "job_id")
    assert "is required" in answer.body["error"]["message"]


@pytest.mark.parametrize("path", ["ack", "nack", "fail", "progress"])
def test_path_and_body_must_mean_the_same_job(api: Api, path: str) -> None:
    enqueue(api)
    enqueue(api)
    one, other = fetch(api, count=2)
    for field in ("job_id", "id"):
        body = {field: other["id"], "lease_id": one["lease"]["id"], "progress": 0.5}
        refused_field(api.post(f"/jobs/{one['id']}/{path}", body), field)
        refused_field(api.post(f"/jobs/{one['id']}/{path}", {**body, field: 5}), field)
    assert look(api, one)["state"] == "active"
    body = {"job_id": one["id"], "lease_id": one["lease"]["id"], "progress": 0.5}
    assert api.post(f"/jobs/{one['id']}/{path}", body).status == 200
