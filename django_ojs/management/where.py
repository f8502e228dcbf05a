"""Which database a verb of ``ojs`` is about, where ``--database`` does not say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django_ojs import conf
from django_ojs.domain.errors import InvalidRequest
from django_ojs.services import databases

_FILTERED = frozenset({"list", "retry", "edit", "cancel"})


def database_of(options: Mapping[str, Any]) -> str:
    """That of the job, workflow, schedule, rate limit or queue which the verb names, else
    ``OJS["DATABASE"]``.

    Raises :class:`InvalidRequest` for queues in several, and the error of a database that does not
    answer if no other has what is named.
    """
    settings, verb = conf.current(), options["verb"]
    if not settings.databases.are_several:
        return settings.database
    if ids := options.get("ids"):
        return _having(ids[0], of_workflow=verb == "workflow")
    if verb == "enqueue":
        return databases.of_call(options["type"], options["queue"])
    if verb in _FILTERED:
        return databases.of_filter(options["queue"])
    if verb in ("pause", "resume"):
        found = list(databases.by_database(options["queues"]))
        if len(found) > 1:
            raise InvalidRequest("QUEUE", f"these are in several databases: {', '.join(found)}")
        return found[0]
    if verb == "rate-limit" and options.get("key"):
        return databases.of_rate_limit(options["key"])
    if verb == "cron" and options.get("name"):
        return databases.of_schedule(options["name"])
    return settings.database


def _having(text: str, *, of_workflow: bool) -> str:
    try:
        key = UUID(text)
    except ValueError:
        return conf.current().database  # the verb says what is wrong with it
    return databases.of_workflow(key) if of_workflow else databases.of_job(key)
