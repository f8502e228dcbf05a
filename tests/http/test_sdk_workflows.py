"""Workflows of the official SDKs, unmodified: made, looked at and cancelled by their own clients.

``OJS_SDK_PYTHON``, ``OJS_SDK_JS`` and ``OJS_SDK_GO`` name checkouts of their repositories
(openjobspec/ojs-python-sdk, ojs-js-sdk, ojs-go-sdk).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import venv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.http.support import LiveApi, fetch

pytestmark = [pytest.mark.long, pytest.mark.process]

Client = Callable[[], dict[str, Any]]
QUEUES = ["sdk", "default"]
"""One client leaves out the options of jobs in a batch."""

PYTHON = """
import asyncio, json, sys
import ojs
from ojs.workflow import batch, chain, group

def job(kind):
    return ojs.JobRequest(type=kind, args=[1], queue="sdk")

async def main(url):
    async with ojs.Client(url, headers={"Authorization": "Bearer dev"}) as client:
        made = {
            "chain": await client.workflow(chain("a chain", [job("t.a"), job("t.b")])),
            "group": await client.workflow(group("a group", [job("t.a"), job("t.b")])),
            "batch": await client.workflow(
                batch("a batch", [job("t.a"), job("t.b")], on_complete=job("t.done"))
            ),
        }
        looked = {kind: await client.get_workflow(one.id) for kind, one in made.items()}
        cancelled = await client.cancel_workflow(made["group"].id)
        print(json.dumps({
            kind: {
                "id": one.id, "name": one.name, "state": one.state,
                "steps": [[step.type, step.state, step.depends_on] for step in one.steps],
            }
            for kind, one in looked.items()
        } | {"cancelled": cancelled["state"]}))

asyncio.run(main(sys.argv[1]))
"""
JAVASCRIPT = """
import { OJSClient, batch, chain, group } from "SDK";
const client = new OJSClient({ url: process.argv[2], auth: "Bearer dev" });
const job = (type) => ({ type, args: [1], options: { queue: "sdk" } });
const made = {
  chain: await client.workflow(chain(job("t.a"), job("t.b"))),
  group: await client.workflow(group(job("t.a"), chain(job("t.b"), job("t.c")))),
  batch: await client.workflow(batch([job("t.a"), job("t.b")], { on_complete: job("t.done") })),
};
const looked = {};
for (const [kind, one] of Object.entries(made)) looked[kind] = await client.getWorkflow(one.id);
await client.cancelWorkflow(made.group.id);
const after = await client.getWorkflow(made.group.id);
console.log(JSON.stringify({ ...looked, cancelled: after.state }));
"""
GO = """
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	ojs "github.com/openjobspec/ojs-go-sdk"
)

func job(kind string) ojs.Step {
	options := []ojs.EnqueueOption{ojs.WithQueue("sdk")}
	return ojs.Step{Type: kind, Args: ojs.Args{"n": 1}, Options: options}
}

func main() {
	ctx := context.Background()
	client, err := ojs.NewClient(os.Args[1], ojs.WithAuthToken("dev"))
	if err != nil {
		panic(err)
	}
	done := job("t.done")
	definitions := map[string]ojs.WorkflowDefinition{
		"chain": ojs.Chain(job("t.a"), job("t.b")),
		"group": ojs.Group(job("t.a"), job("t.b")),
		"batch": ojs.Batch(ojs.BatchCallbacks{OnComplete: &done}, job("t.a"), job("t.b")),
	}
	told := map[string]any{}
	for kind, definition := range definitions {
		made, err := client.CreateWorkflow(ctx, definition)
		if err != nil {
			panic(err)
		}
		looked, err := client.GetWorkflow(ctx, made.ID)
		if err != nil {
			panic(err)
		}
		told[kind] = looked
		if kind == "group" {
			cancelled, err := client.CancelWorkflow(ctx, made.ID)
			if err != nil {
				panic(err)
			}
			told["cancelled"] = cancelled.State
		}
	}
	text, err := json.Marshal(told)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}
