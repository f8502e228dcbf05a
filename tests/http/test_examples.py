"""The examples of the documentation, run against a real server."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from django_ojs.api import get
from django_ojs.models import Attempt
from tests.http.support import LiveApi, enqueue, look
from tests.support import ROOT, poll

pytestmark = pytest.mark.process

EXAMPLES = ROOT / "docs" / "examples"
QUEUE = "node"


class NodeWorker:
    """``worker.mjs`` as a process; output in a file."""

    def __init__(self, port: int, folder: Path) -> None:
        node = shutil.which("node") or shutil.which("nodejs")
        if node is None:
            pytest.skip("node is not installed")
        self._output = folder / "node.out"
        with self._output.open("wb") as out:
            self._process = subprocess.Popen(
                [node, str(EXAMPLES / "worker.mjs")],
                env={
                    **os.environ,
                    "OJS_URL": f"http://127.0.0.1:{port}",
                    "OJS_TOKEN": "dev",
                    "OJS_QUEUES": QUEUE,
                },
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        """What it has written so far."""
        return self._output.read_text(errors="replace")

    def terminate(self) -> int:
        """Ask it to end; its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(15)

    def stop(self) -> None:
        """End it, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(10)


@pytest.fixture
def node(live: LiveApi, tmp_path: Path) -> Iterator[NodeWorker]:
    """The Node worker on the live server."""
    worker = NodeWorker(live.port, tmp_path)
    yield worker
    worker.stop()


def becomes(job: dict[str, Any], state: str, timeout: float = 30) -> Any:
    """The record of the job once it is in ``state``."""

    def found() -> Any:
        record = get(job["id"])
        return record if record.state == state else None

    return poll(found, timeout, every=0.05)


def test_the_node_worker_completes_a_job(live: LiveApi, node: NodeWorker) -> None:
    args = [1, "zwei", {"drei": [True, None]}]
    job = enqueue(live, type="node.echo", queue=QUEUE, args=args)
    becomes(job, "completed")
    assert live.get(f"/jobs/{job['id']}/result").body["result"] == args
    assert look(live, job)["attempt"] == 1


def test_the_node_worker_reports_a_type_that_it_does_not_know(live: LiveApi, node: NodeWorker) -> None:
    job = enqueue(live, type="node.nothing", queue=QUEUE, retry={"max_attempts": 1})
    becomes(job, "discarded")
    assert look(live, job)["error"]["type"] == "handler_not_found"


def test_the_node_worker_obeys_the_soft_timeout(live: LiveApi, node: NodeWorker) -> None:
    job = enqueue(
        live,
        type="node.slow",
        queue=QUEUE,
        timeout=3,
        grace_period=60,
        retry={"max_attempts": 1},
    )
    becomes(job, "discarded")
    error = look(live, job)["error"]
    assert error["type"] == "timeout"
    assert error["timeout_kind"] == "execution"
    # Said by the worker, before the server would have.
    assert error["message"] == "The operation was aborted"


def test_the_node_worker_drops_a_cancelled_job(live: LiveApi, node: NodeWorker) -> None:
    job = enqueue(live, type="node.slow", queue=QUEUE)
    becomes(job, "active")
    assert poll(lambda: _running(live) == 1)
    assert live.post(f"/jobs/{job['id']}/cancel").body["job"]["state"] == "cancelled"
    assert_dropped(live, node, job, "cancelled")


def test_the_node_worker_drops_a_lost_job(live: LiveApi, node: NodeWorker) -> None:
    job = enqueue(live, type="node.slow", queue=QUEUE, total_timeout=3)
    assert poll(lambda: _running(live) == 1)
    becomes(job, "discarded")
    assert_dropped(live, node, job, "total_timeout")


def assert_dropped(live: LiveApi, node: NodeWorker, job: dict[str, Any], outcome: str) -> None:
    """The worker has stopped the job, and said nothing of it."""
    assert poll(lambda: _running(live) == 0)
    assert node.terminate() == 0
    assert node.output == ""
    attempt = Attempt.objects.get(job_id=job["id"])
    assert (attempt.outcome, attempt.late_report) == (outcome, None)


def _running(live: LiveApi) -> int:
    return sum(worker["active_jobs"] for worker in live.get("/workers").body["workers"])


def test_the_node_worker_gives_jobs_back_at_sigterm(live: LiveApi, node: NodeWorker) -> None:
    job = enqueue(live, type="node.slow", queue=QUEUE)
    becomes(job, "active")
    assert node.terminate() == 0, node.output
    record = look(live, job)
    assert record["state"] in ("retryable", "available"), "given back, to whoever comes next"
    assert record["attempt"] == 1, "it did not fetch the job again"
    assert record["errors"][-1]["type"] == "shutdown"
    assert [w["status"] for w in live.get("/workers").body["workers"]] == ["stale"], "deregistered"


def test_the_node_worker_outlives_errors(
    server: int, ojs_db: None, tmp_path: Path, node_elsewhere: Callable[[], NodeWorker]
) -> None:
    worker = node_elsewhere()
    poll(lambda: "fetch failed" in worker.output)
    assert worker.terminate() == 0


@pytest.fixture
def node_elsewhere(tmp_path: Path) -> Iterator[Callable[[], NodeWorker]]:
    """A Node worker whose server is not there."""
    started: list[NodeWorker] = []

    def start() -> NodeWorker:
        started.append(NodeWorker(9, tmp_path))
        return started[-1]

    yield start
    for worker in started:
        worker.stop()


def session(port: int, token: str) -> subprocess.CompletedProcess[str]:
    """``session.sh``, run to its end."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    return subprocess.run(
        ["bash", str(EXAMPLES / "session.sh")],
        env={**os.environ, "OJS_URL": f"http://127.0.0.1:{port}", "OJS_TOKEN": token},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_curl_session_says_what_went_wrong(live: LiveApi) -> None:
    done = session(live.port, "wrong")
    assert done.returncode == 1
    assert '"unauthenticated"' in done.stderr
    assert "Traceback" not in done.stderr


def test_the_curl_session_runs(live: LiveApi) -> None:
    done = session(live.port, "dev")
    said = done.stdout
    assert done.returncode == 0, said + done.stderr
    found = re.search(r"^the job is (\S+)$", said, re.MULTILINE)
    assert found is not None
    record = get(found[1])
    assert (record.state, record.result) == ("completed", {"sent": 1})
    lines = said.splitlines()
    assert lines.count("completed") == 2, "the second acknowledgement is a replay"
    for line in (f"jobs_extended: ['{found[1]}']", "jobs_lost: []", "cancelled", "paused", "active"):
        assert line in lines
    for kind in ("job.enqueued", "job.started", "job.completed"):
        assert kind in said
    assert said.endswith("# Done.\n")
