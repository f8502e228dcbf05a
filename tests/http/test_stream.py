"""Events over HTTP: polled with a cursor, and as a stream; neither loses nor repeats one."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction
from django.test import Client, override_settings

from django_ojs.api import enqueue as enqueue_here
from django_ojs.domain.durations import format_instant
from django_ojs.http.limits import STREAMS
from django_ojs.http.principal import DEVELOPER, Principal
from django_ojs.http.views import events
from django_ojs.models import Event
from django_ojs.services import stream, tokens
from django_ojs.services.stream import Wanted
from tests.http.conftest import Caller
from tests.http.support import Api, LiveApi, enqueue, fetch
from tests.support import PATIENCE, poll

pytestmark = [pytest.mark.every_database, pytest.mark.process]

UNKNOWN = "019539a4-b68c-7def-8000-1a2b3c4d5e6f"


def read(api: Api, query: str = "") -> list[dict[str, Any]]:
    """One page of events."""
    answer = api.get(f"/events?{query}")
    assert answer.status == 200, answer.raw
    assert answer.body["events"] == answer.body["items"]
    found: list[dict[str, Any]] = answer.body["events"]
    return found


def told(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """What the events are about: kinds and subjects."""
    return [(event["type"], event["subject"]) for event in found]


def complete(api: Api, queue: str = "default") -> None:
    """Take one job from the queue, and finish it."""
    job = fetch(api, queue)[0]
    done = {"job_id": job["id"], "lease_id": job["lease"]["id"], "result": {"n": 1}}
    assert api.post("/workers/ack", done).status == 200


# Polling.


def test_the_envelope_of_an_event(api: Api) -> None:
    job = enqueue(api, queue="mail")
    complete(api, "mail")
    found = read(api, f"job_id={job['id']}")
    assert [event["type"] for event in found] == ["job.enqueued", "job.started", "job.completed"]
    for event in found:
        assert event["specversion"] == "1.0"
        assert event["id"].startswith("evt_")
        assert event["event"] == event["type"]
        assert event["source"].startswith("ojs://")
        assert event["time"] == event["timestamp"]
        assert datetime.fromisoformat(event["time"]).utcoffset() == timedelta(0)
        assert event["subject"] == event["data"]["job_id"] == job["id"]
        assert (event["data"]["job_type"], event["data"]["queue"]) == ("test.job", "mail")
    assert [event["data"]["attempt"] for event in found] == [0, 1, 1]
    assert found[1]["data"]["worker_id"] == "w1"
    assert found[2]["data"]["result"] == {"n": 1}
    assert found[2]["data"]["duration_ms"] >= 0


def test_filters(api: Api) -> None:
    one, two = enqueue(api, queue="one"), enqueue(api, queue="two")
    complete(api, "one")
    assert api.post("/queues/two/pause").status == 200
    put, begun, done = "job.enqueued", "job.started", "job.completed"
    first, second = one["id"], two["id"]
    cases: dict[str, list[tuple[str, str]]] = {
        "type=job.completed": [(done, first)],
        "types=job.completed": [(done, first)],
        "types=job.started,job.completed": [(begun, first), (done, first)],
        "types=job.*": [(put, first), (put, second), (begun, first), (done, first)],
        "types=job.*,queue.paused&queues=two": [(put, second), ("queue.paused", "two")],
        "types=worker.*": [("worker.started", "w1")],
        "queues=two&types=job.enqueued": [(put, second)],
        "queue=two&types=job.*": [(put, second)],
        "queues=one,two&types=job.enqueued": [(put, first), (put, second)],
        "queues=three": [],
        f"job_id={second}": [(put, second)],
        f"job_id={first}&types=job.started": [(begun, first)],
        f"job_id={first}&queues=two": [],
    }
    for query, expected in cases.items():
        assert told(read(api, query)) == expected, query
    assert len(read(api)) == len(read(api, "types=*")) == 6


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ("types=job.nothing", 400, "types"),
        ("types=nothing.*", 400, "types"),
        ("types=job.e*d", 400, "types"),
        ("after=x", 400, "after"),
        ("since=yesterday", 400, "since"),
        ("since=2026-01-01T00:00:00", 400, "since"),
        ("limit=0", 400, "limit"),
        ("limit=x", 400, "limit"),
        ("nonsense=1", 400, "nonsense"),
        ("job_id=x", 404, None),
        (f"job_id={UNKNOWN}", 404, None),
    ],
)
def test_malformed_queries(api: Api, query: str, status: int, field: str | None) -> None:
    answer = api.get(f"/events?{query}")
    assert answer.status == status, answer.raw
    if field is not None:
        assert answer.body["error"]["details"]["field"] == field


def test_nothing_yet(api: Api) -> None:
    answer = api.get("/events").body
    assert (answer["events"], answer["cursor"], answer["has_more"]) == ([], None, False)


@pytest.mark.parametrize("word", ["after", "cursor"])
def test_pages(api: Api, word: str) -> None:
    jobs = [enqueue(api, queue=f"q{n % 2}") for n in range(7)]
    for query, expected in (
        ("", [job["id"] for job in jobs]),
        ("queues=q1&", [job["id"] for job in jobs[1::2]]),
    ):
        got: list[str] = []
        cursor = None
        while True:
            place = f"{word}={cursor}&" if cursor else ""
            page = api.get(f"/events?{query}{place}limit=2").body
            got += [event["subject"] for event in page["events"]]
            paging = page["pagination"]
            assert page["has_more"] is paging["has_more"] is (len(got) < len(expected))
            cursor = page["cursor"]
            assert cursor == page["events"][-1]["id"]
            assert paging.get("next_cursor") == (cursor if page["has_more"] else None)
            if not page["has_more"]:
                break
        assert got == expected
        again = api.get(f"/events?{query}{word}={cursor}").body
        assert (again["events"], again["cursor"]) == ([], cursor), "the reader keeps its place"
    new = enqueue(api, queue="q1")
    assert [event["subject"] for event in read(api, f"queues=q1&{word}={cursor}")] == [new["id"]]


def test_the_limit_is_lowered(api: Api) -> None:
    assert api.get("/events?limit=100000").body["pagination"]["limit"] == 200


def test_since(api: Api) -> None:
    def moment() -> str:
        """A millisecond in which there is no event."""
        begin = datetime.now(UTC)
        poll(lambda: datetime.now(UTC) - begin > timedelta(milliseconds=3), every=0.001)
        found = format_instant(datetime.now(UTC))
        later = datetime.fromisoformat(found) + timedelta(milliseconds=3)
        poll(lambda: datetime.now(UTC) > later, every=0.001)
        return found

    before = moment()
    first = enqueue(api)
    between = moment()
    second = enqueue(api)
    ended = moment()
    for since, expected in ((before, [first, second]), (between, [second]), (ended, [])):
        assert [event["subject"] for event in read(api, f"since={since}")] == [
            job["id"] for job in expected
        ]
    place = read(api)[0]["id"]
    assert len(read(api, f"since={before}&after={place}")) == 1, "a place is better than a time"


@pytest.mark.parametrize("path", ["/events?job_id={}&", "/jobs/{}/events?"])
def test_the_history_of_a_job_begins_at_its_moment(api: Api, path: str) -> None:
    """``since`` is inclusive: a client that asks from an event's time on gets that event."""
    job = enqueue(api)
    moment = datetime(2026, 1, 1, 12, tzinfo=UTC)
    Event.objects.filter(job_id=job["id"]).update(created_at=moment)
    found = []
    for step in (-1, 0, 1):
        since = format_instant(moment + timedelta(milliseconds=step))
        page = api.get(f"{path.format(job['id'])}since={since}", Accept="application/json").body
        found.append(len(page["events"]))
    assert found == [1, 1, 0]


