"""The signals of ``django.tasks``: after the commit, and only if somebody listens."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from django.test import override_settings

from django_ojs import api
from django_ojs import signals as ours
from django_ojs.models import Job
from django_ojs.tasks_backend import OJSBackend, signals, task
from django_ojs.tasks_backend.compat import Task, task_enqueued, task_finished, task_started
from tests.services.support import ack, fail, take
from tests.workload.django_tasks import add, flaky

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]
ADD = ["tests.workload.django_tasks.add"]
FLAKY = ["tests.workload.django_tasks.flaky"]
PATH = "django_ojs.tasks_backend.OJSBackend"
OURS = (ours.job_started, ours.job_completed, ours.job_discarded, ours.job_cancelled)


@pytest.fixture
def heard() -> Iterator[list[tuple[str, Any]]]:
    """What receivers of the three signals get; afterwards nobody listens."""
    seen: list[tuple[str, Any]] = []

    def receiver_of(name: str) -> Any:
        def receive(sender: Any, task_result: Any, **kwargs: Any) -> None:
            assert sender is OJSBackend
            seen.append((name, task_result))

        return receive

    all_of = {"enqueued": task_enqueued, "started": task_started, "finished": task_finished}
    receivers = {name: receiver_of(name) for name in all_of}
    for name, signal in all_of.items():
        signal.connect(receivers[name])
    yield seen
    for name, signal in all_of.items():
        signal.disconnect(receivers[name])
    forget()


def forget() -> None:
    """As before somebody listened."""
    for signal, receiver in zip(OURS, (signals.started, *[signals.finished] * 3), strict=True):
        signal.disconnect(receiver)
        signal._offers.clear()
    signals._offered = False
    signals.offer()


def test_a_task_that_succeeds(heard: list[tuple[str, Any]]) -> None:
    result = add.enqueue(1)
    (job,) = take(types=ADD)
    ack(job, result="2")
    assert [(name, one.id, one.status) for name, one in heard] == [
        ("enqueued", result.id, "READY"),
        ("started", result.id, "RUNNING"),
        ("finished", result.id, "SUCCESSFUL"),
    ]
    assert heard[0][1] is result
    assert heard[2][1].return_value == 2


def elsewhere() -> None:
    """A task of another backend than the default one."""


def test_the_sender_is_the_backend_of_the_task_though_it_has_not_enqueued_it(
    heard: list[tuple[str, Any]],
) -> None:
    """A client over HTTP has, or a schedule."""
    immediate = f"{Task.__module__.rpartition('.')[0]}.backends.immediate.ImmediateBackend"
    both = {"default": {"BACKEND": immediate}, "ojs": {"BACKEND": PATH}}
    with override_settings(TASKS=both):
        task(type="test.elsewhere", backend="ojs")(elsewhere)
        api.enqueue("test.elsewhere")
        ack(*take(types=["test.elsewhere"]))
    assert [name for name, _ in heard] == ["started", "finished"]


def test_a_retry_finishes_nothing(heard: list[tuple[str, Any]]) -> None:
    flaky.enqueue(9)
    fail(*take(types=FLAKY))
    Job.objects.update(state="available")
    fail(*take(types=FLAKY))
    assert [name for name, _ in heard] == ["enqueued", "started", "started", "finished"]
    assert heard[-1][1].status == "FAILED"
    assert len(heard[-1][1].errors) == 2


def test_cancelled_is_finished(heard: list[tuple[str, Any]]) -> None:
    api.cancel(add.enqueue(1).id)
    assert [(name, one.status) for name, one in heard] == [
        ("enqueued", "READY"),
        ("finished", "FAILED"),
    ]


def test_nothing_is_sent_for_what_is_rolled_back(heard: list[tuple[str, Any]]) -> None:
    result = add.enqueue(1)
    with transaction.atomic():
        api.cancel(result.id)
        transaction.set_rollback(True)
    assert [name for name, _ in heard] == ["enqueued"]


def test_jobs_that_are_no_tasks_are_none(heard: list[tuple[str, Any]]) -> None:
    api.cancel(api.enqueue("work.echo", [1]))
    assert heard == []


def test_a_receiver_that_raises_breaks_nothing(heard: list[tuple[str, Any]]) -> None:
    def broken(**kwargs: Any) -> None:
        raise RuntimeError("no")

    task_enqueued.connect(broken)
    try:
        assert Job.objects.get(pk=add.enqueue(1).id).state == "available"
    finally:
        task_enqueued.disconnect(broken)


def test_where_nobody_listens_no_event_is_made() -> None:
    """Django's own receivers only log, and the worker has lines of its own."""
    forget()
    add.enqueue(1)
    (job,) = take(types=ADD)
    ack(job)
    assert not any(signal.receivers for signal in OURS)


def test_the_log_line_of_django_is_written_where_it_is_wanted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from django_ojs.tasks_backend.compat import logger

    with caplog.at_level(logging.DEBUG, logger.name):
        result = add.enqueue(1)
    assert [record.name for record in caplog.records if result.id in record.getMessage()] == [
        logger.name
    ]
