"""A worker made with the official SDK for Python, unmodified; run by the SDK's own interpreter.

It tells of everything by a line of JSON. The first attempt of a job runs until its file is there.
"""
# mypy: ignore-errors

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import ojs
from ojs.transport.http import HTTPTransport


def tell(event: str, **told: object) -> None:
    """One line, in one write."""
    os.write(1, (json.dumps({"event": event, "pid": os.getpid(), **told}) + "\n").encode())


class Telling(HTTPTransport):
    """The SDK's own transport; the answers to its reports are told."""

    async def ack(self, job_id: str, result: object = None) -> dict:
        """As the SDK does."""
        try:
            answer = await super().ack(job_id, result=result)
        except ojs.OJSError as error:
            tell("ack", job=job_id, result=result, counted=False, error=str(error))
            raise
        tell("ack", job=job_id, result=result, counted=True)
        return answer


async def main(url: str, token: str, queue: str, folder: str, beat: str) -> None:
    """Work on one queue until the end."""
    transport = Telling(url, headers={"Authorization": f"Bearer {token}"})
    worker = ojs.Worker(
        url,
        queues=[queue],
        concurrency=1,
        poll_interval=0.1,
        heartbeat_interval=float(beat),
        transport=transport,
    )

    @worker.register("sdk.job")
    async def handle(ctx: ojs.JobContext) -> str:
        tell("start", job=ctx.job_id, attempt=ctx.attempt, worker=worker.worker_id)
        if ctx.attempt <= ctx.args[0]:
            while not Path(folder, f"{ctx.job_id}-{ctx.attempt}").exists():
                await asyncio.sleep(0.05)
        return f"attempt {ctx.attempt}"

    await worker.start()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