def test_an_event_that_is_pruned(api: Api) -> None:
    enqueue(api)
    cursor = read(api)[0]["id"]
    second = enqueue(api)
    Event.objects.filter(pk=cursor.removeprefix("evt_")).delete()
    assert [event["subject"] for event in read(api, f"after={cursor}")] == [second["id"]]


def test_readers_see_their_queues_only(caller: Caller) -> None:
    everything, narrow = caller(name="all"), caller("inspect", name="narrow", queues=["mail", "a.*"])
    jobs = [enqueue(everything, queue=name) for name in ("mail", "secret", "a.b", "ab")]
    complete(everything, "secret")
    assert [event["subject"] for event in read(narrow)] == [jobs[0]["id"], jobs[2]["id"]]
    assert read(narrow, "queues=secret") == []
    assert read(narrow, "types=worker.*") == []
    assert narrow.get(f"/events?job_id={jobs[1]['id']}").status == 404
    for path in (
        f"/jobs/{jobs[1]['id']}/events",
        "/queues/secret/events",
        "/events/stream?channel=queue:secret",
        f"/events/stream?channel=job:{jobs[1]['id']}",
    ):
        answer = narrow.get(path)
        assert (answer.status, answer.code) == (404, "not_found"), path
    assert not STREAMS._taken


