"""Fetches that wait (``wait_ms``): what ends them, what bounds them, and that they lose no job."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import override_settings

from django_ojs import clock
from django_ojs.api import get
from django_ojs.domain.errors import RateLimited
from django_ojs.http import waiting
from django_ojs.http.limits import LONG_POLLS, Places
from django_ojs.http.principal import Principal
from django_ojs.models import Worker
from tests.http.conftest import Caller
from tests.http.support import Api, LiveApi, enqueue, fetch, look
from tests.support import poll

pytestmark = [pytest.mark.every_database, pytest.mark.process]

LONG = 30_000
"""The longest wait that there is, in milliseconds."""
PROMPT = timedelta(seconds=15)
"""By when a fetch that waits for so long has what was enqueued, on a machine however busy."""
PATIENCE = 60
"""Seconds after which a fetch is given up."""


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads for those who wait."""
    with ThreadPoolExecutor(8) as threads:
        yield threads


def waits(worker: str) -> None:
    """Until the fetch of the worker has arrived at the server."""
    poll(lambda: Worker.objects.filter(name=worker).exists())


def waiting_fetch(
    pool: ThreadPoolExecutor, live: LiveApi, queue: str, worker: str, wait_ms: int = LONG
) -> Future[list[dict[str, Any]]]:
    """A fetch that waits on the server; its jobs."""
    future = pool.submit(fetch, live, queue, worker=worker, wait_ms=wait_ms)
    waits(worker)
    return future


def waited(job: dict[str, Any]) -> timedelta:
    """From when a job was enqueued until a worker had it, as the server stored it."""
    return datetime.fromisoformat(job["started_at"]) - datetime.fromisoformat(job["enqueued_at"])


def test_a_job_that_is_there_comes_at_once(live: LiveApi) -> None:
    job = enqueue(live, queue="ready")
    mine = fetch(live, "ready", wait_ms=LONG)[0]
    assert mine["id"] == job["id"]
    assert waited(mine) < PROMPT


def test_a_job_that_is_enqueued_ends_the_wait(live: LiveApi, pool: ThreadPoolExecutor) -> None:
    for number, pause_ms in enumerate((1, 300, 1200)):
        found = waiting_fetch(pool, live, "late", f"w{number}")
        # Those who look grow slower with time.
        assert fetch(live, "elsewhere", wait_ms=pause_ms) == []
        assert not found.done()
        job = enqueue(live, queue="late")
        jobs = found.result(PATIENCE)
        assert [mine["id"] for mine in jobs] == [job["id"]]
        assert waited(jobs[0]) < PROMPT
        assert (jobs[0]["state"], jobs[0]["attempt"]) == ("active", 1)


def test_jobs_of_other_queues_do_not_end_the_wait(live: LiveApi, pool: ThreadPoolExecutor) -> None:
    found = waiting_fetch(pool, live, "mine", "w1", 1000)
    enqueue(live, queue="theirs")
    assert found.result(PATIENCE) == []


def test_the_second_queue_is_waited_for_too(live: LiveApi, pool: ThreadPoolExecutor) -> None:
    def run() -> list[dict[str, Any]]:
        return fetch(live, "one", "two", worker="w1", wait_ms=LONG)

    found = pool.submit(run)
    waits("w1")
    job = enqueue(live, queue="two")
    (mine,) = found.result(PATIENCE)
    assert mine["id"] == job["id"]
    assert waited(mine) < PROMPT


def test_the_wait_ends_with_nothing(live: LiveApi) -> None:
    for wait_ms in (1, 300, 900):
        begun = time.monotonic()
        assert fetch(live, "nothing", wait_ms=wait_ms) == []
        assert wait_ms / 1000 <= time.monotonic() - begun < 15


