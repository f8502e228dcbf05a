"""What is not done as asked is said: near misses, and what is not built yet."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.support import Answer, Api, enqueue, fetch, refused_field


def push(api: Api, **body: Any) -> Answer:
    return api.post("/jobs", {"type": "test.job", "args": [], **body})


def warned(answer: Answer) -> list[tuple[str, str | None]]:
    assert answer.status < 300, answer.raw
    return [(one["field"], one.get("near")) for one in answer.body.get("warnings", [])]


def test_a_near_miss_is_kept_and_named(api: Api) -> None:
    answer = push(api, timout=5)
    assert warned(answer) == [("timout", "timeout")]
    assert answer.headers["OJS-Warnings"] == "field=timout; near=timeout"
    assert answer.body["job"]["timout"] == 5
    assert warned(push(api, execution_timeout=5)) == [("execution_timeout", "timeout")]
    assert warned(push(api, max_attempts=9)) == [("max_attempts", "retry.max_attempts")]
    assert warned(push(api, options={"timout": 5})) == [("options.timout", "options.timeout")]


def test_a_near_miss_in_a_unique_policy_is_named(api: Api) -> None:
    """Without its ``on_conflict`` a policy means something else."""
    policy = {"keys": ["type", "queue"], "on_conflct": "replace", "note": "ours"}
    answer = push(api, unique=policy, queue="near")
    assert warned(answer) == [("unique.on_conflct", "unique.on_conflict")]
    assert answer.body["job"]["unique"]["on_conflct"] == "replace"
    named = [("options.unique.argsKeys", "options.unique.args_keys")]
    answer = push(api, options={"unique": {"keys": ["args"], "argsKeys": ["a"]}}, queue="near")
    assert warned(answer) == named


def test_what_is_nobodys_is_kept_without_a_word(api: Api) -> None:
    answer = push(api, ext_timout=5, x_timout=6, custom={"a": 1}, timeout=30)
    assert warned(answer) == []
    assert "OJS-Warnings" not in answer.headers
    assert answer.body["job"]["ext_timout"] == 5


def test_a_batch_names_the_job(api: Api) -> None:
    jobs = [{"type": "a", "args": []}, {"type": "a", "args": [], "timout": 1, "queu": "q"}]
    answer = api.post("/jobs/batch", {"jobs": jobs})
    assert [(one["index"], one["field"]) for one in answer.body["warnings"]] == [
        (1, "timout"),
        (1, "queu"),
    ]
    lines = "index=1; field=timout; near=timeout, index=1; field=queu; near=queue"
    assert answer.headers["OJS-Warnings"] == lines


def test_odd_names_are_safe_in_the_header(api: Api) -> None:
    answer = push(api, **{"timeo\r\nut": 1, "tïmeout": 2})
    assert answer.headers["OJS-Warnings"].count("\n") == 0
    assert len(warned(answer)) == 2


@pytest.mark.parametrize(
    "body",
    [
        {"workflow_timeout": 30},
        {"schema": "urn:a:1"},
    ],
)
def test_what_is_not_built_is_named(api: Api, body: dict[str, Any]) -> None:
    (name,) = body
    for asked in (body, {"options": body}):
        answer = push(api, **asked)
        assert warned(answer) == [(name, None)]
        assert answer.headers["OJS-Warnings"] == f"field={name}"
        assert answer.body["job"][name] == body[name]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"rate_limit": {"key": ""}}, "rate_limit.key"),
        ({"rate_limit": {"rate": -1}}, "rate_limit.rate"),
        ({"rate_limit": {"concurrency": -1}}, "rate_limit.concurrency"),
        ({"rate_limit": {"period": "fortnight"}}, "rate_limit.period"),
        ({"rate_limit": {"rate": {"limit": True}}}, "rate_limit.rate.limit"),
        ({"workflow_timeout": "soon"}, "workflow_timeout"),
    ],
)
def test_what_is_not_built_is_checked(api: Api, body: dict[str, Any], field: str) -> None:
    refused_field(push(api, **body), field)
    refused_field(push(api, options=body), field)


def test_the_config_of_a_queue(api: Api) -> None:
    answer = api.post("/queues", {"name": "kcfg", "config": {"max_size": 5}})
    assert warned(answer) == [("config", None)]
    refused_field(api.post("/queues", {"name": "kcfg", "config": 5}), "config")
    refused_field(api.post("/queues", {"name": "kcfg", "config": {"max_size": 0}}), "config.max_size")


def test_a_tenant_is_named(api: Api) -> None:
    job = api.post("/jobs", {"type": "a", "args": []}, X_OJS_Tenant="t1")
    assert warned(job) == [("X-OJS-Tenant", None)]
    assert warned(api.get("/jobs", X_OJS_Tenant="t1")) == [("X-OJS-Tenant", None)]
    refused_field(api.get("/jobs", X_OJS_Tenant="x" * 300), "X-OJS-Tenant")


def test_the_retry_of_a_dead_letter_may_override_the_queue(api: Api) -> None:
    enqueue(api, retry={"max_attempts": 1, "on_exhaustion": "dead_letter"})
    job = fetch(api)[0]
    api.post("/workers/nack", {"job_id": job["id"], "error": {"message": "no"}})
    path = f"/dead-letter/{job['id']}/retry"
    refused_field(api.post(path, {"override": {"args": [1]}}), "override.args")
    refused_field(api.post(path, {"override": []}), "override")
    refused_field(api.post(path, {"override": {"queue": "No"}}), "queue")
    answer = api.post(path, {"override": {"queue": "kdl2"}})
    assert (answer.status, answer.body["job"]["queue"]) == (200, "kdl2")