class Late:
    """A transaction in another thread: it has enqueued a job, and commits when told to."""

    def __init__(self, pool: ThreadPoolExecutor, *, commit: bool = True) -> None:
        self._commit, self._end, self._begun = commit, threading.Event(), threading.Event()
        self._job = ""
        self._done = pool.submit(self._run)
        assert self._begun.wait(10)

    def _run(self) -> None:
        try:
            with transaction.atomic():
                self._job = str(enqueue_here("test.late", queue="late").id)
                self._begun.set()
                assert self._end.wait(20)
                if not self._commit:
                    transaction.set_rollback(True)
        finally:
            self._begun.set()
            connections["default"].close()

    def end(self) -> str:
        """Commit, or roll back; the id of the job."""
        self._end.set()
        self._done.result(20)
        return self._job


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads with transactions of their own."""
    with ThreadPoolExecutor(8) as threads:
        yield threads


@pytest.fixture
def late(vendor: str, pool: ThreadPoolExecutor) -> Callable[..., Late]:
    """Begin a transaction that stays open."""
    if vendor == "sqlite":
        pytest.skip("SQLite has one writer: no transaction commits behind an open one")

    def begin(**more: Any) -> Late:
        return Late(pool, **more)

    return begin


def test_a_late_commit_is_not_lost(late: Callable[..., Late], api: Api) -> None:
    first = enqueue(api)["id"]
    open_one = late()
    second = enqueue(api)["id"]
    page = api.get("/events").body
    got = [event["subject"] for event in page["events"]]
    assert got == [first, second], "what is not committed does not hold up the others"
    third = enqueue(api)["id"]
    page = api.get(f"/events?after={page['cursor']}").body
    got += [event["subject"] for event in page["events"]]
    overtaken = open_one.end()
    event = Event.objects.get(job_id=overtaken)
    cursor = page["cursor"]
    assert str(event.pk) < cursor.removeprefix("evt_"), "its id was made before the reader's place"
    fourth = enqueue(api)["id"]
    page = api.get(f"/events?after={cursor}").body
    got += [event["subject"] for event in page["events"]]
    assert got[:3] == [first, second, third]
    assert sorted(got[3:]) == sorted([overtaken, fourth])
    assert api.get(f"/events?after={page['cursor']}").body["events"] == []
    whole = [event["subject"] for event in read(api)]
    assert whole == got, "everybody sees the same order"


def test_a_rollback_leaves_nothing(late: Callable[..., Late], api: Api) -> None:
    open_one = late(commit=False)
    first = enqueue(api)["id"]
    cursor = read(api)[-1]["id"]
    gone = open_one.end()
    second = enqueue(api)["id"]
    assert [event["subject"] for event in read(api, f"after={cursor}")] == [second]
    assert gone not in [subject for _, subject in told(read(api))]
    assert [subject for _, subject in told(read(api))] == [first, second]


def test_readers_beside_writers_lose_and_repeat_nothing(
    live: LiveApi, pool: ThreadPoolExecutor
) -> None:
    writing = threading.Event()

    def write(number: int) -> list[str]:
        return [enqueue(live, queue=f"w{number}")["id"] for _ in range(10)]

    def follow() -> list[str]:
        got: list[str] = []
        cursor = ""
        while True:
            over = writing.is_set()
            page = live.get(f"/events?types=job.enqueued&limit=7{cursor}").body
            got += [event["subject"] for event in page["events"]]
            if page["cursor"]:
                cursor = f"&after={page['cursor']}"
            if over and not page["events"]:
                return got

    readers = [pool.submit(follow) for _ in range(3)]
    written = [job for made in pool.map(write, range(4)) for job in made]
    writing.set()
    seen = [reader.result(30) for reader in readers]
    assert sorted(seen[0]) == sorted(written), "each once"
    assert seen[0] == seen[1] == seen[2], "and in one order"


# The stream, from a real server.


@dataclass(frozen=True)
class Message:
    """One server-sent event."""

    id: str
    kind: str
    data: dict[str, Any]


class Sse:
    """A client of the stream."""

    def __init__(self, live: LiveApi, path: str, **headers: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=PATIENCE)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named.setdefault("Authorization", f"Bearer {live.token}")
        self._connection.request("GET", f"/ojs/v1{path}", headers=named)
        self.response = self._connection.getresponse()
        self.status = self.response.status

    def __enter__(self) -> Sse:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Go."""
        self.response.close()
        self._connection.close()

    def lines(self) -> list[str]:
        """The lines up to the next empty one."""
        found: list[str] = []
        while (line := self.response.readline()) != b"\n":
            assert line, "the stream ended"
            found.append(line.decode().removesuffix("\n"))
        return found

    def begin(self) -> Sse:
        """What comes before any event; from here on none is missed."""
        assert self.status == 200
        assert self.lines() == ["retry: 1000"]
        return self

    def next(self) -> Message:
        """The next event."""
        while True:
            found = self.lines()
            if found == [":heartbeat"]:
                continue
            assert [line.partition(":")[0] for line in found] == ["id", "event", "data"], found
            values = [line.partition(": ")[2] for line in found]
            return Message(values[0], values[1], json.loads(values[2]))


