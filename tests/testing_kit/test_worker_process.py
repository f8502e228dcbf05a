"""A real worker on the database of a test."""

from __future__ import annotations

import os
import signal

import pytest
from django.conf import settings
from django.db import connections
from django.test import override_settings

import django_ojs
from django_ojs.domain.errors import NotFound
from django_ojs.models import Worker
from django_ojs.testing import WorkerProcess
from tests.support import alive, poll
from tests.workload.jobs import echo, keywords

pytestmark = pytest.mark.process


@pytest.mark.every_database
def test_it_runs_what_the_test_enqueues(ojs_db: None) -> None:
    with WorkerProcess() as worker:
        done = worker.wait(echo.enqueue({"a": 1}))
        assert (done.state, done.result) == ("completed", {"a": 1})
        assert worker.wait(str(keywords.enqueue(1, only=2).id)).state == "completed"
        assert "executors  1" in worker.output
        assert worker.stop() == 0
    assert not alive(worker.pid)
    assert not Worker.objects.exclude(phase="stopped").exists()


def test_its_options_and_its_environment(ojs_db: None, tmp_path: object) -> None:
    environment = {"OJS_WORKER_ID": "of-a-test"}
    with WorkerProcess("--queue", "mail", environment=environment) as worker:
        other = echo.enqueue(1)
        assert worker.wait(echo.using(queue="mail").enqueue(2)).state == "completed"
        assert "worker of-a-test" in worker.output
        assert django_ojs.get(other).state == "available"
        with pytest.raises(AssertionError, match=r"not within 0.1 s: job .* is available\ndjango-ojs "):
            worker.wait(other, timeout=0.1)
        with pytest.raises(NotFound):
            worker.wait(django_ojs.new_id())


def test_one_that_ends_is_noticed(ojs_db: None) -> None:
    one = echo.enqueue(1)
    with (
        WorkerProcess("--queue", "Not A Queue") as worker,
        pytest.raises(AssertionError, match=r"the worker has ended: job .* is available\n.*--queue"),
    ):
        worker.wait(one)
    with WorkerProcess("--queue", "none") as worker:
        poll(lambda: "executors" in worker.output)
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(AssertionError, match="the worker has ended"):
            worker.wait(one)
        assert worker.stop() == -signal.SIGKILL


def test_it_works_while_settings_are_overridden(ojs_db: None) -> None:
    """It does not see them, as its page says."""
    blocks = override_settings(TIME_ZONE="Asia/Tokyo"), override_settings(DEBUG=True)
    with blocks[0], blocks[1], WorkerProcess() as worker:
        assert worker.wait(echo.enqueue(1)).result == 1


def test_without_a_settings_module_it_is_refused(ojs_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "SETTINGS_MODULE", None)
    with pytest.raises(RuntimeError, match="settings that are a module"), WorkerProcess():
        pass


def test_where_it_could_see_nothing_it_is_refused(
    in_test_case: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RuntimeError, match="never commits: use TransactionTestCase"), WorkerProcess():
        pass
    connection = connections["default"]
    if connection.vendor == "sqlite":
        monkeypatch.setitem(connection.settings_dict, "NAME", ":memory:")
        with pytest.raises(RuntimeError, match="cannot share SQLite in memory"), WorkerProcess():
            pass
