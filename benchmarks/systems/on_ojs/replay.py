"""What an enqueue costs beside the same SQL through a bare Django cursor."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from django.db import connection, transaction

from benchmarks.harness.workloads import enqueue_one
from benchmarks.systems.on_ojs.adapter import Adapter

Statement = tuple[str, Any]
_TURNS = 10
_HEX = re.compile(r"[0-9a-f]{32}")


def statements_of(work: Callable[[], object]) -> list[Statement]:
    """The statements and parameters that some work executes."""
    seen: list[Statement] = []

    def watch(execute: Any, sql: str, parameters: Any, many: bool, context: Any) -> Any:
        seen.append((sql, parameters))
        return execute(sql, parameters, many, context)

    with connection.execute_wrapper(watch):
        work()
    return seen


def replay_enqueue(adapter: Adapter, *, jobs: int) -> dict[str, Any]:
    """``rate``: how often a second the SQL of one enqueue runs, with fresh ids and no Python of ours.

    ``enqueue``: the enqueue itself, in turns with it on the same connection. Same row, indexes and
    notification, autocommit as the enqueue itself; in one transaction where an enqueue takes more
    than one of ``statements``.
    """
    for number in range(5):
        adapter.enqueue(number)
    statements = statements_of(lambda: adapter.enqueue(5))
    share = max(1, jobs // _TURNS)
    bare = own = 0.0
    for _ in range(_TURNS):
        own += share / enqueue_one(adapter, jobs=share)["rate"]
        copies = [_with_fresh_ids(statements) for _ in range(share)]
        began = time.perf_counter()
        for copy in copies:
            with transaction.atomic() if len(copy) > 1 else nullcontext():
                for sql, parameters in copy:
                    with connection.cursor() as cursor:
                        cursor.execute(sql, parameters)
        bare += time.perf_counter() - began
    done = share * _TURNS
    return {"rate": done / bare, "enqueue": done / own, "statements": len(statements)}


def _with_fresh_ids(statements: list[Statement]) -> list[Statement]:
    """The same statements with every id, in any spelling, replaced by a new one."""
    new: dict[uuid.UUID, uuid.UUID] = {}
    for _, parameters in statements:
        for value in parameters:
            if (known := _uuid_of(value)) is not None:
                new.setdefault(known, _uuid7())

    def fresh(value: Any) -> Any:
        if isinstance(value, uuid.UUID):
            return new[value]
        if isinstance(value, str):
            for old, other in new.items():
                value = value.replace(str(old), str(other)).replace(old.hex, other.hex)
        return value

    return [(sql, [fresh(value) for value in parameters]) for sql, parameters in statements]


def _uuid_of(value: Any) -> uuid.UUID | None:
    """The id that a parameter is, as the driver or as text."""
    if isinstance(value, uuid.UUID):
        return value
    return uuid.UUID(value) if isinstance(value, str) and _HEX.fullmatch(value) else None


def _uuid7() -> uuid.UUID:
    """A UUIDv7 of now: in the same place of the index as the enqueue's own would be."""
    random = uuid.uuid4().int & ((1 << 76) - 1) & ~(3 << 62)
    return uuid.UUID(int=(time.time_ns() // 1_000_000 << 80) | (7 << 76) | (2 << 62) | random)
