"""Tokens: rotation, revocation, and where the secret is."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connections
from django.test import override_settings

from django_ojs.api import get
from django_ojs.clock import FrozenClock
from django_ojs.models import ApiToken
from django_ojs.services import tokens
from tests.http.conftest import Caller
from tests.http.guarding import MISSING, error
from tests.http.support import Api, enqueue, fetch
from tests.http.test_matrix import ALL

pytestmark = pytest.mark.usefixtures("one_window")


def test_a_rotated_token_works_until_it_expires(caller: Caller, frozen: FrozenClock) -> None:
    old = caller(name="mine")
    enqueue(old)
    job = fetch(old, worker="w1", visibility_timeout_ms=0)[0]
    new = Api(tokens.rotate("mine", overlap=timedelta(minutes=10))[1])
    assert old.token != new.token
    beat = {"worker_id": "w1", "active_jobs": [job["id"]]}
    assert new.post("/workers/heartbeat", beat).body["jobs_extended"] == [job["id"]]
    done = {"job_id": job["id"], "lease_id": job["lease"]["id"]}
    assert new.post("/workers/ack", done).status == 200
    frozen.advance(599)
    assert old.get("/jobs").status == new.get("/jobs").status == 200
    frozen.advance(1)
    assert (old.get("/jobs").status, new.get("/jobs").status) == (401, 200)


def test_a_rotation_changes_neither_scopes_nor_queues(caller: Caller) -> None:
    caller("inspect", name="mine", queues=["q1"])
    new = Api(tokens.rotate("mine")[1])
    error(new.post("/jobs", {"type": "test.job", "args": [], "queue": "q1"}), 403, "permission_denied")
    error(new.get("/queues/q2"), 404, "not_found")


def test_a_revocation_holds_at_once(caller: Caller) -> None:
    mine, other = caller(name="mine"), caller(name="other")
    second = Api(tokens.rotate("mine")[1])
    assert mine.get("/jobs").status == second.get("/jobs").status == 200
    tokens.revoke("mine")
    assert mine.get("/jobs").status == second.get("/jobs").status == 401
    assert other.get("/jobs").status == 200


def test_one_of_two_tokens_is_revoked_by_its_prefix(caller: Caller) -> None:
    mine = caller(name="mine")
    second = Api(tokens.rotate("mine")[1])
    assert mine.token is not None
    tokens.revoke(mine.token.partition(".")[0])
    assert (mine.get("/jobs").status, second.get("/jobs").status) == (401, 200)


def test_the_secret_is_nowhere_but_with_its_owner(api: Api) -> None:
    assert api.token is not None
    prefix, _, secret = api.token.partition(".")
    job = enqueue(api)
    fetch(api)
    api.post("/workers/ack", {"job_id": job["id"]})
    connection = connections["default"]
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")
            assert secret not in repr(cursor.fetchall()), table
    row = ApiToken.objects.get()
    assert row.prefix == prefix
    assert [len(bytes.fromhex(part)) for part in row.secret_hash.split("$")] == [4, 16, 64]
    assert secret not in repr(row) and secret not in str(row)
    for path in ("/jobs", "/workers", "/events", "/admin/stats", "//ojs/manifest"):
        assert secret.encode() not in api.get(path).raw


def test_two_tokens_of_the_same_secret_have_other_hashes() -> None:
    assert tokens._hash("x", b"a" * 16) != tokens._hash("x", b"b" * 16)


def test_the_developers_token_works_in_development_only(ojs_db: None) -> None:
    dev = Api("dev")
    with override_settings(OJS={"HTTP": {"DEV_TOKEN": "dev"}}):
        with override_settings(DEBUG=False):
            error(dev.get("/jobs"), 401, "unauthenticated")
        with override_settings(DEBUG=True):
            assert dev.get("/jobs").status == 200
            error(Api("Dev").get("/jobs"), 401, "unauthenticated")
            error(Api("").get("/jobs"), 401, "unauthenticated")
    for nothing in (None, ""):
        with override_settings(DEBUG=True, OJS={"HTTP": {"DEV_TOKEN": nothing}}):
            for token in ("dev", "", "None"):
                error(Api(token).get("/jobs"), 401, "unauthenticated")


def test_directives_in_metadata_are_for_suites_only(api: Api) -> None:
    """Decision L7: nobody steers workers through the metadata of jobs."""
    enqueue(api, meta={"test_directive": "terminate"})
    job = fetch(api)[0]
    beat = {"worker_id": "w1", "active_jobs": [job["id"]]}
    for debug, allowed in ((False, True), (True, False)):
        with override_settings(DEBUG=debug, OJS={"HTTP": {"TEST_DIRECTIVES": allowed}}):
            assert api.post("/workers/heartbeat", beat).body["directive"] == "continue"
    for debug, order in ((False, "continue"), (True, "terminate")):
        with override_settings(DEBUG=debug, OJS={}):
            assert api.post("/workers/heartbeat", beat).body["directive"] == order


def test_a_credential_without_a_scope_for_it_changes_nothing(caller: Caller) -> None:
    every, reader = caller(name="all"), caller("inspect", name="reader")
    job = enqueue(every)
    before = get(job["id"])
    for op in ALL:
        if op.method != "GET" and op.action != "nothing":
            path = op.path.replace(MISSING, job["id"])
            error(reader(op.method, f"/{path}", {}), 403, "permission_denied")
    assert get(job["id"]) == before
