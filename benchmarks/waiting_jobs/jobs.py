"""Jobs that wait: 5 ms, a second."""

from __future__ import annotations

import asyncio
import time

from django_ojs import job


@job("bench.five-ms")
def five_ms() -> None:
    time.sleep(0.005)


@job("bench.second")
async def second() -> None:
    await asyncio.sleep(1)
