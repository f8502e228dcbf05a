"""The requests that the README shows, run as they stand against a real server."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.http.support import LiveApi

pytestmark = pytest.mark.process
README = Path(__file__).resolve().parents[2] / "README.md"
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_requests_of_the_readme(live: LiveApi) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    first, last = (block for block in _BLOCK.findall(README.read_text()) if "curl " in block)
    assert (first.count("curl "), last.count("curl ")) == (2, 1)

    def run(shown: str, **environment: str) -> str:
        there = shown.replace("localhost:8000", f"127.0.0.1:{live.port}")
        done = subprocess.run(
            ["bash", "-euc", there.replace("curl", "curl -sf")],
            env={**os.environ, "OJS_TOKEN": "dev", **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    said = run(first)
    decoder = json.JSONDecoder()
    enqueued, end = decoder.raw_decode(said)
    fetched, _ = decoder.raw_decode(said, end)
    assert enqueued["job"]["state"] == "available"
    (job,) = fetched["jobs"]
    assert job["id"] == enqueued["id"]
    assert job["lease"]["deadline_at"]
    acked = json.loads(run(last, JOB=job["id"], LEASE=job["lease"]["id"]))
    assert acked["job"]["state"] == "completed"
