"""The chaos soak: a fleet, faults on a schedule, and a judgement by a ledger that no fault touches."""

from __future__ import annotations
