"""``GET /metrics``: what a scraper gets, and who is let in."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from django.test import override_settings

from django_ojs.api import enqueue
from django_ojs.domain import exposition

from .conftest import Caller
from .support import Api

PATHS = ["//metrics", "/metrics"]
"""At the root, and below ``/ojs/v1``."""


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("scope", ["metrics", "inspect"])
def test_metrics_are_text(caller: Caller, path: str, scope: str) -> None:
    enqueue("a.job", queue="mail")
    answer = caller(scope).get(path, Accept="text/plain")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain"
    assert 'ojs_queue_depth{queue="mail",state="available"} 1\n' in answer.raw.decode()


@pytest.mark.parametrize(
    ("accept", "kind", "end"),
    [
        ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", exposition.VERSIONED, ""),
        (
            "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
            exposition.OPENMETRICS,
            "# EOF\n",
        ),
        ("*/*", exposition.PLAIN, ""),
    ],
)
def test_the_format_is_the_one_that_is_accepted(
    caller: Caller, accept: str, kind: str, end: str
) -> None:
    answer = caller("metrics").get("//metrics", Accept=accept)
    assert answer.headers["Content-Type"] == kind
    assert answer.raw.decode().endswith(end)


@pytest.mark.parametrize("scope", ["produce", "work", "administer"])
def test_other_scopes_do_not_read_them(caller: Caller, scope: str) -> None:
    assert caller(scope).get("/metrics").status == 403


def test_who_sees_some_queues_is_refused(caller: Caller) -> None:
    answer = caller("inspect", queues=["mail"]).get("/metrics")
    assert answer.status == 403
    assert "all queues" in answer.body["error"]["message"]


@override_settings(OJS={"HTTP": {"METRICS_TOKEN": "s3cret"}})
def test_the_token_of_the_settings_reads_metrics_and_nothing_else(ojs_db: None) -> None:
    scraper = Api("s3cret")
    assert scraper.get("//metrics").status == 200
    assert scraper.get("/jobs").status == 403
    assert Api("s3cre").get("/jobs").status == 401


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_nothing(caller: Caller) -> None:
    enqueue("a.job", queue="mail")
    text = caller("metrics").get("//metrics").raw
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
