"""Unique jobs of the official SDKs, unmodified: refused, found and replaced by their own clients.

``OJS_SDK_PYTHON`` and ``OJS_SDK_JS`` name checkouts of their repositories.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.http.sdks import javascript, python, told
from tests.http.support import LiveApi

pytestmark = [pytest.mark.long, pytest.mark.process]

PYTHON = """
import asyncio, json, sys
import ojs
from ojs.errors import DuplicateJobError
from ojs.job import UniquePolicy

async def main(url):
    async with ojs.Client(url, headers={"Authorization": "Bearer dev"}) as client:
        def enqueue(args, on_conflict):
            unique = UniquePolicy(keys=["type", "queue", "args"], on_conflict=on_conflict)
            return client.enqueue("t.unique", args, queue="sdk", unique=unique)

        first = await enqueue([1], "reject")
        try:
            await enqueue([1], "reject")
        except DuplicateJobError as error:
            refused = error.error.details["existing_job_id"]
        found = await enqueue([1], "ignore")
        new = await enqueue([1], "replace")
        other = await enqueue([2], "reject")
        print(json.dumps({
            "first": first.id, "refused": refused, "found": found.id, "new": new.id,
            "other": other.id, "was": (await client.get_job(first.id)).state,
        }))

asyncio.run(main(sys.argv[1]))
"""
JAVASCRIPT = """
import { OJSClient } from "SDK";
const client = new OJSClient({ url: process.argv[2], auth: "Bearer dev" });
const enqueue = (id, onConflict) => client.enqueue(
  "t.unique", { id, at: Math.random() }, { queue: "sdk", unique: { key: ["id"], onConflict } },
);
const first = await enqueue(1, "reject");
let refused;
try { await enqueue(1, "reject"); } catch (error) {
  refused = error.details?.existing_job_id ?? error.existingJobId;
}
const found = await enqueue(1, "ignore");
const made = await enqueue(1, "replace");
const other = await enqueue(2, "reject");
const was = (await client.getJob(first.id)).state;
console.log(JSON.stringify({
  first: first.id, refused, found: found.id, new: made.id, other: other.id, was,
}));
"""


def check(made: dict[str, Any]) -> None:
    assert made["first"] == made["refused"] == made["found"]
    assert len({made["first"], made["new"], made["other"]}) == 3
    assert made["was"] == "cancelled"


def test_the_client_for_python(live: LiveApi, server: int, tmp_path: Path) -> None:
    check(told([python(tmp_path), "-c", PYTHON, f"http://127.0.0.1:{server}"]))


def test_the_client_for_javascript(live: LiveApi, server: int, tmp_path: Path) -> None:
    """It names arguments: which of their fields are compared."""
    check(told([*javascript(tmp_path, JAVASCRIPT), f"http://127.0.0.1:{server}"]))
