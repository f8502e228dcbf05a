"""Jobs that take 5 ms."""

from __future__ import annotations

import time

from django_ojs import job


@job("bench.five-ms")
def five_ms() -> None:
    time.sleep(0.005)
