"""Workers: their names, what their beats say and may not say, orders to them."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs.models import Worker
from django_ojs.services import http_workers, workers
from tests.apart import Apart
from tests.http.conftest import Caller
from tests.http.support import Api, refused_field


def test_a_beat_says_which_queues_are_served(api: Api, caller: Caller) -> None:
    body = {"worker_id": "w1", "queues": ["mail", "default"]}
    assert api.post("/workers/heartbeat", body).status == 200
    assert api.get("/workers/w1").body["queues"] == ["mail", "default"]
    assert api.post("/workers/heartbeat", {**body, "queues": []}).status == 200
    assert api.get("/workers/w1").body["queues"] == ["mail", "default"]
    assert caller("work", queues=["mine"]).post("/workers/heartbeat", body).status == 403


@pytest.mark.parametrize("labels", [["canary", "v2.1"], [], {"zone": "a"}, {}], ids=str)
def test_labels_are_returned_in_the_form_that_was_sent(api: Api, labels: object) -> None:
    """OJS worker protocol 3.1 has an array of strings; an object is accepted too."""
    assert api.post("/workers/register", {"worker_id": "w1", "labels": labels}).status == 200
    assert api.get("/workers/w1").body["labels"] == labels
    assert api.get("/workers").body["workers"][0]["labels"] == labels


UNREADABLE: dict[str, list[object]] = {
    **{field: [3, "x", {}, True] for field in ("active_job_ids", "jobs", "leases")},
    "active_jobs": ["x", {}, True, 1.5],
    "shutdown": ["true", 1, 0, "", [], {}],
}


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field, values in UNREADABLE.items() for value in values]
)
def test_a_beat_refuses_what_it_cannot_read(api: Api, field: str, value: Any) -> None:
    refused_field(api.post("/workers/beat", {"worker_id": "w1", field: value}), field)
    listed = {"worker_id": "w1", "active_job_ids": [], field: value}
    refused_field(api.post("/workers/heartbeat", listed), field)
    assert not Worker.objects.exists()


def test_a_beat_takes_null_for_nothing(api: Api) -> None:
    fields = ("active_job_ids", "jobs", "leases", "active_jobs", "shutdown", "job_id")
    body = {"worker_id": "w1", **dict.fromkeys(fields)}
    assert api.post("/workers/heartbeat", body).body["state"] == "running"
    assert api.post("/workers/heartbeat", {**body, "shutdown": False}).body["state"] == "running"
    assert api.post("/workers/heartbeat", {**body, "active_jobs": 2}).status == 200


@pytest.mark.every_database
def test_an_order_to_a_worker_outlives_a_beat_at_the_same_moment(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = http_workers.seen("w1", None, beats=False).pk
    take = http_workers._take
    other: list[Apart] = []

    def interrupted(*args: Any) -> None:
        # The beat has read the row; before it writes, an operator gives an order.
        other.append(Apart(lambda: workers.direct(key, "quiet")))
        assert other[0].goes_as_far_as_it_can(), "it waits for the beat"
        take(*args)

    monkeypatch.setattr(http_workers, "_take", interrupted)
    http_workers.seen("w1", None, beats=True)
    other[0].outcome()
    assert Worker.objects.get(name="w1").directive == "quiet"


@pytest.mark.parametrize("name", ["a/b", "/", "w/", ".", ".."])
def test_a_worker_id_that_no_path_can_hold_is_refused(api: Api, name: str) -> None:
    body = {"worker_id": name, "queues": ["default"]}
    for path in ("fetch", "heartbeat", "register", "deregister"):
        refused_field(api.post(f"/workers/{path}", body), "worker_id")
    assert not Worker.objects.exists()


def test_what_is_accepted_as_a_worker_id_has_an_address(api: Api) -> None:
    for name, path in (("box-7.example-4711-x", "box-7.example-4711-x"), ("a b%?#", "a%20b%25%3F%23")):
        assert api.post("/workers/beat", {"worker_id": name}).status == 200
        assert api.get(f"/workers/{path}").body["worker_id"] == name
