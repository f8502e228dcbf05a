"""40001 at a commit, or instead of a statement: what is ours is run again, the rest is the caller's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import OperationalError, connections, transaction

from django_ojs import api, clock, hooks
from django_ojs.extensions.schemas import services as schemas
from django_ojs.models import Job, Queue
from django_ojs.services import enqueue as enqueue_service
from django_ojs.services import prune, reap, rollup, workers
from django_ojs.store import contention
from django_ojs.store.contention import repeating_statements
from tests.distributed.engine.base import Behaviour
from tests.http.support import Api, enqueue, fetch
from tests.services.support import ack, fail, make, take
from tests.support import poll

pytestmark = [
    pytest.mark.every_database,
    pytest.mark.usefixtures("ojs_db"),
    pytest.mark.fault("F77"),
]


def code(error: BaseException) -> str | None:
    """The code of the server for an error."""
    return getattr(error.__cause__, "sqlstate", None)


def refusals(work: Callable[[], object]) -> int:
    """How often the engine refuses something while ``work`` is done."""
    before = Behaviour.refused
    work()
    return Behaviour.refused - before


def test_an_enqueue_outside_a_transaction_is_run_again() -> None:
    assert refusals(lambda: api.enqueue("test.job")) >= 1
    assert Job.objects.count() == 1
    assert Queue.objects.get().name == "default", "the row of a queue that is new, too"


def test_so_are_many_at_once() -> None:
    assert refusals(lambda: api.enqueue_many("test.job", [[n] for n in range(1500)])) >= 1
    assert Job.objects.count() == 1500


def test_what_lies_in_the_transaction_of_a_caller_is_left_to_him() -> None:
    Behaviour.refused, before = 0, Behaviour.refused
    try:
        with transaction.atomic():
            api.enqueue("test.job")
        assert Behaviour.refused <= 1, "of ours, the row of the queue after the commit"
        connection = connections["default"]
        with pytest.raises(OperationalError) as refused, transaction.atomic():
            api.enqueue("test.job")
            connection.refuse_once("a statement of the caller's")  # type: ignore[attr-defined]
        assert code(refused.value) == "40001"
        assert contention.is_contention(refused.value)
    finally:
        Behaviour.refused += before
    assert Job.objects.count() == 1


def test_a_whole_life_is_run_again_where_it_is_refused() -> None:
    def live() -> None:
        make(3, retry={"max_attempts": 1})
        one, two, three = take(3)
        ack(one)
        fail(two)
        api.cancel(three.id)
        api.retry(two.id)

    assert refusals(live) >= 7
    assert sorted(Job.objects.values_list("state", flat=True)) == [
        "available",
        "cancelled",
        "completed",
    ]


def test_so_is_what_runs_over_time() -> None:
    """Each task as its thread runs it."""
    make(3, retry={"max_attempts": 1})
    for job in take(3):
        ack(job)
    Job.objects.update(finished_at=clock.now("default") - timedelta(days=30))

    def tend() -> None:
        with repeating_statements("default"):
            for task in hooks.maintenance_tasks():
                task.run("default")
            rollup.rollup()
            prune.prune()
            reap.reap()

    assert refusals(tend) >= 5
    assert Job.objects.count() == 0


def test_so_are_workers_and_schemas() -> None:
    info = workers.WorkerInfo("w1", clock.new_id())
    workers.register(info)
    assert refusals(lambda: workers.report(info, phase="running", running=0)) == 1
    assert refusals(lambda: schemas.put("test.job", 1, {"type": "array"})) == 1
    assert refusals(lambda: schemas.delete("test.job", 1)) == 1


def test_a_client_over_http_notices_nothing() -> None:
    from django_ojs.services import tokens

    caller = Api(tokens.create("everything", scopes=tokens.SCOPES, queues=["*"])[1])

    def talk() -> None:
        enqueue(caller)
        (job,) = fetch(caller)
        report = {"job_id": job["id"], "lease_id": job["lease"]["id"]}
        error = {"type": "x", "message": "y", "rate_limit_until": "2099-01-01T00:00:00Z"}
        assert caller.post("/workers/nack", {**report, "error": error}).status == 200
        assert caller.get("/jobs").status == 200

    assert refusals(talk) >= 4


def test_real_refusals_at_commit_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims and settlements at the same time, as many as the engine itself refuses."""
    monkeypatch.setattr(Behaviour, "refuses", False)
    make(200)
    seen: list[str] = []
    real = contention.is_contention

    def counted(error: BaseException) -> bool:
        if code(error) == "40001":
            seen.append(str(error))
        return real(error)

    monkeypatch.setattr(contention, "is_contention", counted)
    claimed: list[object] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with repeating_statements("default"):
                with connections["default"].cursor() as cursor:
                    cursor.execute("SET default_transaction_isolation = 'serializable'")
                while Job.objects.filter(state="available").exists():
                    for job in take(3):
                        claimed.append(job.id)
                        ack(job)
        except BaseException as error:
            failures.append(error)
        finally:
            connections["default"].close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(claimed) == len(set(claimed)) == 200
    assert Job.objects.filter(state="completed").count() == 200
    assert seen, "nothing was refused: this has shown nothing"


def test_a_queue_that_is_new_is_known_after_a_refusal() -> None:
    enqueue_service.forget_all_queues()
    api.enqueue("test.job", queue="fresh")
    poll(lambda: Queue.objects.filter(name="fresh").exists())
    assert enqueue_service.unknown(["fresh"], using="default") == []
