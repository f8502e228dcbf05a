"""The backend of ``django.tasks`` that keeps its tasks as jobs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from django_ojs import clock, conf
from django_ojs.domain.envelope import Envelope, encode_args, from_call, mark
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.lru import LRU
from django_ojs.services import databases
from django_ojs.services.enqueue import DROPPED, enqueue
from django_ojs.tasks_backend import checks, results, signals
from django_ojs.tasks_backend.compat import (
    AnyResult,
    AnyTask,
    BaseTaskBackend,
    InvalidTask,
    normalize_json,
)
from django_ojs.tasks_backend.context import BACKEND
from django_ojs.tasks_backend.handlers import adopt, declared_policy, is_late
from django_ojs.tasks_backend.task import OJSTask, PreparedTask, policy_of

logger = logging.getLogger("django_ojs.tasks")
_SCALARS = frozenset({str, int, float, bool, type(None)})
_NO_TIME = datetime.min.replace(tzinfo=UTC)


class Prepared:
    """What all calls of a task have in common, checked once by a backend."""

    __slots__ = ("backend", "job_type", "late", "marked", "params", "plain")

    def __init__(self, backend: OJSBackend, job_type: str, plain: Envelope) -> None:
        self.backend = backend
        self.params = backend.params
        self.job_type = job_type
        self.plain = plain
        self.marked = mark(plain)
        self.late = is_late(job_type)


class OJSBackend(BaseTaskBackend):
    """Tasks are jobs in ``OJS["DATABASE"]``, run by ``manage.py runworker``.

    A task is enqueued in the transaction of its caller.
    """

    task_class = OJSTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.params = params
        # Those of other projects' task classes, which have no room for it.
        self._prepared: LRU[AnyTask, Prepared] = LRU(1000)
        signals.offer()

    def validate_task(self, task: AnyTask) -> None:
        """Check a task and register its function. Raises ``InvalidTask``."""
        super().validate_task(task)
        self._prepare(task)

    def enqueue(self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> AnyResult:  # type: ignore[override]
        """Insert a job in the caller's transaction.

        Raises ``TypeError`` for an argument that is no JSON, :class:`InvalidRequest` for one that no
        database could store, ``InvalidTask``, and :class:`Duplicate` for an ``id`` that is taken.
        """
        ready: Prepared | None = getattr(task, "prepared", None)
        # A backend of another thread has the same; others have changed since it was prepared.
        if ready is None or ready.params is not self.params:
            ready = self._found(task)
        if ready.late:
            self._warn(ready)
        template = ready.marked if kwargs else ready.plain
        text, args, kwargs = _encoded(args, kwargs)
        envelope = Envelope._make((template[0], text, *template[2:]))
        now = clock.now(databases.of_call(envelope.type, envelope.queue))
        job = enqueue([envelope], now=now)[0]
        if job.deduplicated or job.state == DROPPED:
            # Its id, or an equal job, was enqueued before.
            return results.from_job(job, self.alias, task)
        result = results.make(task, job, args, kwargs)
        signals.enqueued(type(self), result)
        return result

    def get_result(self, result_id: str) -> AnyResult:
        """The result of a task, by its id. Raises ``TaskResultDoesNotExist``.

        So it does after ``OJS["RETENTION"]`` has removed the job, and for a job whose type has no task
        in this process.
        """
        return results.result_of(result_id, self.alias)

    def check(self, **kwargs: Any) -> list[Any]:
        """The findings of the system check: ``ojs.E014``, ``ojs.E015``, ``ojs.W011``."""
        return checks.of_backend(self.alias, self.params)

    def call_of(self, task: AnyTask) -> tuple[str, dict[str, Any]]:
        """The job type of a task, and the options of its jobs as ``django_ojs.enqueue`` takes them."""
        job_type = adopt(task)
        known = declared_policy(job_type)
        # What the type declares is there anyway, and costs nothing at each enqueue.
        asked = {name: value for name, value in policy_of(task).items() if known.get(name) != value}
        # What workers do is said of the type, not of a job.
        asked.pop("on_partition", None)
        meta = getattr(task, "meta", None) or {}
        if not isinstance(meta, Mapping):
            raise InvalidRequest("meta", "must be an object")
        meta = dict(meta)
        if self.alias != "default":
            meta[BACKEND] = self.alias
        given = {
            **asked,
            "queue": task.queue_name,
            "priority": int(task.priority),
            "scheduled_at": task.run_after,
            "meta": meta or None,
            "tags": getattr(task, "tags", None),
            "id": getattr(task, "id", None),
        }
        return job_type, {name: value for name, value in given.items() if value is not None}

    def _prepare(self, task: AnyTask) -> Prepared:
        # Only a time is held against the clock, and tasks are declared before there is a database.
        try:
            job_type, options = self.call_of(task)
            using = databases.of_call(job_type, task.queue_name)
            now = _NO_TIME if task.run_after is None else clock.now(using)
            ready = Prepared(self, job_type, from_call(job_type, (), now=now, **options))
        except InvalidRequest as error:
            raise InvalidTask(f"{task.module_path}: {error}") from error
        if isinstance(task, PreparedTask):
            object.__setattr__(task, "prepared", ready)
        else:
            self._prepared.put(task, ready)
        return ready

    def _found(self, task: AnyTask) -> Prepared:
        ready = self._prepared.get(task)
        if ready is None:
            self.validate_task(task)
            ready = self._prepare(task)
        return ready

    def _warn(self, ready: Prepared) -> None:
        ready.late = False
        logger.warning(
            "the task %r was imported after the start: a worker knows it only if a module of "
            "OJS['AUTODISCOVER'] (%s) of an installed app imports it",
            ready.job_type,
            ", ".join(conf.current().autodiscover),
        )


def _encoded(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[str, list[Any], dict[str, Any]]:
    """The arguments as JSON text, and as the result has them."""
    for value in (*args, *kwargs.values()) if kwargs else args:
        if type(value) not in _SCALARS:
            given: Any = normalize_json(list(args))
            named: Any = normalize_json(dict(kwargs))
            break
    else:
        given, named = list(args), dict(kwargs)
    return encode_args([*given, named] if named else given), given, named