def open_stream(live: LiveApi, path: str, **headers: str) -> Sse:
    """A stream that has begun; the places of those who went before come back first."""

    def begun() -> Sse | None:
        client = Sse(live, path, **headers)
        if client.status == 200:
            return client.begin()
        assert client.status == 429
        client.close()
        return None

    return poll(begun, every=0.1)


def test_the_stream_of_a_queue(live: LiveApi) -> None:
    enqueue(live, queue="watched")
    with open_stream(live, "/events/stream?channel=queue:watched") as client:
        headers = client.response.headers
        assert headers["Content-Type"] == "text/event-stream"
        assert headers["Cache-Control"] == "no-store"
        assert headers["OJS-Version"] == "1.0"
        enqueue(live, queue="other")
        complete(live, "watched")
        assert live.post("/queues/watched/pause").status == 200
        got = [client.next() for _ in range(3)]
    assert [message.kind for message in got] == ["job.started", "job.completed", "queue.paused"]
    polled = read(live, "queues=watched")[1:]
    assert [message.data for message in got] == polled, "the same envelope as by polling"
    assert [message.id for message in got] == [event["id"] for event in polled]


@pytest.mark.parametrize("address", ["/jobs/{}/events", "/events/stream?channel=job:{}"])
def test_the_stream_of_a_job(live: LiveApi, address: str) -> None:
    job, other = enqueue(live, queue="a"), enqueue(live, queue="b")
    with open_stream(live, address.format(job["id"])) as client:
        assert live.post(f"/jobs/{other['id']}/cancel").status == 200
        complete(live, "a")
        got = [client.next() for _ in range(2)]
    assert [message.kind for message in got] == ["job.started", "job.completed"]
    assert {message.data["subject"] for message in got} == {job["id"]}


@pytest.mark.parametrize(
    "address",
    [
        "/events/stream?event_types=job.completed",
        "/events/stream?channel=all&types=job.comp*,job.completed",
    ],
)
def test_the_stream_of_everything_by_kind(live: LiveApi, address: str) -> None:
    if "comp*" in address:
        assert live.get(address).status == 400, "a family, or a kind"
        return
    with open_stream(live, address) as client:
        jobs = [enqueue(live, queue=name) for name in ("a", "b")]
        complete(live, "a")
        complete(live, "b")
        got = [client.next() for _ in range(2)]
    assert [(message.kind, message.data["subject"]) for message in got] == [
        ("job.completed", job["id"]) for job in jobs
    ]


