"""Schemas: who writes them, and when two are the same."""

from __future__ import annotations

import pytest

from django_ojs.domain.errors import Conflict
from django_ojs.extensions.schemas import services as schemas
from django_ojs.models import JobSchema
from tests.http.conftest import Caller
from tests.http.support import Api


def test_schemas_are_written_by_those_who_see_all_queues(api: Api, caller: Caller) -> None:
    JobSchema.objects.all().delete()
    some = caller("administer", "inspect", queues=["mine"])
    body = {"schema": {"type": "array"}}
    assert some("PUT", "/admin/schemas/a.b/1", body).code == "permission_denied"
    assert not JobSchema.objects.exists()
    assert api("PUT", "/admin/schemas/a.b/1", body).status == 201
    answer = some("DELETE", "/admin/schemas/a.b/1")
    assert (answer.status, answer.code) == (403, "permission_denied")
    assert some.get("/admin/schemas/a.b").status == 200
    assert api("DELETE", "/admin/schemas/a.b/1").status == 200


def test_true_and_one_are_different_schemas(ojs_db: None) -> None:
    JobSchema.objects.all().delete()
    schemas.put("a.b", 1, {"const": 1})
    assert schemas.put("a.b", 1, {"const": 1})[1] is False
    with pytest.raises(Conflict):
        schemas.put("a.b", 1, {"const": True})
    JobSchema.objects.all().delete()


@pytest.mark.parametrize("version", ["x", "0", "-1", "1.0", "2147483648"])
def test_what_is_no_number_of_a_version_is_not_found(api: Api, version: str) -> None:
    path = f"/admin/schemas/a.b/{version}"
    for method in ("GET", "DELETE"):
        answer = api(method, path)
        assert (answer.status, answer.code) == (404, "not_found")
        details = answer.body["error"]["details"]
        assert details == {"resource_type": "schema", "resource_id": f"a.b/{version}"}
    answer = api("PUT", path, {"schema": {"type": "array"}})
    assert (answer.status, answer.code) == (400, "invalid_request")
