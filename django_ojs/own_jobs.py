"""The jobs of django_ojs itself: found like those of any other app."""

from __future__ import annotations

from uuid import UUID

from django.core.signing import BadSignature

from django_ojs import conf
from django_ojs.handlers.context import JobContext
from django_ojs.handlers.exceptions import Fail
from django_ojs.handlers.registry import job
from django_ojs.services import databases
from django_ojs.services.bulk import QUEUE, TYPE, Order, read


@job(TYPE, queue=QUEUE, timeout="6h", grace_period="30s", retry={"max_attempts": 5})
def bulk(ctx: JobContext, signed: str) -> dict[str, int]:
    """An operation of the admin on many jobs; cancelled like any other job, between two pages."""
    try:
        order = read(signed, ctx.id)
    except BadSignature as error:
        said = "the order was not given in the admin for this job, or with another SECRET_KEY"
        raise Fail(f"{said} than that of this worker") from error
    # The jobs that it is about are in its own database.
    with conf.on(databases.of_job(UUID(ctx.id))):
        return _carried_out(ctx, order)


def _carried_out(ctx: JobContext, order: Order) -> dict[str, int]:
    from django_ojs.admin import bulk as pages

    try:
        before = ctx.last_checkpoint or {"last": None, "done": 0, "skipped": 0, **pages.size(order)}
        done, skipped, of = int(before["done"]), int(before["skipped"]), int(before["of"])
        for page in pages.work(order, after=before["last"], seen=done + skipped):
            done, skipped = done + page.changed, skipped + page.left
            if not before["exact"]:
                of = max(of, done + skipped)
            place = {"last": page.last, "done": done, "skipped": skipped, "of": of}
            ctx.checkpoint({**place, "exact": before["exact"]})
            # Fewer or more may match by now than did at the start.
            seen = min(done + skipped, of)
            said = f"{done} done, {skipped} left as they are, of {'' if before['exact'] else '≥ '}{of}"
            ctx.progress(seen / of if of else 1.0, said)
    except pages.Denied as error:
        raise Fail(str(error)) from error
    return {"done": done, "skipped": skipped}
