"""The later steps of the workflow ``overview``: each goes on from the results of those before it."""

from __future__ import annotations

import time
from itertools import pairwise

from django.conf import settings
from django.core.mail import EmailMessage
from PIL import Image, ImageDraw

from django_ojs import JobContext, job
from example_project.showcase import files, readings

QUEUE = "example.work"
PICTURE = "reports/overview.png"
_SIZE = (480, 240)
_COLOURS = ("#1b6ca8", "#c8553d")


@job("example.summarise", queue=QUEUE, timeout="30s")
def summarise(ctx: JobContext) -> dict[str, list[float]]:
    """The mean of each month in degrees Celsius, by city. Runs when all imports have completed."""
    assert len(ctx.parent_results) == len(readings.FILES)
    return readings.monthly_means()


@job("example.draw", queue=QUEUE, timeout="2s", grace_period="1s", retry={"max_attempts": 1})
def draw(ctx: JobContext, wait_for: str = "") -> str:
    """Draw what the step before has summarised; returns the path of the picture.

    While the file ``wait_for`` is not there it waits, as for a service that does not answer: then it
    runs into its timeout.
    """
    while wait_for and not (settings.VAR_DIR / wait_for).exists():
        time.sleep(0.05)  # noqa: TID251
    (means,) = ctx.parent_results
    width, height = _SIZE
    image = Image.new("RGB", _SIZE, "white")
    pen = ImageDraw.Draw(image)
    for number, (city, values) in enumerate(sorted(means.items())):
        colour = _COLOURS[number % len(_COLOURS)]
        # Ten pixels a degree, with 0 degrees at the bottom.
        points = [(20 + 40 * month, height - 10 * mean) for month, mean in enumerate(values)]
        for line in pairwise(points):
            pen.line(line, fill=colour, width=3)
        pen.text((width - 120, 10 + 15 * number), city, fill=colour)
    path = files.target(PICTURE)
    partial = path.with_suffix(".part")
    image.save(partial, "PNG")
    partial.replace(path)
    return PICTURE


@job("example.announce", queue=QUEUE, timeout="30s")
def announce(ctx: JobContext, to: str) -> int:
    """Tell somebody where the picture is."""
    (path,) = ctx.parent_results
    message = f"The overview of the temperatures is in {path}."
    return EmailMessage("The overview is ready", message, "django-ojs@example.com", [to]).send()
