"""``@periodic``: what it takes, where it stands, and what it refuses (OJS cron 2)."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs import JobContext, job, periodic
from django_ojs.domain.errors import InvalidRequest
from django_ojs.handlers import registry
from django_ojs.services.schedules import declared


@pytest.fixture(autouse=True)
def no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declared, "_declared", {})
    monkeypatch.setattr(registry, "_handlers", {})


def test_a_handler_may_have_several() -> None:
    @periodic("0 6 * * *", timezone="Europe/Berlin", jitter="5m")
    @periodic(every="5m", name="often", args=["eu"], overlap="allow")
    @job("periodic.report", queue="reports")
    def report(ctx: JobContext, region: str = "all") -> str:
        return region

    found = {spec.name: spec for spec, _ in declared.declared()}
    assert sorted(found) == ["often", "periodic.report"]
    assert found["often"].expression == "@every PT5M"
    assert found["often"].envelope.args_json == '["eu"]'
    assert found["periodic.report"].jitter_ms == 300_000


def test_options_of_the_job_come_from_using() -> None:
    @job("periodic.report")
    def report() -> None: ...

    periodic("@daily")(report.using(queue="low", priority=-5))
    ((spec, _),) = declared.declared()
    assert (spec.envelope.queue, spec.envelope.priority) == ("low", -5)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"schedule": "61 * * * *"}, InvalidRequest, "expression: minute"),
        ({"schedule": "@daily", "timezone": "EST"}, InvalidRequest, "timezone: must be an IANA name"),
        ({}, InvalidRequest, "schedule: must be given, or every"),
        ({"schedule": "@daily", "args": [1, 2]}, TypeError, "too many positional arguments"),
        ({"schedule": "@daily", "overlaps": "skip"}, TypeError, "did you mean 'overlap'"),
        ({"schedule": "@daily", "name": "Not this"}, InvalidRequest, "name: must be of"),
    ],
)
def test_what_is_refused(options: dict[str, Any], error: type[Exception], message: str) -> None:
    @job("periodic.one")
    def one(value: int = 0) -> None: ...

    with pytest.raises(error) as refused:
        periodic(**options)(one)
    assert message in str(refused.value)


def test_it_stands_above_a_handler() -> None:
    with pytest.raises(TypeError, match="stands above @job or @task"):
        periodic("@daily")(print)
