"""The health port of a worker, asked by probes and by those who mean it no good."""

from __future__ import annotations

import resource
import signal
import socket
import time
import urllib.error
import urllib.request

import pytest

from tests.process.tools import Diary, Flag, Start, StartWorker, in_state
from tests.support import Manage, poll
from tests.workload import jobs

pytestmark = pytest.mark.process
HALF = b"GET /status/started HTTP/1.1\r\nX: "


@pytest.fixture
def port() -> int:
    """One that is free."""
    with socket.socket() as free:
        free.bind(("", 0))
        return int(free.getsockname()[1])


def fetch(port: int, path: str = "/status/started", host: str = "127.0.0.1") -> int:
    """The status of a health answer; 0 while nobody listens."""
    try:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=15) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except OSError:
        return 0


def sample(port: int, name: str) -> float:
    """A sample of the worker's metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=15) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + " "))


def test_health_port(worker: StartWorker, port: int) -> None:
    runner = worker("--health-port", str(port))
    poll(lambda: fetch(port) == 200)
    poll(lambda: fetch(port, "/status/connected") == 200)
    assert fetch(port, "/other") == 404
    runner.send(signal.SIGTERM)
    assert runner.wait() == 0
    assert fetch(port) == 0


def test_the_metrics_of_the_process(worker: StartWorker, port: int, diary: Diary, flag: Flag) -> None:
    """What it did so far: jobs by their reports, stops, kills, executors by what they do."""
    done, failed = jobs.echo.enqueue(1), jobs.raise_text.using(retry={"max_attempts": 1}).enqueue(1)
    endless = jobs.loop.using(timeout=1, grace_period=0, retry={"max_attempts": 1})
    killed, held = endless.enqueue(diary.path), jobs.hold.enqueue(diary.path, flag.path)
    worker("--health-port", str(port), "--concurrency", "2")
    for job, state in ((done, "completed"), (failed, "discarded"), (killed, "discarded")):
        in_state(job, state)
    poll(lambda: sample(port, 'ojs_worker_executors{phase="idle"}') == 1)
    assert sample(port, "ojs_worker_jobs_claimed_total") == 4
    assert sample(port, 'ojs_worker_jobs_reported_total{report="completed"}') == 1
    assert sample(port, 'ojs_worker_jobs_reported_total{report="failed"}') == 2
    assert sample(port, 'ojs_worker_kills_total{reason="timeout"}') == 1
    assert sample(port, 'ojs_worker_executors{phase="busy"}') == 1
    assert sample(port, "ojs_worker_leases") == 1
    assert sample(port, "ojs_worker_claim_seconds_count") >= 1
    assert sample(port, "ojs_worker_settle_seconds_count") >= 1
    assert sample(port, "ojs_worker_outages_total") == 0
    flag.set()
    in_state(held, "completed")
    poll(lambda: sample(port, "ojs_worker_leases") == 0)


def test_only_this_host_reaches_it_by_default(worker: StartWorker, port: int) -> None:
    worker("--health-port", str(port))
    poll(lambda: fetch(port) == 200)
    assert fetch(port, host="127.0.0.2") == 0


def test_a_host_can_be_named(worker: StartWorker, port: int) -> None:
    worker("--health-port", str(port), "--health-host", "0.0.0.0")
    poll(lambda: fetch(port, host="127.0.0.2") == 200)


def test_a_taken_port_is_one_sentence(manage: Start, port: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        runner: Manage = manage("runworker", "--health-port", str(port))
        assert runner.wait() == 1
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use" in runner.stderr
    assert "Traceback" not in runner.stderr


@pytest.mark.timeout(120)
def test_a_thousand_half_open_connections(worker: StartWorker, port: int) -> None:
    """Executors are started and probes answered all the time."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, before[1]), before[1]))
    lines: list[socket.socket] = []
    slowest = 0.0

    def probe() -> None:
        nonlocal slowest
        since = time.monotonic()
        assert fetch(port), "an answer, 503 while the executor is replaced"
        slowest = max(slowest, time.monotonic() - since)

    try:
        runner = worker("--health-port", str(port))
        poll(lambda: fetch(port) == 200)
        resource.prlimit(runner.pid, resource.RLIMIT_NOFILE, (1024, 1024))
        for number in range(1005):
            line = socket.create_connection(("127.0.0.1", port), timeout=10)
            line.sendall(HALF)
            lines.append(line)
            if number % 100 == 0:
                probe()
        for _ in range(3):
            job = jobs.exit_now.using(retry={"max_attempts": 1}).enqueue(3)
            probe()
            in_state(job, "discarded")
        probe()
        in_state(jobs.echo.enqueue(1), "completed")
    finally:
        for line in lines:
            line.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert "could not be started" not in runner.stderr
    assert "Traceback" not in runner.stderr
    print(f"slowest probe: {slowest:.3f} s")
    assert slowest < 3, "a second, on a machine that has time"
