"""Unique jobs of the official SDKs, unmodified: refused, found and replaced by their own clients.

``OJS_SDK_PYTHON``, ``OJS_SDK_JS`` and ``OJS_SDK_GO`` name checkouts of their repositories.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.http.sdks import go, javascript, python, told
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

GO = """
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	ojs "github.com/openjobspec/ojs-go-sdk"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	ctx := context.Background()
	client := must(ojs.NewClient(os.Args[1], ojs.WithAuthToken("dev")))
	enqueue := func(n int, conflict string) (*ojs.Job, error) {
		policy := ojs.UniquePolicy{Key: []string{"n"}, OnConflict: conflict}
		args, unique := ojs.Args{"n": n}, ojs.WithUnique(policy)
		return client.Enqueue(ctx, "t.unique", args, ojs.WithQueue("sdk"), unique)
	}
	first := must(enqueue(1, "reject"))
	_, err := enqueue(1, "reject")
	var refusal *ojs.Error
	if !errors.Is(err, ojs.ErrDuplicate) || !errors.As(err, &refusal) {
		panic(err)
	}
	found := must(enqueue(1, "ignore"))
	made := must(enqueue(1, "replace"))
	other := must(enqueue(2, "reject"))
	was := must(client.GetJob(ctx, first.ID))
	fmt.Println(string(must(json.Marshal(map[string]any{
		"first": first.ID, "refused": refusal.Details["existing_job_id"], "found": found.ID,
		"new": made.ID, "other": other.ID, "was": was.State,
	}))))
}
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


def test_the_client_for_go(live: LiveApi, server: int, tmp_path: Path) -> None:
    """It names arguments too."""
    check(told([go(tmp_path, GO), f"http://127.0.0.1:{server}"]))
