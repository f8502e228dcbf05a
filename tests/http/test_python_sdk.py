"""Workers of the official SDK for Python, which report without a lease: they die, and come back.

``OJS_SDK_PYTHON`` names a checkout of its repository (openjobspec/ojs-python-sdk).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import venv
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from django_ojs.api import get
from django_ojs.models import Attempt, Worker
from django_ojs.services import tokens
from tests.http.support import LiveApi, enqueue
from tests.support import poll

CHECKOUT = os.environ.get("OJS_SDK_PYTHON")
ROUNDS = 20

pytestmark = [
    pytest.mark.long,
    pytest.mark.process,
    pytest.mark.skipif(CHECKOUT is None, reason="OJS_SDK_PYTHON names no checkout of ojs-python-sdk"),
]


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the SDK and nothing of ours."""
    assert CHECKOUT is not None
    folder = tmp_path_factory.mktemp("sdk")
    venv.create(folder, with_pip=True)
    # The SDK imports cryptography without asking for it.
    wanted = [CHECKOUT, "cryptography"]
    subprocess.run([folder / "bin" / "pip", "install", "-q", *wanted], check=True, timeout=300)
    return folder / "bin" / "python"


class SdkWorker:
    """A process with an SDK worker, and what it has told."""

    def __init__(self, command: list[str], out: Path) -> None:
        self._out = out
        with out.open("wb") as file, out.with_suffix(".log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=log, start_new_session=True
            )

    def told(self, event: str, **wanted: Any) -> list[dict[str, Any]]:
        """The lines of an event with these values."""
        lines = [json.loads(line) for line in self._out.read_text().splitlines(keepends=True)]
        return [
            line
            for line in lines
            if line["event"] == event and all(line.get(key) == wanted[key] for key in wanted)
        ]

    def send(self, number: int) -> None:
        """A signal."""
        os.kill(self._process.pid, number)

    def end(self) -> None:
        """Kill it, if it still lives."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(10)


class Site:
    """Where the workers of a test meet: a queue of its own, and the files that handlers wait for."""

    def __init__(self, live: LiveApi, interpreter: Path, folder: Path, own: bool) -> None:
        self.live, self._interpreter, self._folder = live, interpreter, folder
        self.queue = f"sdk-{uuid4().hex[:8]}"
        self._own = own
        self._shared = None if own else self._token()
        self.workers: list[SdkWorker] = []

    def _token(self) -> str:
        name = f"sdk-{uuid4().hex[:8]}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tokens, "COST", 1 << 14)  # as the server, another process, computes it
            return tokens.create(name, scopes=["work"], queues=["*"])[1]

    def start(self, beat: float = 0.3) -> SdkWorker:
        """One more worker."""
        script = Path(__file__).with_name("sdk_worker.py")
        url = f"http://127.0.0.1:{self.live.port}"
        token = self._shared or self._token()
        told = [url, token, self.queue, str(self._folder), str(beat)]
        out = self._folder / f"worker-{len(self.workers)}"
        self.workers.append(SdkWorker([str(self._interpreter), str(script), *told], out))
        return self.workers[-1]

    def enqueue(self, waits: int, **limits: Any) -> str:
        """A job whose first ``waits`` attempts wait for their files."""
        retry = {"max_attempts": 3, "jitter": False, "initial_interval": "PT0.1S"}
        job = enqueue(self.live, type="sdk.job", args=[waits], queue=self.queue, retry=retry, **limits)
        return str(job["id"])

    def release(self, job: str, attempt: int) -> None:
        """Let a handler return."""
        (self._folder / f"{job}-{attempt}").touch()

    def running(self, job: str, attempt: int) -> SdkWorker:
        """The worker that runs the attempt, once one does."""
        return poll(
            lambda: next((w for w in self.workers if w.told("start", job=job, attempt=attempt)), None),
            30,
        )


Make = Callable[[bool], Site]


@pytest.fixture
def site(live: LiveApi, interpreter: Path, tmp_path: Path) -> Iterator[Make]:
    """Make the place for a test: with one token for each worker, or one for all."""
    made: list[Site] = []

    def make(own: bool) -> Site:
        made.append(Site(live, interpreter, tmp_path, own))
        return made[-1]

    yield make
    for one in made:
        for worker in one.workers:
            worker.end()


LIMITS: tuple[dict[str, Any], ...] = (
    {"visibility_timeout_ms": 1500},
    {"heartbeat_timeout": 2},
    {"timeout": 2, "grace_period": 0, "heartbeat_timeout": 60, "visibility_timeout_ms": 60_000},
)
"""How the server finds out that a worker is dead: its lease, its silence, the deadline."""


def has_ended(job_id: str) -> bool:
    """Whether no further attempt follows."""
    return get(job_id).state in ("completed", "discarded")


@pytest.mark.parametrize("own", [True, False], ids=["own tokens", "one token"])
def test_a_killed_workers_job_is_completed_at_its_next_attempt(site: Make, own: bool) -> None:
    place = site(own)
    place.start()
    place.start()
    ends: list[tuple[str, int, list[str]]] = []
    for turn in range(ROUNDS):
        job = place.enqueue(1, **LIMITS[turn % len(LIMITS)])
        dead = place.running(job, 1)
        dead.send(signal.SIGKILL)
        place.start()
        poll(partial(has_ended, job), 60, every=0.1)
        record = get(job)
        outcomes = Attempt.objects.filter(job_id=job).order_by("lease_seq")
        ends.append((record.state, record.attempt, list(outcomes.values_list("outcome", flat=True))))
    completed = sum(end[:2] == ("completed", 2) for end in ends)
    print(f"{completed} of {ROUNDS} completed at the second attempt")
    kinds = ("visibility_timeout", "stalled", "timeout")
    assert ends == [("completed", 2, [kinds[turn % len(kinds)], "completed"]) for turn in range(ROUNDS)]


def _comes_back(place: Site, *, beats: bool) -> tuple[str, SdkWorker, SdkWorker]:
    """A worker is suspended in its handler; its job runs elsewhere when it comes back and reports."""
    late = place.start(beat=0.3 if beats else 3600)
    job = place.enqueue(2, visibility_timeout_ms=1500)
    place.running(job, 1)
    late.send(signal.SIGSTOP)
    present = place.start()
    assert place.running(job, 2) is present
    if not beats:
        place.release(job, 1)
    late.send(signal.SIGCONT)
    if beats:
        name = late.told("start", job=job)[0]["worker"]
        ended = Attempt.objects.get(job_id=job, lease_seq=1).ended_at
        poll(lambda: Worker.objects.get(name=name).heartbeat_at > ended, 30)
        place.release(job, 1)
    poll(lambda: late.told("ack", job=job), 30)
    return job, late, present


@pytest.mark.parametrize("beats", [True, False], ids=["beats first", "reports first"])
def test_a_worker_that_comes_back_is_refused_with_its_own_token(site: Make, beats: bool) -> None:
    place = site(True)
    job, late, present = _comes_back(place, beats=beats)
    assert get(job).state == "active"
    place.release(job, 2)
    poll(lambda: present.told("ack", job=job), 30)
    assert present.told("ack", job=job)[0]["counted"]
    assert not any(ack["counted"] for ack in late.told("ack", job=job))
    record = get(job)
    assert (record.state, record.attempt, record.result) == ("completed", 2, "attempt 2")


@pytest.mark.parametrize("beats", [True, False], ids=["beats first", "reports first"])
def test_what_a_shared_token_cannot_tell_apart(site: Make, beats: bool) -> None:
    """As docs/explanation/leases.md says."""
    place = site(False)
    job, late, present = _comes_back(place, beats=beats)
    place.release(job, 2)
    poll(lambda: present.told("ack", job=job), 30)
    reports = {
        "late": late.told("ack", job=job)[0],
        "present": present.told("ack", job=job)[0],
    }
    for name, report in reports.items():
        answer = "counted" if report["counted"] else f"refused: {report['error']}"
        print(f"shared token, {'beats' if beats else 'reports'} first, {name} worker: {answer}")
    record = get(job)
    if beats:
        assert not reports["late"]["counted"]
        assert not reports["present"]["counted"]
    else:
        assert reports["late"]["counted"]
        assert not reports["present"]["counted"]
        assert (record.state, record.result) == ("completed", "attempt 1")