@pytest.mark.parametrize("form", ["header", "query"])
def test_a_stream_is_resumed(live: LiveApi, form: str) -> None:
    path = "/queues/resumed/events"
    with open_stream(live, path) as client:
        jobs = [enqueue(live, queue="resumed")["id"] for _ in range(3)]
        got = [client.next() for _ in range(2)]
    jobs += [enqueue(live, queue="resumed")["id"] for _ in range(2)]
    last = got[-1].id
    headers = {"Last_Event_ID": last} if form == "header" else {}
    query = "" if form == "header" else f"?after={last}"
    with open_stream(live, path + query, **headers) as client:
        got += [client.next() for _ in range(3)]
        jobs.append(enqueue(live, queue="resumed")["id"])
        got.append(client.next())
    assert [message.data["subject"] for message in got] == jobs
    assert len({message.id for message in got}) == 6


def test_a_late_commit_reaches_the_stream(late: Callable[..., Late], live: LiveApi) -> None:
    with open_stream(live, "/queues/late/events") as client:
        open_one = late()
        first = enqueue(live, queue="late")["id"]
        assert client.next().data["subject"] == first
        overtaken = open_one.end()
        assert client.next().data["subject"] == overtaken
        third = enqueue(live, queue="late")["id"]
        assert client.next().data["subject"] == third


def test_a_place_comes_back_when_the_client_goes(live: LiveApi) -> None:
    path = "/queues/places/events"
    clients = [open_stream(live, path) for _ in range(4)]
    try:
        answer = live.get(path)
        assert (answer.status, answer.code) == (429, "rate_limited")
        assert int(answer.headers["Retry-After"]) > 0
        clients.pop().close()
        clients.append(open_stream(live, path))
        job = enqueue(live, queue="places")
        for client in clients:
            assert client.next().data["subject"] == job["id"]
    finally:
        for client in clients:
            client.close()


def test_what_is_no_stream(live: LiveApi) -> None:
    for path in (f"/jobs/{UNKNOWN}/events", f"/events/stream?channel=job:{UNKNOWN}", "/jobs/x/events"):
        answer = live.get(path)
        assert (answer.status, answer.code) == (404, "not_found"), path
        assert answer.body["error"]["details"]["resource_type"] == "job"
    for query in ("channel=", "channel=x", "channel=job:", "channel=queue:", "channel=queue:NO!"):
        answer = live.get(f"/events/stream?{query}")
        assert (answer.status, answer.code) == (400, "invalid_request"), query
    assert live.get("/events/stream?types=job.x").status == 400
    assert live.get("/events/stream", Last_Event_ID="x").status == 400
    strangers = LiveApi(live.port, None)
    assert strangers.get("/events/stream").status == 401


# The stream, in this process.


