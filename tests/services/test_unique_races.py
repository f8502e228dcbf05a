"""Equal jobs that are enqueued at the same moment, under every isolation level: one is stored."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import DatabaseError, connection, connections, transaction
from django.db.models import Count

from django_ojs.api import cancel, enqueue, enqueue_many, retry
from django_ojs.domain.errors import Duplicate
from django_ojs.models import Job, UniqueKey, Worker
from django_ojs.store.contention import is_contention
from tests.services.support import fail, take
from tests.support import family

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]
TYPE = "test.job"
THREADS = 6
KEYS = 50
LEVELS = {
    "postgresql": ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"),
    "mysql": ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"),
    "sqlite": ("SERIALIZABLE",),
}[family()]
_DEADLOCKS = frozenset({"40P01", 1213})


@contextmanager
def isolated(level: str) -> Iterator[None]:
    """A session of its own for this thread, whose transactions have the isolation level."""
    try:
        with connection.cursor() as cursor:
            if family() == "postgresql":
                cursor.execute(f"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}")
            elif family() == "mysql":
                cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        yield
    finally:
        connections.close_all()


class Rivals:
    """Threads that enqueue jobs of a few keys, each in a transaction that has read before."""

    def __init__(self, level: str, on_conflict: str) -> None:
        self.level = level
        self.policy = {"keys": ["type", "args"], "on_conflict": on_conflict}
        self.outcomes: Counter[str] = Counter()
        self._barrier = threading.Barrier(THREADS)

    def run(self, count: int) -> None:
        """Have each thread enqueue so many."""
        threads = [threading.Thread(target=self._thread, args=(count, seed)) for seed in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _thread(self, count: int, seed: int) -> None:
        chance = random.Random(seed)
        with isolated(self.level):
            self._barrier.wait()
            for _ in range(count):
                self._until_it_is_in(chance.randrange(KEYS))

    def _until_it_is_in(self, key: int) -> None:
        while True:
            try:
                with transaction.atomic():
                    # The snapshot is from before the others' commits.
                    Worker.objects.count()
                    found = self._enqueue(key)
                # Counted behind the commit, which may fail under SERIALIZABLE.
                self.outcomes["found" if found else "stored"] += 1
                return
            except DatabaseError as error:
                cause = error.__cause__ or error
                code = getattr(cause, "sqlstate", None) or (cause.args[0] if cause.args else None)
                if code in _DEADLOCKS:
                    self.outcomes["deadlock"] += 1
                elif is_contention(error):
                    self.outcomes["repeated"] += 1
                else:
                    self.outcomes[f"{type(error).__name__}: {error}"] += 1
                    return

    def _enqueue(self, key: int) -> bool:
        try:
            return enqueue(TYPE, [key], unique=self.policy).deduplicated
        except Duplicate:
            return True


def duplicates() -> int:
    """Keys with more than one job that has not ended."""
    live = Job.objects.exclude(state__in=["cancelled", "completed", "discarded"])
    return live.values("unique_key").annotate(jobs=Count("pk")).filter(jobs__gt=1).count()


def check(rivals: Rivals, count: int) -> None:
    """What must hold when all have come to an end."""
    said = dict(rivals.outcomes)
    assert said.keys() <= {"stored", "found", "repeated"}, said
    assert said["stored"] + said.get("found", 0) == THREADS * count, said
    assert duplicates() == 0
    assert UniqueKey.objects.count() <= KEYS
    live = Job.objects.filter(state="available").count()
    if rivals.policy["on_conflict"] == "replace":
        assert Job.objects.count() == said["stored"]
    else:
        assert live == said["stored"]
    assert live <= KEYS


@pytest.mark.slow
@pytest.mark.fault("F94")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("on_conflict", ["ignore", "reject", "replace"])
def test_of_equal_jobs_one_is_stored(level: str, on_conflict: str) -> None:
    rivals = Rivals(level, on_conflict)
    rivals.run(20)
    check(rivals, 20)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("on_conflict", ["ignore", "replace"])
def test_of_thousands_of_equal_jobs_one_is_stored(level: str, on_conflict: str) -> None:
    rivals = Rivals(level, on_conflict)
    rivals.run(1000)
    check(rivals, 1000)


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_batches_in_any_order_do_not_deadlock(level: str) -> None:
    wrong: list[BaseException] = []
    policy = {"keys": ["type", "args"], "on_conflict": "replace"}

    def work(seed: int) -> None:
        chance = random.Random(seed)
        try:
            with isolated(level):
                for _ in range(3):
                    keys = [[key] for key in range(20)]
                    chance.shuffle(keys)
                    enqueue_many(TYPE, keys, unique=policy)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert duplicates() == 0
    assert Job.objects.filter(state="available").count() == 20


@pytest.mark.parametrize("level", LEVELS)
def test_retries_and_new_jobs_are_rivals_too(level: str) -> None:
    dead = []
    for _ in range(8):
        enqueue(TYPE, [1], unique=True, retry={"max_attempts": 1})
        (job,) = take()
        fail(job)
        dead.append(job.id)
    outcomes: Counter[str] = Counter()
    barrier = threading.Barrier(THREADS)

    def work(place: int) -> None:
        with isolated(level):
            barrier.wait()
            try:
                if place % 2:
                    retry(dead[place])
                else:
                    enqueue(TYPE, [1], unique=True)
                outcomes["live"] += 1
            except Duplicate:
                outcomes["refused"] += 1
            except Exception as error:
                outcomes[repr(error)] += 1

    threads = [threading.Thread(target=work, args=(place,)) for place in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == {"live": 1, "refused": THREADS - 1}
    cancel(Job.objects.get(state="available").pk)
