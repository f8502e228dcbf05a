"""The worker in JavaScript, with what can go wrong between it and the server."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from django_ojs.api import get
from django_ojs.models import Attempt
from tests.http.support import LiveApi, enqueue, look
from tests.support import ROOT, poll

pytestmark = pytest.mark.process

WORKER = ROOT / "docs" / "examples" / "worker.mjs"
HANDLERS = """
  "node.null": () => { throw null; },
  "node.sync": (args) => args,
  "node.number": () => { throw { name: 7 }; },
  "node.cycle": () => { const ring = {}; ring.ring = ring; return ring; },
"""


class Between(ThreadingHTTPServer):
    """Passes requests on; what is to go wrong with the next reports is in ``plan``."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), Passing)
        self.upstream = port
        # One for each test: what a killed worker asked for may be given to it still.
        self.queue = f"node-{self.server_port}"
        self.plan: list[str] = []
        self.reports: list[tuple[str, int]] = []
        self.beats: list[bytes] = []


class Passing(BaseHTTPRequestHandler):
    """One request."""

    server: Between
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Pass it on, or not."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        report = self.path.endswith(("/ack", "/nack"))
        if self.path.endswith("/heartbeat"):
            self.server.beats.append(body)
        wrong = self.server.plan.pop(0) if report and self.server.plan else ""
        if wrong.isdigit():
            self._answer(int(wrong), b'{"error": {}}')
            self.server.reports.append((wrong, int(wrong)))
            return
        if wrong == "dropped":
            self.server.reports.append((wrong, 0))
            self.close_connection = True
            return
        headers = {name: self.headers[name] for name in ("Authorization", "Content-Type")}
        with closing(HTTPConnection("127.0.0.1", self.server.upstream, timeout=35)) as upstream:
            upstream.request("POST", self.path, body, headers)
            answer = upstream.getresponse()
            data, status = answer.read(), answer.status
        if report:
            self.server.reports.append((wrong or "passed", status))
        if wrong == "unanswered":
            self.close_connection = True
            return
        with suppress(ConnectionError):
            self._answer(status, data)

    def _answer(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def between(live: LiveApi) -> Iterator[Between]:
    """A proxy before the live server."""
    server = Between(live.port)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join(10)
    server.server_close()


Node = Callable[[], "subprocess.Popen[bytes]"]


@pytest.fixture
def node(between: Between, tmp_path: Path) -> Iterator[Node]:
    """Start ``worker.mjs``, with more handlers, behind the proxy."""
    program = shutil.which("node") or shutil.which("nodejs")
    if program is None:
        pytest.skip("node is not installed")
    source = WORKER.read_text()
    assert source.count("const handlers = {\n") == 1
    copy = tmp_path / "worker.mjs"
    copy.write_text(source.replace("const handlers = {\n", f"const handlers = {{{HANDLERS}"))
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        with (tmp_path / "node.out").open("wb") as out:
            started.append(
                subprocess.Popen(
                    [program, str(copy)],
                    env={
                        **os.environ,
                        "OJS_URL": f"http://127.0.0.1:{between.server_port}",
                        "OJS_TOKEN": "dev",
                        "OJS_QUEUES": between.queue,
                    },
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                )
            )
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait(10)


def becomes(job: dict[str, Any], state: str) -> Any:
    """The record of the job once it is in ``state``."""

    def found() -> Any:
        record = get(job["id"])
        return record if record.state == state else None

    return poll(found, every=0.05)


@pytest.mark.parametrize("kind", ["node.echo", "node.null"])
def test_the_node_worker_repeats_a_report_until_it_is_answered(
    live: LiveApi, between: Between, node: Node, kind: str
) -> None:
    between.plan = ["dropped", "503", "429", "unanswered"]
    job = enqueue(live, type=kind, queue=between.queue, args=[1], retry={"max_attempts": 1})
    process = node()
    record = becomes(job, "completed" if kind == "node.echo" else "discarded")
    poll(lambda: len(between.reports) >= 4)
    wanted = [("dropped", 0), ("503", 503), ("429", 429), ("unanswered", 200)]
    assert between.reports[:4] == wanted
    assert record.attempt == 1
    assert any(job["id"].encode() in body for body in between.beats), "it was still held meanwhile"
    process.send_signal(signal.SIGTERM)
    assert process.wait(15) == 0
    # The last one need not be repeated: a beat may have said that the job is not the worker's any more.
    final = 200 if kind == "node.echo" else 409
    assert between.reports[4:] in ([], [("passed", final)])
    assert Attempt.objects.filter(job_id=job["id"]).count() == 1


def test_the_node_worker_gives_up_a_report_that_is_refused(
    live: LiveApi, between: Between, node: Node
) -> None:
    between.plan = ["409"]
    lost = enqueue(live, type="node.echo", queue=between.queue)
    process = node()
    poll(lambda: between.reports)
    other = enqueue(live, type="node.echo", queue=between.queue)
    becomes(other, "completed")
    poll(lambda: len(between.reports) > 1)
    assert between.reports == [("409", 409), ("passed", 200)]
    assert get(lost["id"]).state == "active"
    process.send_signal(signal.SIGINT)
    assert process.wait(15) == 0, "SIGINT is like SIGTERM"
    mine = [w for w in live.get("/workers").body["workers"] if w["id"].endswith(f"-{process.pid}")]
    assert [worker["status"] for worker in mine] == ["stale"], "deregistered"


def test_the_node_worker_survives_its_jobs(live: LiveApi, between: Between, node: Node) -> None:
    once = {"max_attempts": 1}
    kinds = {
        "constructor": "handler_not_found",
        "tostring": "handler_not_found",
        "node.null": "Error",
        "node.number": "7",
        "node.cycle": "TypeError",
    }
    jobs = {kind: enqueue(live, type=kind, queue=between.queue, retry=once) for kind in kinds}
    node()
    for kind, error in kinds.items():
        becomes(jobs[kind], "discarded")
        assert look(live, jobs[kind])["error"]["type"] == error, kind
    job = enqueue(live, type="node.sync", queue=between.queue, args=[1, 2])
    assert becomes(job, "completed").result == [1, 2]
