"""Schedules by the official SDKs, unmodified: registered, listed, unregistered by their own clients."""

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

async def main(url):
    async with ojs.Client(url, headers={"Authorization": "Bearer dev"}) as client:
        made = await client.register_cron_job(
            "sdk.daily", "0 9 * * *", "report.make", ["eu"], timezone="America/New_York", queue="sdk"
        )
        again = await client.register_cron_job("sdk.daily", "@hourly", "report.make", ["eu"])
        try:
            refused = await client.register_cron_job("sdk.bad", "61 * * * *", "report.make")
        except ojs.OJSError as error:
            refused = type(error).__name__
        listed = (await client.list_cron_jobs())["cron_jobs"]
        gone = await client.unregister_cron_job("sdk.daily")
        left = (await client.list_cron_jobs())["cron_jobs"]
        print(json.dumps({"made": made, "again": again, "refused": refused, "listed": listed,
                          "left": left, "gone": gone}))

asyncio.run(main(sys.argv[1]))
"""
JAVASCRIPT = """
import { OJSClient } from "SDK";
const client = new OJSClient({ url: process.argv[2], auth: "Bearer dev" });
const job = { name: "sdk.daily", type: "report.make", args: ["eu"] };
const made = await client.cron.register({
  ...job, cron: "0 9 * * *", timezone: "America/New_York", options: { queue: "sdk" },
});
const again = await client.cron.register({ ...job, cron: "@hourly" });
let refused = false;
try { await client.cron.register({ ...job, name: "sdk.bad", cron: "61 * * * *" }); } catch (error) {
  refused = error.name;
}
const listed = (await client.cron.list()).cron_jobs;
await client.cron.unregister("sdk.daily");
const left = (await client.cron.list()).cron_jobs;
console.log(JSON.stringify({ made, again, refused, listed, left }));
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

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	ctx := context.Background()
	client := must(ojs.NewClient(os.Args[1], ojs.WithAuthToken("dev")))
	job := ojs.CronJobRequest{
		Name: "sdk.daily", Cron: "0 9 * * *", Timezone: "America/New_York", Type: "report.make",
		Args: ojs.Args{"region": "eu"}, Options: []ojs.EnqueueOption{ojs.WithQueue("sdk")},
	}
	made := must(client.RegisterCronJob(ctx, job))
	job.Cron = "@hourly"
	again := must(client.RegisterCronJob(ctx, job))
	bad := ojs.CronJobRequest{Name: "sdk.bad", Cron: "61 * * * *", Type: "a"}
	_, err := client.RegisterCronJob(ctx, bad)
	listed := must(client.ListCronJobs(ctx))
	if err := client.UnregisterCronJob(ctx, "sdk.daily"); err != nil {
		panic(err)
	}
	left := must(client.ListCronJobs(ctx))
	fmt.Println(string(must(json.Marshal(map[string]any{
		"made": made, "again": again, "refused": err.Error(), "listed": listed, "left": left,
	}))))
}
"""


def check(found: dict[str, Any]) -> None:
    made = found["made"].get("cron_job", found["made"])
    again = found["again"].get("cron_job", found["again"])
    assert (made["name"], made["cron"], made["timezone"]) == (
        "sdk.daily",
        "0 9 * * *",
        "America/New_York",
    )
    assert (made["type"], made["options"]["queue"]) == ("report.make", "sdk")
    assert made["args"] in (["eu"], [{"region": "eu"}])
    assert made["next_run_at"].endswith((":00:00.000Z", ":00:00Z"))
    assert (again["cron"], again["created_at"]) == ("@hourly", made["created_at"])
    assert found["refused"]
    assert isinstance(found["refused"], str)
    assert [one["name"] for one in found["listed"]] == ["sdk.daily"]
    assert found["left"] == []


def test_the_client_for_python(live: LiveApi, server: int, tmp_path: Path) -> None:
    check(told([python(tmp_path), "-c", PYTHON, f"http://127.0.0.1:{server}"]))


def test_the_client_for_javascript(live: LiveApi, server: int, tmp_path: Path) -> None:
    check(told([*javascript(tmp_path, JAVASCRIPT), f"http://127.0.0.1:{server}"]))


def test_the_client_for_go(live: LiveApi, server: int, tmp_path: Path) -> None:
    check(told([go(tmp_path, GO), f"http://127.0.0.1:{server}"]))