"""


def checkout(name: str) -> Path:
    """The checkout that a variable names."""
    path = os.environ.get(name)
    if path is None:
        pytest.skip(f"{name} names no checkout")
    return Path(path)


def told(command: Sequence[str | Path], **options: Any) -> dict[str, Any]:
    """What a client printed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def go(folder: Path, program: str) -> Path:
    """The program, built with the SDK for Go."""
    source = checkout("OJS_SDK_GO")
    if shutil.which("go") is None:
        pytest.skip("there is no Go")
    (folder / "main.go").write_text(program)
    (folder / "go.mod").write_text(
        "module client\n\ngo 1.22\n\nrequire github.com/openjobspec/ojs-go-sdk v0.0.0\n\n"
        f"replace github.com/openjobspec/ojs-go-sdk => {source}\n"
    )
    own = {"GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local"}
    environment = {**os.environ, **own, "GOCACHE": str(folder / "c")}
    command = ["go", "build", "-o", "client", "."]
    subprocess.run(command, check=True, timeout=300, cwd=folder, env=environment)
    return folder / "client"


def work_off(live: LiveApi) -> list[str]:
    """Complete what is waiting, as long as there is something; the types in their order."""
    types: list[str] = []
    while found := fetch(live, queues=QUEUES):
        for job in found:
            types.append(job["type"])
            done = {"job_id": job["id"], "lease_id": job["lease"]["id"], "result": {}}
            assert live.post("/workers/ack", done).status == 200
    return types


def state(live: LiveApi, workflow_id: str) -> str:
    return str(live.get(f"/workflows/{workflow_id}").body["workflow"]["state"])


def test_the_client_for_python(live: LiveApi, server: int, tmp_path: Path) -> None:
    source = checkout("OJS_SDK_PYTHON")
    venv.create(tmp_path / "sdk", with_pip=True)
    python = tmp_path / "sdk" / "bin" / "python"
    pip: list[str | Path] = [python, "-m", "pip", "install", "-q", source, "cryptography"]
    subprocess.run(pip, check=True, timeout=300)
    made = told([python, "-c", PYTHON, f"http://127.0.0.1:{server}"])
    assert made["chain"]["name"] == "a chain"
    assert [step[2] for step in made["chain"]["steps"]] == [[], ["step-0"]]
    assert [step[2] for step in made["batch"]["steps"]] == [[], []]
    assert {made[kind]["state"] for kind in ("chain", "group", "batch")} == {"running"}
    assert made["cancelled"] == "cancelled"
    types = work_off(live)
    assert sorted(types) == ["t.a", "t.a", "t.b", "t.b", "t.done"]
    assert [state(live, made[kind]["id"]) for kind in ("chain", "batch")] == ["completed"] * 2


def test_the_client_for_javascript(live: LiveApi, server: int, tmp_path: Path) -> None:
    source = checkout("OJS_SDK_JS")
    copy = tmp_path / "sdk"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns(".git", "node_modules", "dist"))
    quiet: dict[str, Any] = {"check": True, "timeout": 300, "stdout": subprocess.DEVNULL, "cwd": copy}
    install = ["npm", "install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run(install, **quiet)
    # It emits in spite of types that it does not find: those of serverless platforms.
    subprocess.run(["npx", "tsc", "-p", "tsconfig.json"], **{**quiet, "check": False})
    script = tmp_path / "client.mjs"
    script.write_text(JAVASCRIPT.replace("SDK", str(copy / "dist" / "esm" / "index.js")))
    made = told(["node", script, f"http://127.0.0.1:{server}"])
    assert [made[kind]["type"] for kind in ("chain", "group", "batch")] == ["chain", "group", "batch"]
    assert {made[kind]["state"] for kind in ("chain", "group", "batch")} == {"running"}
    assert made["chain"]["metadata"]["job_count"] == 2
    assert made["cancelled"] == "cancelled"
    types = work_off(live)
    assert sorted(types) == ["t.a", "t.a", "t.b", "t.b", "t.done"]
    assert [state(live, made[kind]["id"]) for kind in ("chain", "batch")] == ["completed"] * 2


def test_the_client_for_go(live: LiveApi, server: int, tmp_path: Path) -> None:
    made = told([go(tmp_path, GO), f"http://127.0.0.1:{server}"])
    assert {made[kind]["state"] for kind in ("chain", "group", "batch")} == {"running"}
    assert [step["type"] for step in made["chain"]["steps"]] == ["t.a", "t.b"]
    assert made["cancelled"] == "cancelled"
    types = work_off(live)
    assert sorted(types) == ["t.a", "t.a", "t.b", "t.b", "t.done"]
    assert [state(live, made[kind]["id"]) for kind in ("chain", "batch")] == ["completed"] * 2