def test_one_job_ends_one_wait(live: LiveApi, pool: ThreadPoolExecutor) -> None:
    found = [waiting_fetch(pool, live, "shared", f"w{n}", 8000) for n in range(5)]
    jobs = {enqueue(live, queue="shared")["id"] for _ in range(2)}
    got = [job for future in found for job in future.result(PATIENCE)]
    assert {job["id"] for job in got} == jobs
    assert [job["attempt"] for job in got] == [1, 1]


def test_a_scheduled_job_comes_when_it_is_time(live: LiveApi) -> None:
    job = enqueue(live, queue="soon", scheduled_at="PT1S")
    assert job["state"] == "scheduled"
    due = datetime.fromisoformat(job["scheduled_at"])
    mine = fetch(live, "soon", wait_ms=LONG)[0]
    started = datetime.fromisoformat(mine["started_at"])
    assert mine["id"] == job["id"]
    assert timedelta(0) <= started - due < PROMPT
    assert datetime.now(UTC) >= due


def test_a_retry_comes_when_it_is_time(live: LiveApi) -> None:
    retry = {"initial_interval_ms": 700, "jitter": False}
    enqueue(live, queue="again", retry=retry)
    first = fetch(live, "again")[0]
    body = {"job_id": first["id"], "lease_id": first["lease"]["id"]}
    failed = live.post("/workers/nack", body).body
    second = fetch(live, "again", wait_ms=LONG)[0]
    assert (second["id"], second["attempt"]) == (first["id"], 2)
    late = datetime.fromisoformat(second["started_at"]) - datetime.fromisoformat(
        failed["next_attempt_at"]
    )
    assert timedelta(0) <= late < PROMPT


def test_a_paused_queue_waits_until_it_is_resumed(live: LiveApi, pool: ThreadPoolExecutor) -> None:
    assert live.post("/queues/stopped/pause").status == 200
    job = enqueue(live, queue="stopped")
    assert fetch(live, "stopped", wait_ms=200) == []
    found = waiting_fetch(pool, live, "stopped", "w2")
    assert fetch(live, "elsewhere", wait_ms=300) == []
    assert not found.done()
    resumed = clock.now("default")
    assert live.post("/queues/stopped/resume").status == 200
    jobs = found.result(PATIENCE)
    assert [mine["id"] for mine in jobs] == [job["id"]]
    assert datetime.fromisoformat(jobs[0]["started_at"]) - resumed < PROMPT
    assert jobs[0]["attempt"] == 1


def test_a_queue_that_is_paused_while_one_waits(live: LiveApi, pool: ThreadPoolExecutor) -> None:
    found = waiting_fetch(pool, live, "halted", "w1", 900)
    assert live.post("/queues/halted/pause").status == 200
    job = enqueue(live, queue="halted")
    assert found.result(PATIENCE) == []
    assert look(live, job)["state"] == "available"


def test_a_worker_told_quiet_while_it_waits_gets_nothing(
    live: LiveApi, pool: ThreadPoolExecutor
) -> None:
    found = waiting_fetch(pool, live, "hush", "w1", 900)
    assert live.post("/workers/w1/quiet").status == 200
    job = enqueue(live, queue="hush")
    assert found.result(PATIENCE) == []
    assert fetch(live, "hush", worker="w2")[0]["id"] == job["id"]


# Those who hang up.


