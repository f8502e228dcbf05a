"""A million finished jobs with an attempt each, and a backlog: copies of real rows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from django.apps import apps

from benchmarks.harness import adapter as harness
from benchmarks.systems.on_ojs.adapter import Adapter
from django_ojs import clock
from django_ojs.models import Attempt, Job

HISTORY = 1_000_000
BACKLOG = 200_000
_DAYS = 6
"""How far back the history goes: less than retention keeps."""


def fill(
    adapter: Adapter, history: int = HISTORY, backlog: int = BACKLOG, payload: int | None = None
) -> None:
    """Fill empty tables, and vacuum them. ``payload`` is the size of an argument in bytes."""
    adapter.records()
    adapter.enqueue(0)
    harness.manage("runworker", "--drain", "--verbosity", "0")
    done = Job.objects.get()
    age = f"(INTERVAL '{_DAYS} days' * (1 - n / {history + 1}.0))"
    ids = uuid7(f"statement_timestamp() - {age}", "n")
    times = ("created_at", "limits_from", "enqueued_at", "started_at", "heartbeat_at", "finished_at")
    shifted = {name: f"t.{name} - {age}" for name in times}
    arguments = f"jsonb_build_array(n, {_text(payload)})"
    copy(adapter, Job, f"id = '{done.pk}'", history, {"id": ids, "args": arguments, **shifted})
    ended = {name: f"t.{name} - {age}" for name in ("started_at", "ended_at", "deadline_at")}
    copy(
        adapter, Attempt, f"job_id = '{done.pk}'", history,
        {"id": "nextval(pg_get_serial_sequence('django_ojs_attempt', 'id'))", "job_id": ids, **ended},
    )  # fmt: skip
    if backlog:
        adapter.enqueue(0)
        waiting = Job.objects.get(state="available")
        copy(
            adapter, Job, f"id = '{waiting.pk}'", backlog,
            {"id": uuid7("statement_timestamp()", "n"), "args": arguments},
        )  # fmt: skip
    now = clock.now("default")
    # By their names: an earlier version, beside which this one is measured, has others.
    models = {model.__name__: model for model in apps.get_app_config("django_ojs").get_models()}
    runs, mark = models.get("MaintenanceRun"), "watermark_at"
    if runs is None:
        runs, mark = models["ChoreRun"], "resumed_at"
    # Counted already, as it would have been while it happened.
    counted = {"last_run_at": now, mark: now - timedelta(seconds=60)}
    runs._default_manager.update_or_create(name="rollup", defaults=counted)
    adapter.sql("VACUUM ANALYZE")
    adapter.sql("CHECKPOINT")


def copy(
    adapter: Adapter, model: type[Job | Attempt], template: str, count: int, changed: Mapping[str, str]
) -> None:
    """``count`` copies of a row with some columns changed; expressions know ``n`` and the row ``t``."""
    columns = [field.column for field in model._meta.concrete_fields]
    values = [changed.get(column, f't."{column}"') for column in columns]
    names = ", ".join(f'"{column}"' for column in columns)
    table = model._meta.db_table
    adapter.sql(
        f"INSERT INTO {table} ({names}) SELECT {', '.join(values)}"
        f" FROM generate_series(1, {count}) n, (SELECT * FROM {table} WHERE {template} LIMIT 1) t"
    )


def uuid7(when: str, number: str) -> str:
    """SQL of the id that job ``number`` got at a time: growing with the number, as real ones do."""
    milliseconds = f"(extract(epoch FROM {when}) * 1000)::bigint"
    return (
        f"(lpad(to_hex({milliseconds}), 12, '0') || '70008' || lpad(to_hex({number}), 15, '0'))::uuid"
    )


def _text(size: int | None) -> str:
    """SQL of a text that compresses badly, of so many bytes; of the usual one without a size."""
    if size is None:
        return "'two'"
    pieces = (
        f"SELECT string_agg(md5(n::text || '-' || i), '') FROM generate_series(1, {size // 32 + 1}) i"
    )
    return f"left(({pieces}), {size})"
