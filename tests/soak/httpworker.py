"""A worker over HTTP, of the standard library alone; ``bare`` reports with nothing but the job's id."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import threading
import time
from typing import Any

from tests.soak import ledger, plan

MEDIA = "application/openjobspec+json"
INSISTS_FOR = 20.0


class Worker:
    """Fetches a job, runs it, reports."""

    def __init__(self, name: str, port: int, *, bare: bool) -> None:
        self._name, self._port, self._bare = name, port, bare
        self._token = os.environ[plan.token_variable(name)]
        self._held: set[str] = set()
        self._stopped = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: self._stopped.set())

    def run(self) -> None:
        """Until SIGTERM; jobs that are held then are finished."""
        threading.Thread(target=self._beat, daemon=True).start()
        while not self._stopped.is_set():
            asked = {"queues": [plan.HTTP_QUEUE], "worker_id": self._name, "count": 1, "wait_ms": 500}
            status, body = self._post("/workers/fetch", asked)
            jobs = body.get("jobs", []) if status == 200 else []
            if not jobs:
                self._stopped.wait(0.1)
            self._held.update(job["id"] for job in jobs)
            for job in jobs:
                self._run(job)
                self._held.discard(job["id"])

    def _run(self, job: dict[str, Any]) -> None:
        bad, millis = job["args"]
        which = {"job": job["id"], "attempt": job["attempt"], "lease": job["lease"]["id"]}
        ledger.write("start", **which)
        time.sleep(plan.AGAIN if job["attempt"] > 1 else millis / 1000)
        lease_claim = {} if self._bare else {"lease_id": which["lease"]}
        if millis == 20 and job["attempt"] <= bad:
            error = {"code": "soak.broken", "message": f"attempt {job['attempt']}"}
            self._report("nack", which, {**lease_claim, "error": error})
        else:
            ledger.write("effect", **which)
            self._report("ack", which, {**lease_claim, "result": which})

    def _report(self, verb: str, which: dict[str, Any], body: dict[str, Any]) -> None:
        """Until there is an answer that is one."""
        until = time.monotonic() + INSISTS_FOR
        while time.monotonic() < until:
            status, _ = self._post(f"/workers/{verb}", {"job_id": which["job"], **body})
            if status == 200 or 400 <= status < 500:
                event = "honoured" if status == 200 else "refused"
                ledger.write(event, verb=verb, status=status, bare=self._bare, **which)
                return
            time.sleep(0.2)

    def _beat(self) -> None:
        while True:
            body = {"worker_id": self._name, "active_jobs": sorted(self._held)}
            self._post("/workers/heartbeat", body)
            time.sleep(1.0)

    def _post(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and body; status 0 when the server cannot be reached."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": MEDIA}
        try:
            connection.request("POST", f"/ojs/v1{path}", json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError):
            return 0, {}
        finally:
            connection.close()


def main() -> None:
    """Until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--bare", action="store_true")
    chosen = parser.parse_args()
    Worker(chosen.name, chosen.port, bare=chosen.bare).run()


if __name__ == "__main__":
    main()
