"""System checks of the backend, run by Django's check of ``TASKS``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.core import checks
from django.core.exceptions import ImproperlyConfigured

from django_ojs import conf
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.names import check_queue_name


def of_backend(alias: str, params: Mapping[str, Any]) -> list[Any]:
    """``ojs.E014``, ``ojs.E015``, ``ojs.W011`` for one entry of ``TASKS``."""
    return list(_findings(alias, params))


def _findings(alias: str, params: Mapping[str, Any]) -> Iterator[checks.CheckMessage]:
    for name in params.get("OPTIONS") or {}:
        yield checks.Error(
            f"TASKS[{alias!r}]['OPTIONS'] has an unknown key {name!r}: the backend has no options",
            hint="What holds for all jobs is in OJS, what holds for a task is given to @task.",
            id="ojs.E014",
        )
    for name in params.get("QUEUES", ()):
        try:
            check_queue_name(name, "QUEUES")
        except InvalidRequest as error:
            yield checks.Error(
                f"TASKS[{alias!r}]['QUEUES']: {name!r} cannot be the name of a queue: {error.rule}",
                hint="Queues are named like 'low_priority'.",
                id="ojs.E015",
            )
    try:
        database = conf.current().database
    except ImproperlyConfigured:
        return  # ojs.E001 says why
    if database != "default":
        yield checks.Warning(
            f"TASKS[{alias!r}]: tasks are enqueued in the database {database!r}, OJS['DATABASE']: "
            "not in the transactions of 'default'",
            hint="Enqueue with transaction.on_commit(), or keep both in one database.",
            id="ojs.W011",
        )
