"""Schedules by the official SDKs, unmodified: registered, listed, unregistered by their own clients."""

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


def check(found: dict[str, Any]) -> None:
    made = found["made"].get("cron_job", found["made"])
    again = found["again"].get("cron_job", found["again"])
    assert (made["name"], made["cron"], made["timezone"]) == (
        "sdk.daily",
        "0 9 * * *",
        "America/New_York",
    )
    assert (made["type"], made["args"], made["options"]["queue"]) == ("report.make", ["eu"], "sdk")
    assert made["next_run_at"].endswith(":00:00.000Z")
    assert (again["cron"], again["created_at"]) == ("@hourly", made["created_at"])
    assert found["refused"]
    assert isinstance(found["refused"], str)
    assert [one["name"] for one in found["listed"]] == ["sdk.daily"]
    assert found["left"] == []


def test_the_client_for_python(live: LiveApi, server: int, tmp_path: Path) -> None:
    check(told([python(tmp_path), "-c", PYTHON, f"http://127.0.0.1:{server}"]))


def test_the_client_for_javascript(live: LiveApi, server: int, tmp_path: Path) -> None:
    check(told([*javascript(tmp_path, JAVASCRIPT), f"http://127.0.0.1:{server}"]))