def hang_on(port: int, body: dict[str, Any]) -> socket.socket:
    """A fetch on a bare socket."""
    data = json.dumps(body).encode()
    head = (
        "POST /ojs/v1/workers/fetch HTTP/1.1\r\n"
        f"Host: 127.0.0.1:{port}\r\n"
        "Authorization: Bearer dev\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    connection.sendall(head.encode() + data)
    return connection


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_client_that_hangs_up_loses_no_job(live: LiveApi, how: str) -> None:
    queue = f"hung-{how}"
    body = {"queues": [queue], "worker_id": "gone", "wait_ms": LONG, "count": 5}
    connection = hang_on(live.port, body)
    waits("gone")
    if how == "reset":
        linger = struct.pack("ii", 1, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    connection.close()
    job = enqueue(live, queue=queue)
    begun = time.monotonic()

    def seen() -> bool:
        """For longer than anybody who waits sleeps, nobody has taken the job."""
        record = get(job["id"])
        assert (record.state, record.row.lease_seq) == ("available", 0)
        return time.monotonic() - begun > 0.8

    poll(seen, every=0.05)
    mine = fetch(live, queue, worker="next")[0]
    assert (mine["id"], mine["attempt"], mine["worker_id"]) == (job["id"], 1, "next")
    assert mine["lease"]["seq"] == 1


def test_a_client_that_is_only_slow_to_read_gets_its_job(live: LiveApi) -> None:
    body = {"queues": ["slow"], "worker_id": "slow", "wait_ms": LONG}
    connection = hang_on(live.port, body)
    waits("slow")
    job = enqueue(live, queue="slow")
    poll(lambda: get(job["id"]).state == "active")
    answer = b""
    while job["id"].encode() not in answer:
        part = connection.recv(65536)
        assert part, answer
        answer += part
    connection.close()
    assert answer.startswith(b"HTTP/1.1 200")


# Bounds.


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How long fetches asked to wait; none of them does."""
    calls: list[int] = []

    def until(look: Any, queues: Any, wait_ms: int, **more: Any) -> Any:
        calls.append(wait_ms)
        return look()

    monkeypatch.setattr(waiting, "until", until)
    return calls


@pytest.mark.parametrize(
    ("given", "waited"),
    [(1, 1), (700, 700), (30_000, 30_000), (30_001, 30_000), (10**12, 30_000), (0, None), (None, None)],
)
def test_half_a_minute_is_the_most(
    api: Api, asked: list[int], given: int | None, waited: int | None
) -> None:
    assert fetch(api, wait_ms=given) == []
    assert asked == ([] if waited is None else [waited])


@pytest.mark.parametrize("given", [-1, 1.5, "5", True, [], {}])
def test_malformed_waits(api: Api, asked: list[int], given: Any) -> None:
    answer = api.post("/workers/fetch", {"queues": ["default"], "wait_ms": given})
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert answer.body["error"]["details"]["field"] == "wait_ms"
    assert asked == []


class FakeTime:
    """A clock that moves by what is slept."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def boottime(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    """Waiting without notifications, in no time."""
    stopped = FakeTime()
    monkeypatch.setattr(waiting, "clock", stopped)
    monkeypatch.setattr(waiting.WorkNotifier, "listens", lambda notifier: False)
    return stopped


def test_looks_grow_slower_to_a_bound(fake: FakeTime) -> None:
    looks: list[float] = []

    def nothing() -> list[Any]:
        looks.append(fake.now)
        return []

    found = waiting.until(nothing, ["q"], 10**9, gone=lambda: False, using="default")
    assert found == []
    assert fake.now == pytest.approx(30)
    assert fake.slept == sorted(fake.slept[:-1]) + fake.slept[-1:], "ever more slowly, the rest last"
    assert max(fake.slept) <= 0.5
    assert len(looks) < 80
    assert looks[-1] == pytest.approx(30), "once more when the time is over"


def test_what_is_found_ends_it(fake: FakeTime) -> None:
    results = iter([[], [], [], ["job"]])
    found = waiting.until(lambda: next(results), ["q"], 5000, gone=lambda: False, using="default")
    assert found == ["job"]
    assert fake.now < 1


def test_nobody_looks_for_a_client_that_is_gone(fake: FakeTime) -> None:
    looks: list[int] = []
    gone = iter([False, False, True])

    def nothing() -> list[Any]:
        looks.append(1)
        return []

    found = waiting.until(nothing, ["q"], 30_000, gone=lambda: next(gone), using="default")
    assert found is None
    assert len(looks) == 2, "two at once, and none after the sleep"


def test_hanging_up_is_seen() -> None:
    here, there = socket.socketpair()
    with here, there:
        environ = {"gunicorn.socket": here}
        assert not waiting.hung_up(environ)
        there.sendall(b"more")
        assert not waiting.hung_up(environ), "what comes next on the connection is not read"
        assert here.recv(4) == b"more"
        there.close()
        assert waiting.hung_up(environ)
    assert not waiting.hung_up({})
    assert not waiting.hung_up({"gunicorn.socket": SimpleNamespace()})


def test_the_bell_rings_for_those_who_wait_for_the_queue(pool: ThreadPoolExecutor) -> None:
    notifier = waiting.WorkNotifier("default")
    since = notifier.count()
    begun = time.monotonic()
    notifier._on_notification("q:other")
    notifier._on_notification("w:mine")
    assert notifier.wait(["mine"], since, 0.05) == since + 1, "not for another queue, nor for a worker"
    assert time.monotonic() - begun >= 0.05
    for payload in ("q:mine", "q:"):
        since = notifier.count()
        heard = pool.submit(notifier.wait, ["also", "mine"], since, 600)
        notifier._on_notification(payload)
        assert heard.result(30) == since + 1
        before = pool.submit(notifier.wait, ["mine"], since, 600)
        assert before.result(30) == since + 1, "what rang before is heard too"


def principal(name: str) -> Principal:
    """Somebody with a token of that name."""
    return Principal(f"token:{name}", name, frozenset({"work"}))


def test_places_are_bounded_for_each_and_in_all() -> None:
    places = Places("tests")
    a, b = principal("a"), principal("b")
    limits = {"most": 3, "most_each": 2}
    with places.take(a, **limits):
        places.enter(a, **limits)
        with pytest.raises(RateLimited) as full:
            places.enter(a, **limits)
        assert full.value.retry_after > 0
        assert full.value.details["limit"] == 2
        places.enter(b, **limits)
        with pytest.raises(RateLimited), places.take(b, **limits):
            raise AssertionError("entered")
        places.leave(a)
        places.enter(b, **limits)
        places.leave(b)
        places.leave(b)
    with pytest.raises(ZeroDivisionError), places.take(a, **limits):
        _ = 1 / 0
    for _ in range(2):
        places.enter(a, **limits)
    places.enter(b, **limits)
    for who in (a, a, b):
        places.leave(who)
    assert not places._taken


def test_too_many_long_polls(caller: Caller, asked: list[int]) -> None:
    one, other = caller(name="one"), caller(name="other")
    body = {"queues": ["default"], "wait_ms": 50}

    def refused(api: Api) -> bool:
        answer = api.post("/workers/fetch", body)
        if answer.status == 200:
            return False
        assert (answer.status, answer.code) == (429, "rate_limited")
        assert int(answer.headers["Retry-After"]) > 0
        assert answer.body["error"]["retryable"] is True
        assert api.post("/workers/fetch", {"queues": ["default"]}).status == 200, "without waiting"
        return True

    with override_settings(OJS={"HTTP": {"LONG_POLLS": 2, "LONG_POLLS_PER_TOKEN": 1}}):
        assert not refused(one)
        assert not refused(one), "the place was given back"
        with LONG_POLLS.take(principal("one"), most=2, most_each=1):
            assert refused(one)
            assert not refused(other)
            with LONG_POLLS.take(principal("third"), most=2, most_each=1):
                assert refused(other)
        assert not refused(one)
    assert not LONG_POLLS._taken


def test_a_fetch_that_fails_gives_its_place_back(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def until(*given: Any, **more: Any) -> Any:
        assert LONG_POLLS._taken.total() == 1
        raise RuntimeError("from the test")

    monkeypatch.setattr(waiting, "until", until)
    assert api.post("/workers/fetch", {"queues": ["default"], "wait_ms": 50}).status == 500
    assert not LONG_POLLS._taken
