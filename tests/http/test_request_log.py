"""What a request may write into the log."""

from __future__ import annotations

import logging

import pytest

from tests.http.support import Api


@pytest.mark.fault("S12")
@pytest.mark.parametrize("text", ["a%0a127.0.0.1%20admin", "a%0d%0ab", "a%1b[2Jb", "a%e2%80%a8b"])
def test_a_path_cannot_begin_a_line_of_the_log(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    def broken(*_args: object, **_given: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr("django_ojs.http.views.jobs.JobViewSet.retrieve", broken)
    with caplog.at_level(logging.INFO):
        assert api.get(f"/jobs/{text}").status == 500
    said = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("GET /ojs/v1/jobs/a") for line in said)
    for line in said:
        assert line.isprintable(), line
