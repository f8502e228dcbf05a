"""Incidents: what is alike but for numbers, ids and addresses, and what is not."""

from __future__ import annotations

import json

import pytest

from django_ojs.domain.failures import Failure
from django_ojs.domain.incidents import identify, incident_of, normalised
from django_ojs.domain.lifecycle import fail
from tests.domain.records import NOW, running


@pytest.mark.parametrize(
    ("message", "without"),
    [
        ("'currency'", "'currency'"),
        ("order 3044 not found", "order # not found"),
        ("no 019539a4-b68c-7def-8000-1a2b3c4d5e6f here", "no # here"),
        ("<Order object at 0x7f3a2c1d9e80>", "<Order object at #>"),
        ("ada@example.org bounced after 1.5 s", "# bounced after # s"),
        ("at 10.0.0.7:5432, 2026-02-12", "at #, #-#-#"),
        ("digest deadbeef01 of 9f86d081884c7d65", "digest # of #"),
        ("the feedback facade failed", "the feedback facade failed"),
        ("two\n lines", "two lines"),
    ],
)
def test_what_differs_from_job_to_job_is_left_out(message: str, without: str) -> None:
    assert normalised(message) == without


def test_a_type_an_error_and_a_message_make_an_incident() -> None:
    one = identify("mail.send", "builtins.KeyError", "order 1")
    assert len(one) == 16 and int(one, 16) >= 0
    assert identify("mail.send", "builtins.KeyError", "order 22") == one
    others = {
        identify("mail.read", "builtins.KeyError", "order 1"),
        identify("mail.send", "builtins.ValueError", "order 1"),
        identify("mail.send", "builtins.KeyError", "letter 1"),
    }
    assert len(others | {one}) == 4
    assert identify("t", "x" * 250, "") == identify("t", "x" * 200, "")


def test_what_the_server_says_of_a_timeout_is_one_incident() -> None:
    said = identify("t", "total_timeout", "Job exceeded its total timeout of 5 seconds")
    assert identify("t", "total_timeout", "") == said


def test_a_failure_writes_the_incident_of_its_cause() -> None:
    broken = Failure("app.Broken", "order 7")
    late = running(total_timeout_ms=500, timeout_ms=60_000)
    changes = fail(late, broken, now=NOW, jitter=0.0).changes
    error = json.loads(changes["error"])
    assert error["type"] == "total_timeout"
    expected = identify(late.type, "app.Broken", "order 8")
    assert changes["incident"] == expected == incident_of(late.type, error)
    retried = fail(running(), broken, now=NOW, jitter=0.0)
    assert (retried.written.state, retried.written.incident) == ("retryable", expected)
