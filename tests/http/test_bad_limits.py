"""Every limit in every bad form, and in its good ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from django_ojs.domain.limits import NAMES
from django_ojs.models import Job, Worker
from tests.http.refusing import push, refused, row
from tests.http.support import Api, enqueue, fetch

# Limits

BAD = {
    "true": "true",
    "float": "1.5",
    "whole float": "5.0",
    "exponent": "1e3",
    "unit": '"5x"',
    "blanks": '" 5 "',
    "newline": r'"5\n"',
    "arabic": '"٣"',
    "full width": '"\uff15"',
    "superscript": '"²"',
    "underscore": '"1_000"',
    "decimal": '"1.5"',
    "exponent text": '"1e3"',
    "negative": "-1",
    "negative text": '"-1"',
    "plus": '"+5"',
    "negative iso": '"-PT5S"',
    "year": '"P1Y"',
    "bare": '"P"',
    "bare time": '"PT"',
    "zero": "0",
    "zero text": '"0"',
    "zero duration": '"PT0S"',
    "empty": '""',
    "array": "[5]",
    "object": '{"seconds":5}',
    "eleven years": str(11 * 366 * 86400),
    "huge": "1" + "0" * 22,
    "huge text": '"99999999999999999999"',
    "long text": '"' + "5" * 5000 + '"',
}
ZEROS = {"zero", "zero text", "zero duration"}
BAD_MS = ("true", "1.5", "5.0", "1e3", '"5"', '"PT5S"', "-1", "[5]", "{}", "1" + "0" * 22, '""')


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.fault("F106", "F115", "F116")
def test_every_limit_in_every_bad_form(api: Api, name: str) -> None:
    """400, naming the field as it was written; at the top level, in options, in a batch, in PATCH."""
    job = enqueue(api)
    before = row(job)
    for kind, text in BAD.items():
        if name == "grace_period" and kind in ZEROS:
            continue
        _limit_is_refused(api, job, name, text)
    for text in BAD_MS:
        _limit_is_refused(api, job, f"{name}_ms", text)
    assert row(job) == before
    assert Job.objects.count() == 1


def _limit_is_refused(api: Api, job: Mapping[str, Any], name: str, text: str) -> None:
    body = f'{{"type":"test.job","args":[],"{name}":{text}}}'
    refused(api.post("/jobs", body.encode()), 400, "invalid_request", name)
    inside = f'{{"type":"test.job","args":[],"options":{{"{name}":{text}}}}}'
    refused(api.post("/jobs", inside.encode()), 400, "invalid_request", f"options.{name}")
    batch = f'{{"jobs":[{{"type":"test.job","args":[]}},{body}]}}'
    error = refused(api.post("/jobs/batch", batch.encode()), 400, "invalid_request", name)
    assert error["details"]["index"] == 1
    patch = f'{{"{name}":{text}}}'
    refused(api("PATCH", f"/jobs/{job['id']}", patch.encode()), 400, "invalid_request", name)


@pytest.mark.parametrize("name", NAMES)
def test_every_limit_in_its_good_forms(api: Api, name: str) -> None:
    plain = row(enqueue(api))
    body: dict[str, Any]
    for body in ({name: None}, {f"{name}_ms": None}, {f"{name}_ms": 0}, {"options": {name: None}}):
        assert row(enqueue(api, **body))[f"{name}_ms"] == plain[f"{name}_ms"], body
    for value in (5, "5", "5s", "5000ms", "PT5S", "PT5.0S"):
        for body in ({name: value}, {"options": {name: value}}):
            assert row(enqueue(api, **body))[f"{name}_ms"] == 5000, body
    assert row(enqueue(api, **{f"{name}_ms": 1}))[f"{name}_ms"] == 1
    if name == "grace_period":
        assert row(enqueue(api, grace_period=0))["grace_period_ms"] == 0


@pytest.mark.fault("F116")
def test_total_below_timeout(api: Api) -> None:
    for body in (
        {"timeout": 10, "total_timeout": 9},
        {"timeout_ms": 10_001, "total_timeout": 10},
        {"options": {"timeout": "PT1H"}, "total_timeout": "59m"},
    ):
        error = refused(push(api, **body), 400, "invalid_request", "total_timeout")
        assert "timeout" in error["details"]["rule"]
    assert push(api, timeout=10, total_timeout=10).status == 201
    assert push(api, total_timeout=5).status == 201, "below the default is no contradiction"


@pytest.mark.parametrize("name", ["visibility_timeout", "visibility_timeout_ms", "visibility_ms"])
def test_visibility_in_every_bad_form(api: Api, name: str) -> None:
    enqueue(api)
    texts = BAD_MS if name.endswith("_ms") else BAD.values()
    for text in texts:
        asked = f'{{"queues":["default"],"worker_id":"w1","{name}":{text}}}'
        for path in ("/workers/fetch", "/workers/heartbeat"):
            refused(api.post(path, asked.encode()), 400, "invalid_request", name)
    assert not Worker.objects.exists()
    assert fetch(api), "nothing was claimed"


@pytest.mark.parametrize("name", ["extend_timeout", "by", "timeout"])
def test_extensions_in_every_bad_form(api: Api, name: str) -> None:
    enqueue(api)
    job = fetch(api)[0]
    before = row(job)
    for text in BAD.values():
        body = f'{{"{name}":{text}}}'
        refused(api.post(f"/jobs/{job['id']}/extend", body.encode()), 400, "invalid_request", name)
    for text in (*BAD_MS, "0"):
        body = f'{{"{name}_ms":{text}}}'
        answer = api.post(f"/jobs/{job['id']}/extend", body.encode())
        refused(answer, 400, "invalid_request", f"{name}_ms")
    refused(api.post(f"/jobs/{job['id']}/extend", {}), 400, "invalid_request", "extend_timeout")
    assert row(job) == before
