"""The manifest: what is there under the settings in force, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import override_settings

from django_ojs.http import routing
from tests.http.support import Api

pytestmark = pytest.mark.usefixtures("ojs_db")
EXTENSIONS = {
    "urn:ojs:ext:timeouts",
    "urn:ojs:ext:graceful-shutdown",
    "urn:ojs:ext:progress",
    "urn:ojs:ext:durable-execution",
    "urn:ojs:ext:rate-limiting",
    "urn:ojs:ext:unique-jobs",
}


def manifest() -> dict[str, Any]:
    answer = Api(None).get("//ojs/manifest")
    assert answer.status == 200
    found: dict[str, Any] = answer.body
    return found


def test_what_is_fully_there_and_nothing_else() -> None:
    found = manifest()
    assert set(found["extensions"]) == EXTENSIONS
    assert (found["conformance_level"], found["conformance_tier"]) == (4, "runtime")
    assert found["unique_job_strength"] == "strong"
    assert found["capabilities"]["unique_jobs"] is True
    assert found["capabilities"]["batch_enqueue"] is True
    assert not {"bulk_enqueue", "schema_registry"} & found["capabilities"].keys()


@pytest.mark.parametrize(
    ("events", "streamed"),
    [("all", True), ("problems", False), (["job.enqueued", "job.scheduled"], False)],
)
def test_the_stream_of_events_follows_the_setting(events: Any, streamed: bool) -> None:
    with override_settings(OJS={"EVENTS": events}):
        capabilities = manifest()["capabilities"]
    assert (capabilities["events"], capabilities["event_stream"]) == (True, streamed)


def test_every_endpoint_is_there(api: Api) -> None:
    for name, path in manifest()["endpoints"].items():
        if name != "event_stream":
            assert api.get(f"/{path}").status in (200, 405), name


def test_every_capability_belongs_to_a_route() -> None:
    capabilities = manifest()["capabilities"]
    registered = {name for part in routing.features() for name in part.capabilities}
    assert {name for name, there in capabilities.items() if there} <= registered
    assert capabilities.keys() == registered | {"schema_validation"}


def test_a_standard_capability_that_is_missing_is_denied() -> None:
    """Clients of OJS HTTP 21 read flags; schemas are stored, but not enforced."""
    assert manifest()["capabilities"]["schema_validation"] is False


def test_a_schema_is_stored_with_a_warning(api: Api) -> None:
    for status in (201, 200):
        answer = api("PUT", "/admin/schemas/probe.w/1", {"schema": {"type": "bogus-type"}})
        assert answer.status == status
        assert [(one["field"], one["message"]) for one in answer.body["warnings"]] == [
            ("schema", "stored, not enforced")
        ]
        assert answer.headers["OJS-Warnings"] == "field=schema"
    assert "warnings" not in api.get("/admin/schemas/probe.w/1").body


def test_an_extension_that_is_not_there_is_refused(api: Api) -> None:
    asked = {"OJS-Requires-Extension": "urn:ojs:ext:timeouts, urn:ojs:ext:encryption"}
    refused = api.post("/jobs", {"type": "t", "args": []}, **asked)
    assert (refused.status, refused.code) == (422, "EXTENSION_NOT_SUPPORTED")
    assert refused.body["error"]["details"]["extension"] == "urn:ojs:ext:encryption"
    for name in EXTENSIONS:
        assert api.post("/jobs", {"type": "t", "args": []}, OJS_Requires_Extension=name).status == 201
    assert api.get("/jobs", OJS_Requires_Extension="urn:x").status == 422
    assert Api(None).get("/jobs", OJS_Requires_Extension="urn:x").status == 401
