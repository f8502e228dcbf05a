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
    shown = "\n".join(_BLOCK.findall(README.read_text()))
    assert shown.count("curl ") == 2
    done = subprocess.run(
        [
            "bash",
            "-euc",
            shown.replace("localhost:8000", f"127.0.0.1:{live.port}").replace("curl", "curl -sf"),
        ],
        env={**os.environ, "OJS_TOKEN": "dev"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    decoder = json.JSONDecoder()
    enqueued, end = decoder.raw_decode(done.stdout)
    fetched, _ = decoder.raw_decode(done.stdout, end)
    assert enqueued["job"]["state"] == "available"
    assert [job["id"] for job in fetched["jobs"]] == [enqueued["id"]]
    assert fetched["jobs"][0]["lease"]["deadline_at"]
