"""The jobs of django_ojs itself: found like those of any other app."""

from __future__ import annotations

from typing import Any

from django_ojs.services.bulk import QUEUE, TYPE
from django_ojs.worker.context import JobContext
from django_ojs.worker.registry import job


@job(TYPE, queue=QUEUE, timeout="6h", grace_period="30s", retry={"max_attempts": 5})
def bulk(
    ctx: JobContext,
    operation: str,
    narrowed: dict[str, Any],
    cleaned: dict[str, Any],
    actor: dict[str, str],
) -> dict[str, int]:
    """An operation of the admin on many jobs; cancelled like any other job, between two pages."""
    from django_ojs.admin import bulk as pages

    before = ctx.last_checkpoint or {
        "last": None,
        "done": 0,
        "skipped": 0,
        "of": pages.size(narrowed, before=str(ctx.id)),
    }
    done, skipped, of = int(before["done"]), int(before["skipped"]), int(before["of"])
    for last, changed, left in pages.work(
        operation, narrowed, cleaned, actor, before=str(ctx.id), after=before["last"]
    ):
        done, skipped = done + changed, skipped + left
        ctx.checkpoint({"last": last, "done": done, "skipped": skipped, "of": of})
        # Fewer or more may match by now than did at the start.
        seen = min(done + skipped, of)
        ctx.progress(seen / of if of else 1.0, f"{done} done, {skipped} left as they are, of {of}")
    return {"done": done, "skipped": skipped}