class FakeTime:
    """A clock that moves by what is slept."""

    def __init__(self) -> None:
        self.now = 0.0
        self.at: dict[float, Callable[[], object]] = {}

    def boottime(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        """Sleep, and do what is to be done by then."""
        self.now += seconds
        for when in [when for when in self.at if when <= self.now]:
            self.at.pop(when)()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    """Streams that last no time."""
    stopped = FakeTime()
    monkeypatch.setattr(events, "clock", stopped)
    return stopped


def follow(principal: Principal = DEVELOPER, **wanted: Any) -> Any:
    """The chunks of a stream from now on."""
    after = stream.newest(using="default")
    return events._follow(principal, Wanted(**wanted), after, "default")


def test_heartbeats_and_the_end(api: Api, fake: FakeTime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "STREAM_SECONDS", 30.0)
    monkeypatch.setattr(events, "HEARTBEAT_SECONDS", 4.0)
    monkeypatch.setattr(events, "LOOK_EVERY", 1.0)
    fake.at[10.0] = lambda: enqueue(api)
    came = [(fake.now, chunk.partition(b"\n")[0]) for chunk in follow()]
    event = came.pop(3)
    assert event[0] == 10.0
    assert event[1].startswith(b"id: evt_")
    beats = [when for when, line in came[1:]]
    assert came[0] == (0.0, b"retry: 1000")
    assert {line for _, line in came[1:]} == {b":heartbeat"}
    assert beats == [4, 8, 14, 18, 22, 26], "only where nothing else was said"
    assert fake.now == 30.0, "then the client comes again"


def test_heartbeats_are_often_enough() -> None:
    assert events.HEARTBEAT_SECONDS + events.LOOK_EVERY <= 15
    assert events.LOOK_EVERY <= 0.5


def test_a_backlog_comes_without_pauses(
    api: Api, fake: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "BATCH", 3)
    chunks = follow(kinds=["job.enqueued"])
    assert next(chunks).startswith(b"retry")
    jobs = [enqueue(api)["id"] for _ in range(8)]
    got = [json.loads(next(chunks).decode().split("data: ")[1])["subject"] for _ in jobs]
    chunks.close()
    assert got == jobs
    assert fake.now == 0.0


def test_a_revoked_token_ends_the_stream(caller: Caller, fake: FakeTime) -> None:
    caller("inspect", name="leaves")
    token = tokens.listed()[0]
    who = Principal("token:leaves", "leaves", frozenset({"inspect"}), token_id=token.pk)
    fake.at[12.0] = lambda: tokens.revoke("leaves")
    for _ in follow(who):
        pass
    assert 12.0 <= fake.now <= 12.0 + events.RECHECK_SECONDS


def test_the_place_is_given_back_in_any_case(
    caller: Caller, fake: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "STREAM_SECONDS", 12.0)
    api = caller("inspect", name="watches")
    header = {"Authorization": f"Bearer {api.token}"}

    def begin(**more: str) -> Any:
        return Client().get("/ojs/v1/events/stream", headers={**header, **more})

    with override_settings(OJS={"HTTP": {"STREAMS": 3, "STREAMS_PER_TOKEN": 2}}):
        first, second = begin(), begin()
        assert STREAMS._taken == {"token:watches": 2}
        third = begin()
        assert (third.status_code, third["Retry-After"]) == (429, "5")
        assert third.json()["error"]["code"] == "rate_limited"
        first.close()
        first.close()
        assert STREAMS._taken == {"token:watches": 1}, "once, however often it is closed"
        assert next(second.streaming_content).startswith(b"retry")
        second.close()
        assert not STREAMS._taken, "closed in the middle"
        fake.now = 0.0
        assert b":heartbeat" in b"".join(begin().streaming_content)
        assert not STREAMS._taken, "read to the end"
        assert begin(**{"Last-Event-ID": "x"}).status_code == 400
        assert not STREAMS._taken, "never begun"
        other = caller("inspect", name="other")
        held = [begin(), begin()]
        header["Authorization"] = f"Bearer {other.token}"
        held.append(begin())
        assert begin().status_code == 429, "in all"
        for response in held:
            response.close()
    assert not STREAMS._taken


def test_an_error_gives_the_place_back(
    api: Api, fake: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: Any, **more: Any) -> Any:
        raise RuntimeError("from the test")

    response: Any = Client().get(
        "/ojs/v1/events/stream", headers={"Authorization": f"Bearer {api.token}"}
    )
    monkeypatch.setattr(stream, "read", broken)
    with pytest.raises(RuntimeError, match="from the test"):
        b"".join(response.streaming_content)
    assert not STREAMS._taken


def test_a_client_that_goes_is_noticed_where_nothing_is_said(api: Api, fake: FakeTime) -> None:
    after = stream.newest(using="default")
    chunks = events._follow(DEVELOPER, Wanted(), after, "default", lambda: fake.now >= 2)
    assert list(chunks) == [b"retry: 1000\n\n"]
    assert fake.now == 2


def test_no_connection_is_held_between_looks(
    api: Api, fake: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[bool] = []
    pause = fake.pause

    def watched(seconds: float) -> None:
        held.append(connection.connection is not None)
        pause(seconds)

    monkeypatch.setattr(fake, "pause", watched)
    monkeypatch.setattr(events, "STREAM_SECONDS", 3.0)
    list(follow())
    assert held == [False] * 6


def test_the_stream_for_asgi(api: Api, fake: FakeTime) -> None:
    STREAMS.enter(DEVELOPER, most=9, most_each=9)
    lines = events._Lines(DEVELOPER, Wanted(), 0, "default")
    job = enqueue(api)

    async def first_two() -> list[bytes]:
        chunks = events._in_thread(lines)
        found = [await anext(chunks), await anext(chunks)]
        await chunks.aclose()  # type: ignore[attr-defined]
        # As Django does at the end of a request.
        await sync_to_async(lambda: connections["default"].close())()
        return found

    found = asyncio.run(first_two())
    assert found[0].startswith(b"retry")
    assert job["id"].encode() in found[1]
    assert not STREAMS._taken
