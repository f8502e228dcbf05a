"""HTTP under load: creating jobs by wrk, fetching and reporting them by a small client."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.harness import adapter as harness
from benchmarks.harness import config
from benchmarks.harness.workloads import preload
from benchmarks.systems.on_ojs.adapter import Adapter
from django_ojs.services import tokens

CONNECTIONS = 8
FEW = 10
_JOB = {"type": "bench.noop", "args": [1, "two"]}
_LUA = """
wrk.method = "POST"
wrk.body = '{body}'
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Authorization"] = "Bearer {token}"
"""
_TURNS = 2
_ACK_BATCH = "/ojs/v1/workers/ack/batch"


def http_create(adapter: Adapter, *, seconds: float) -> dict[str, Any]:
    """``rate`` of POST /ojs/v1/jobs and ``bare`` of the bare view, requests per second.

    In turns on the same server process, with a real token. One process: of several, connections that
    stay open may all meet the same one, which is the rate of one in some turns and of all in others.
    Answers other than 2xx fail it.
    """
    if shutil.which("wrk") is None:
        return {"missing": "wrk is missing"}
    token = _token()
    script = config.scratch() / f"{adapter.slug}.lua"
    script.write_text(_LUA.format(body=json.dumps(_JOB), token=token))
    paths = {"rate": "/ojs/v1/jobs", "bare": "/bare/jobs"}
    rates: dict[str, list[float]] = {name: [] for name in paths}
    with _server(adapter, processes=1) as port:
        for path in paths.values():
            _wrk(port, path, 1, str(script))
        for _ in range(max(1, round(seconds))):
            for name, path in paths.items():
                rates[name].append(_wrk(port, path, 1, str(script)))
    return {name: statistics.fmean(found) for name, found in rates.items()}


def http_work(adapter: Adapter, *, seconds: float) -> dict[str, Any]:
    """Jobs per second that are fetched and acknowledged: ``rate`` ten at a time, ``single`` by one.

    Ten are reported by one request where the version can do that (``batches``).
    """
    token = _token()
    preload(adapter, int(8000 * seconds))
    rates: dict[str, list[float]] = {"rate": [], "single": []}
    with _server(adapter, processes=2) as port:
        # An empty report is refused where reports are taken together, else there is no such route.
        batches = Client(port, token, f"bench-{os.getpid()}").ask(_ACK_BATCH, {})[0] != 404
        _work(port, token, 1, 0.5, batches)
        for _ in range(_TURNS):
            rates["single"].append(_work(port, token, 1, seconds / _TURNS, batches))
            rates["rate"].append(_work(port, token, FEW, seconds / _TURNS, batches))
    means = {name: statistics.fmean(found) for name, found in rates.items()}
    return {**means, "batches": batches}


def _token() -> str:
    return tokens.create(f"bench-{os.getpid()}", scopes=tokens.SCOPES)[1]


def _wrk(port: int, path: str, seconds: int, script: str) -> float:
    """Requests per second."""
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", script]
    url = f"http://127.0.0.1:{port}{path}"
    out = subprocess.run([*command, url], capture_output=True, text=True, check=True).stdout
    if bad := re.search(r"Non-2xx or 3xx responses: (\d+)", out):
        raise RuntimeError(f"{path}: {bad[1]} answers were refusals")
    found = re.search(r"Requests/sec:\s+([\d.]+)", out)
    if found is None:
        raise RuntimeError(f"wrk said: {out[:200]}")
    return float(found[1])


class Client:
    """A worker on one connection that stays open."""

    def __init__(self, port: int, token: str, name: str, *, batches: bool = False) -> None:
        self._line = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._name = name
        self._batches = batches

    def call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request; the answer, which must be a good one."""
        status, found = self.ask(path, body)
        if status >= 300:
            raise RuntimeError(f"{path} answered {status}: {str(found)[:200]}")
        return found

    def ask(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Send a request; its status and the answer."""
        self._line.request("POST", path, json.dumps(body), self._headers)
        answer = self._line.getresponse()
        return answer.status, json.loads(answer.read())

    def turn(self, count: int) -> int:
        """Fetch up to ``count`` jobs and acknowledge each."""
        asked = {"queues": ["default"], "count": count, "worker_id": self._name}
        jobs = self.call("/ojs/v1/workers/fetch", asked)["jobs"]
        reports = [{"job_id": job["id"], "lease_id": job["lease"]["id"]} for job in jobs]
        if count > 1 and self._batches and reports:
            if not self.call(_ACK_BATCH, {"jobs": reports})["acknowledged"]:
                raise RuntimeError("a report of a batch was refused")
            return len(jobs)
        for report in reports:
            self.call("/ojs/v1/workers/ack", report)
        return len(jobs)


def _work(port: int, token: str, count: int, seconds: float, batches: bool) -> float:
    """Jobs per second of eight clients."""
    done: list[int] = []
    failed: list[BaseException] = []
    began = time.monotonic()

    def run(number: int) -> None:
        client = Client(port, token, f"bench-{os.getpid()}-{number}", batches=batches)
        mine = 0
        try:
            while time.monotonic() < began + seconds:
                got = client.turn(count)
                if not got:
                    raise RuntimeError("there were not enough jobs")
                mine += got
        except BaseException as error:
            failed.append(error)
        done.append(mine)

    _in_threads(run)
    if failed:
        raise failed[0]
    return sum(done) / (time.monotonic() - began)


def _in_threads(work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def _server(adapter: Adapter, *, processes: int) -> Iterator[int]:
    """The port of gunicorn with so many processes of four threads."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", int(os.environ.get("OJS_BENCH_PORT", "0"))))
        port = int(probe.getsockname()[1])
    command = harness.module(
        "gunicorn", "--worker-class=gthread", f"--workers={processes}", "--threads=4",
        "--keep-alive=75", f"--bind=127.0.0.1:{port}", f"{adapter.package}.wsgi:application",
    )  # fmt: skip
    with open(config.scratch() / f"{adapter.slug}.worker.log", "ab") as log:
        adapter.workers.start([command], folder=config.ROOT, log=log)
    try:
        _await(port)
        yield port
    finally:
        adapter.workers.stop()


def _await(port: int) -> None:
    until = time.monotonic() + 20
    while True:
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            line.request("GET", "/healthz")
            if line.getresponse().status == 200:
                return
        except OSError:
            if time.monotonic() > until:
                raise
        finally:
            line.close()
        time.sleep(0.1)
