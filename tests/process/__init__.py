"""Tests with real ``runworker`` and ``reap_timeouts`` processes."""

from __future__ import annotations
