"""Which events of jobs become events of Sentry, with its real client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sentry_sdk
from django.db import OperationalError
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from django_ojs import api
from django_ojs.handlers import execution
from django_ojs.models import Schedule
from django_ojs.observability import sentry, sentry_check_ins
from django_ojs.observability.sentry import OJSIntegration, frames_of
from django_ojs.services import databases, operate
from django_ojs.signals import job_cancelled, job_discarded, job_failed
from django_ojs.testing.in_process import InProcessSupervisor
from tests.services.support import fail, make, take
from tests.support import not_none

pytestmark = pytest.mark.usefixtures("ojs_db")


class Captured(Transport):
    """A transport that keeps the events."""

    def __init__(self) -> None:
        super().__init__({})
        self.events: list[Any] = []
        self.check_ins: list[Any] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self.events += [event for event in [envelope.get_event()] if event is not None]
        checks = [item for item in envelope.items if item.type == "check_in"]
        self.check_ins += [not_none(item.payload.json) for item in checks]


@pytest.fixture
def captured() -> Iterator[Captured]:
    transport = Captured()
    before = sentry_sdk.get_global_scope().client
    sentry_sdk.init(
        dsn="http://key@127.0.0.1:9/1",
        transport=transport,
        integrations=[OJSIntegration()],
        default_integrations=False,
        auto_enabling_integrations=False,
    )
    if sentry.NAME not in execution.chain.names():
        # Sentry calls it once in a process, for the first test.
        OJSIntegration.setup_once()
    yield transport
    sentry_sdk.get_client().close()
    sentry_sdk.get_global_scope().set_client(before)
    job_failed.disconnect(dispatch_uid="django_ojs.observability.sentry.failed")
    job_discarded.disconnect(dispatch_uid="django_ojs.observability.sentry.discarded")
    job_cancelled.disconnect(dispatch_uid="django_ojs.observability.sentry.cancelled")
    execution.chain.reset()


def test_frames() -> None:
    backtrace = [
        "Traceback (most recent call last):",
        '  File "/srv/a.py", line 1, in first\n    x = 1\n        ^',
        "KeyError: 1",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        "Traceback (most recent call last):",
        '  File "/srv/a.py", line 3, in <module>\n    run()',
        '  File "/srv/b.py", line 12, in run',
        "ValueError: no",
    ]
    assert frames_of(backtrace) == [
        {
            "filename": "/srv/a.py",
            "abs_path": "/srv/a.py",
            "lineno": 3,
            "function": "<module>",
            "context_line": "run()",
        },
        {"filename": "/srv/b.py", "abs_path": "/srv/b.py", "lineno": 12, "function": "run"},
    ]
    assert frames_of(["Error: no", "    at run (b.js:12:3)"]) == []


def failing(max_attempts: int, **failure: Any) -> api.JobRecord:
    """A job whose first attempt has failed."""
    (job,) = make(retry={"max_attempts": max_attempts})
    fail(*take(), **failure)
    return api.get(job)


def test_an_attempt_that_will_be_repeated_is_no_event(captured: Captured) -> None:
    assert failing(2).state == "retryable"
    assert captured.events == []


def test_a_discarded_job_is_one_event(captured: Captured) -> None:
    job = failing(1, backtrace=['  File "/srv/a.py", line 3, in run', "test.Error: no"])
    (event,) = captured.events
    assert event["level"] == "error"
    assert event["tags"]["ojs.queue"] == "default"
    assert event["contexts"]["ojs"]["job_id"] == str(job.id)
    assert "fingerprint" not in event
    (exception,) = event["exception"]["values"]
    assert (exception["type"], exception["value"]) == ("Error", "no")
    assert exception["stacktrace"]["frames"][0]["function"] == "run"


def test_what_a_person_discards_is_no_event(captured: Captured) -> None:
    (job,) = make()
    operate.discard([job.id])
    assert api.get(job).state == "discarded"
    assert captured.events == []


@pytest.mark.parametrize("type", ["worker_crash", "timeout"])
def test_what_no_code_has_seen_is_an_event_though_it_is_repeated(captured: Captured, type: str) -> None:
    failing(2, type=type)
    (event,) = captured.events
    kind = "execution" if type == "timeout" else type
    assert event["fingerprint"] == ["ojs", "test.job", kind]
    assert event["contexts"]["ojs"]["state"] == "retryable"


def test_without_the_integration_nothing_is_sent(captured: Captured) -> None:
    transport = Captured()
    sentry_sdk.init(
        dsn="http://key@127.0.0.1:9/1",
        transport=transport,
        default_integrations=False,
        auto_enabling_integrations=False,
    )
    failing(1)
    assert (captured.events, transport.events) == ([], [])


def test_the_jobs_of_a_schedule_are_check_ins(captured: Captured) -> None:
    Schedule.objects.create(
        name="shop.daily", source="code", expression="0 6 * * *", timezone="Europe/Berlin"
    )
    done, given_up = make(2, meta={"cron_name": "shop.daily"}, retry={"max_attempts": 1})
    plain = make(1)[0]
    with checking_in():
        for job in take(3):
            context = not_none(InProcessSupervisor(job, using="default").context())
            if job.id != given_up.id:
                sentry.isolate(context, lambda context: "ok")
            else:
                fail(job)
    found = [(one["monitor_slug"], one["check_in_id"], one["status"]) for one in captured.check_ins]
    assert found == [
        ("shop-daily", done.id.hex, "in_progress"),
        ("shop-daily", done.id.hex, "ok"),
        ("shop-daily", given_up.id.hex, "error"),
    ]
    assert plain.id.hex not in {one["check_in_id"] for one in captured.check_ins}
    config = captured.check_ins[0]["monitor_config"]
    assert config["schedule"] == {"type": "crontab", "value": "0 6 * * *"}
    assert config["timezone"] == "Europe/Berlin"


@pytest.mark.parametrize("end", [operate.cancel, operate.discard])
def test_a_check_in_ends_when_a_person_ends_its_job(
    captured: Captured, end: Callable[..., Any]
) -> None:
    """Sentry would wait for it, and report that it has run for too long."""
    (scheduled,) = make(1, meta={"cron_name": "shop.daily"})
    (plain,) = make(1)
    with checking_in():
        end([scheduled.id, plain.id])
    found = [(one["monitor_slug"], one["check_in_id"], one["status"]) for one in captured.check_ins]
    assert found == [("shop-daily", scheduled.id.hex, "error")]
    assert captured.events == []


def test_a_database_that_is_away_costs_no_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(name: str) -> str:
        raise OperationalError("the server is gone")

    monkeypatch.setattr(databases, "of_schedule", away)
    assert sentry_check_ins.config_of("x") is None


def test_a_schedule_that_was_changed_is_checked_by_its_new_times(captured: Captured) -> None:
    """In the same process: the monitor would wait for the old ones as long as it lives."""
    Schedule.objects.create(name="shop.daily", source="code", expression="0 6 * * *")
    make(2, meta={"cron_name": "shop.daily"})
    with checking_in():
        for changes in ({}, {"expression": "@every 90m", "timezone": "Europe/Berlin"}):
            if changes:
                Schedule.objects.update(**changes)
            (job,) = take()
            context = not_none(InProcessSupervisor(job, using="default").context())
            sentry.isolate(context, lambda context: "ok")
    configs = [one["monitor_config"] for one in captured.check_ins if one["status"] == "in_progress"]
    assert [(config["schedule"], config["timezone"]) for config in configs] == [
        ({"type": "crontab", "value": "0 6 * * *"}, "UTC"),
        ({"type": "interval", "value": 90, "unit": "minute"}, "Europe/Berlin"),
    ]


@contextmanager
def checking_in() -> Iterator[None]:
    integration = not_none(sentry._integration())
    integration.check_ins = True
    try:
        yield
    finally:
        integration.check_ins = False


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("@daily", {"type": "crontab", "value": "0 0 * * *"}),
        ("@every 90m", {"type": "interval", "value": 90, "unit": "minute"}),
        ("@every 90s", None),
        ("0 0 6 * * *", None),
    ],
)
def test_what_sentry_is_to_expect(expression: str, expected: Any) -> None:
    Schedule.objects.create(name="x", source="code", expression=expression)
    found = sentry_check_ins.config_of("x")
    assert (found and found["schedule"]) == expected
    assert sentry_check_ins.config_of("unknown") is None
