"""Jobs that do something useful. Each may run twice (at least once is the promise), so each is
written so that twice is no different from once."""

from __future__ import annotations

import time
from pathlib import Path

from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction
from PIL import Image

from django_ojs import JobContext, Retry, WorkflowBuilder, job, workflow
from example_project.showcase import files, incident, misbehave, readings
from example_project.showcase.models import Reading, Thumbnail
from example_project.showcase.overview import announce, draw, summarise

PICTURES = Path(__file__).parent / "pictures"
__all__ = ["import_readings", "incident", "misbehave", "overview", "report", "send_mail", "thumbnail"]


@job(
    "example.import-readings",
    queue="example.imports",
    timeout="2m",
    heartbeat_timeout="2s",
    retry={"max_attempts": 5, "initial_interval": "PT0.5S", "jitter": False},
)
def import_readings(ctx: JobContext, city: str, batch: int = 500, pause: float = 0.0) -> int:
    """Read a city's file into the database; returns how many rows this attempt has looked at.

    Each batch is a transaction, and then a checkpoint: after a crash the next attempt goes on from
    there. Between the two a crash repeats one batch, which the unique constraint makes harmless.
    ``pause`` seconds between batches stand for a source that is slower than a file.
    """
    rows = readings.read(city)
    first = ctx.last_checkpoint["rows"] if ctx.last_checkpoint else 0
    for start in range(first, len(rows), batch):
        end = min(start + batch, len(rows))
        with transaction.atomic():
            Reading.objects.bulk_create(rows[start:end], ignore_conflicts=True)
        ctx.checkpoint({"rows": end})
        ctx.progress(end / len(rows), f"{end} of {len(rows)} rows")
        time.sleep(pause)  # noqa: TID251
    return len(rows) - first


@job("example.thumbnail", queue="example.work", timeout="30s", retry={"max_attempts": 2})
def thumbnail(picture: str, side: int = 128) -> str:
    """Write a copy that fits into a square; returns its path. The old one stays until it is whole."""
    relative = Path("thumbnails") / f"{Path(picture).stem}-{side}.jpg"
    target = files.target(relative)
    with Image.open(PICTURES / picture) as image:
        image.thumbnail((side, side))
        partial = target.with_suffix(".part")
        image.save(partial, "JPEG", quality=85)
        partial.replace(target)
        Thumbnail.objects.update_or_create(
            picture=picture,
            side=side,
            defaults={"width": image.width, "height": image.height, "path": str(relative)},
        )
    return str(relative)


@job("example.mail", queue="example.work", timeout="30s", priority=10)
def send_mail(to: str, subject: str, body: str) -> int:
    """Send one message through the configured backend; in this project that writes a file."""
    return EmailMessage(subject, body, "django-ojs@example.com", [to]).send()


@job("example.report", queue="example.work", timeout="30s", retry={"max_attempts": 40})
def report() -> str:
    """The monthly means of every city as a file; waits for the import by trying again."""
    missing = readings.expected() - Reading.objects.count()
    if missing:
        raise Retry(f"{missing} readings are not imported yet", after="1s")
    target = files.target("reports/temperatures.md")
    partial = target.with_suffix(".part")
    partial.write_text(readings.report(), encoding="utf-8")
    partial.replace(target)
    return str(target.relative_to(settings.VAR_DIR))


def overview(wait_for: str = "") -> WorkflowBuilder:
    """A workflow: both files are imported beside each other, then summarised, drawn and announced.

    When a step fails the later ones do not start, and somebody is told; after ``resume_workflow`` it
    goes on with that step. ``wait_for`` is what :func:`draw` waits for.
    """
    told = ("you@example.com", "The overview failed", "Mend what is broken, then resume the workflow.")
    made = workflow("overview", timeout="5m", on_failure=send_mail.step(*told))
    imports = [made.add(import_readings.step(city, 400, 0.1)) for city in readings.FILES]
    means = made.add(summarise.step(), after=imports)
    picture = made.add(draw.step(wait_for), after=means)
    made.add(announce.step("you@example.com"), after=picture)
    return made
