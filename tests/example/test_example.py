"""The example's handlers called as functions, and how the demo tells what became of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core import mail
from PIL import Image

from django_ojs import JobContext, Retry, api
from django_ojs.api import JobHandler
from django_ojs.domain.failures import Failure
from django_ojs.domain.leases import Lease
from django_ojs.handlers import registry
from django_ojs.models import Attempt, Event, Job
from django_ojs.services.claim import claim, sources
from django_ojs.services.settle import Outcome, Report, settle
from example_project.showcase import jobs, misbehave, outcome, overview, processes, readings
from example_project.showcase.models import Reading, Thumbnail
from example_project.showcase.outcome import Fired, Line, Planned

START = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Killed(BaseException):
    """Stands for the end of the process."""


class FakeLine:
    """Keeps what the handler said; breaks off at the checkpoint number ``dies_at``."""

    def __init__(self, dies_at: int | None = None, results: Sequence[Any] = ()) -> None:
        self.checkpoints: list[Any] = []
        self.fractions: list[float] = []
        self.dies_at = dies_at
        self.parents = list(results)

    def heartbeat(self) -> None:
        """Not kept."""

    def progress(self, fraction: float, message: str, data: str | None) -> None:
        self.fractions.append(fraction)

    def checkpoint(self, state: str) -> None:
        if len(self.checkpoints) + 1 == self.dies_at:
            raise Killed
        self.checkpoints.append(json.loads(state))

    def extend(self, by_ms: int) -> datetime:
        raise NotImplementedError

    def results(self, after: int) -> tuple[list[Any], int | None]:
        return self.parents, None

    def add(self, call: dict[str, Any]) -> str:
        raise NotImplementedError


def context(line: FakeLine, checkpoint: Any = None) -> JobContext:
    return JobContext(
        line,
        id="x",
        type="example.import-readings",
        queue="example.imports",
        attempt=1 if checkpoint is None else 2,
        max_attempts=5,
        args=[],
        meta={},
        last_checkpoint=checkpoint,
        deadline=START,
        workflow_id="w",
    )


@pytest.fixture
def empty(ojs_db: None) -> Iterator[None]:
    Reading.objects.all().delete()
    Thumbnail.objects.all().delete()
    yield
    Reading.objects.all().delete()
    Thumbnail.objects.all().delete()


@pytest.fixture
def var(settings: Any, tmp_path: Path) -> Path:
    settings.VAR_DIR = tmp_path
    return tmp_path


def import_all() -> None:
    for city in readings.FILES:
        jobs.import_readings.function(context(FakeLine()), city, 4000)


@pytest.mark.slow
def test_files_have_the_rows_that_the_demo_expects() -> None:
    counts = {city: len(readings.read(city)) for city in readings.FILES}
    assert counts == {"Seattle": 8759, "San Francisco": 8759}
    assert readings.expected() == 17_518


def test_file_rows_are_in_celsius_and_pacific_standard_time() -> None:
    first = readings.read("Seattle")[0]
    assert first.at == datetime(2010, 1, 1, 8, tzinfo=UTC)
    assert first.celsius == pytest.approx(4.11)


@pytest.mark.slow
def test_import_reports_progress_and_saves_a_checkpoint_per_batch(empty: None) -> None:
    line = FakeLine()
    assert jobs.import_readings.function(context(line), "Seattle", 4000) == 8759
    assert line.checkpoints == [{"rows": 4000}, {"rows": 8000}, {"rows": 8759}]
    assert line.fractions == pytest.approx([4000 / 8759, 8000 / 8759, 1.0])
    assert Reading.objects.filter(city="Seattle").count() == 8759


def test_import_goes_on_from_the_checkpoint(empty: None) -> None:
    line = FakeLine()
    done = jobs.import_readings.function(context(line, {"rows": 8000}), "Seattle", 500)
    assert done == 759
    assert line.checkpoints == [{"rows": 8500}, {"rows": 8759}]
    assert Reading.objects.count() == 759


@pytest.mark.slow
def test_import_killed_between_batch_and_checkpoint_leaves_no_row_twice(empty: None) -> None:
    first = FakeLine(dies_at=2)
    with pytest.raises(Killed):
        jobs.import_readings.function(context(first), "San Francisco", 3000)
    assert Reading.objects.count() == 6000
    assert first.checkpoints == [{"rows": 3000}]
    second = context(FakeLine(), first.checkpoints[-1])
    assert jobs.import_readings.function(second, "San Francisco", 3000) == 5759
    assert Reading.objects.count() == 8759


def test_import_of_an_unknown_city_fails() -> None:
    with pytest.raises(KeyError, match="Oslo"):
        jobs.import_readings.function(context(FakeLine()), "Oslo")


def test_thumbnail_fits_the_square_and_can_be_made_again(empty: None, var: Path) -> None:
    for _ in range(2):
        path = jobs.thumbnail("rocket.jpg", 100)
    with Image.open(var / path) as image:
        assert image.size == (100, 67)
    row = Thumbnail.objects.get()
    assert (row.picture, row.side, row.width, row.height) == ("rocket.jpg", 100, 100, 67)
    assert [item.name for item in (var / "thumbnails").iterdir()] == ["rocket-100.jpg"]


def test_every_picture_is_named_in_the_licence_and_is_small() -> None:
    pictures = sorted(jobs.PICTURES.glob("*.jpg"))
    licence = (jobs.PICTURES / "LICENCE.md").read_text(encoding="utf-8")
    assert len(pictures) >= 3
    assert [path.name for path in pictures if f"`{path.name}`" not in licence] == []
    assert max(path.stat().st_size for path in pictures) <= 150_000


def test_mail_is_sent_through_the_backend() -> None:
    mail.outbox.clear()
    assert jobs.send_mail("you@example.com", "Hello", "A job wrote this.") == 1
    assert [(item.to, item.subject, item.body) for item in mail.outbox] == [
        (["you@example.com"], "Hello", "A job wrote this.")
    ]


@pytest.mark.slow
def test_report_waits_for_the_readings(empty: None, var: Path) -> None:
    with pytest.raises(Retry, match="17518 readings are not imported yet") as caught:
        jobs.report()
    assert caught.value.after_ms == 1000
    assert not (var / "reports").exists()


@pytest.mark.slow
def test_report_has_a_table_of_months_for_each_city(empty: None, var: Path) -> None:
    import_all()
    text = (var / jobs.report()).read_text(encoding="utf-8")
    lines = text.splitlines()
    assert [line for line in lines if line.startswith("## ")] == ["## San Francisco", "## Seattle"]
    months = [line for line in lines if line.startswith("| ") and "Month" not in line]
    months = [line for line in months if "---" not in line]
    assert len(months) == 24
    assert sum(int(line.split("|")[5]) for line in months) == 17_518
    january = [row.celsius for row in readings.read("Seattle") if row.at < START.replace(2010, 2, 1)]
    expected = sum(january[:744]) / 744
    assert f"| January | {expected:.1f} |" in text.split("## Seattle")[1]


@pytest.mark.slow
def test_overview_is_drawn_from_what_was_summarised(empty: None, var: Path) -> None:
    import_all()
    means = overview.summarise.function(context(FakeLine(results=[8759, 8759])))
    assert means["Seattle"][0] == pytest.approx(5.0, abs=2)
    assert {city: len(months) for city, months in means.items()} == dict.fromkeys(readings.FILES, 12)
    assert overview.draw.function(context(FakeLine(results=[means]))) == overview.PICTURE
    with Image.open(var / overview.PICTURE) as image:
        assert image.size == (480, 240)
        assert len(image.getcolors() or ()) >= 3
    mail.outbox.clear()
    said = context(FakeLine(results=[overview.PICTURE]))
    assert overview.announce.function(said, "you@example.com") == 1
    assert "reports/overview.png" in mail.outbox[0].body


def run_job(handler: JobHandler[..., Any], failure: Failure | None = None) -> None:
    """Report the next job of a handler as done, or as failed."""
    (job,) = claim(sources(["example.work"], [handler.type]), limit=1, worker_id="w", beats=True)
    assert job.lease_id is not None
    report = Report.ACK if failure is None else Report.FAIL
    settle([Outcome(Lease(job.id, job.lease_id), report, "null", failure, job)])


def test_overview_that_failed_is_resumed_with_the_step_that_failed(ojs_db: None) -> None:
    made = jobs.overview("never").enqueue()
    assert (made.total, made.open) == (5, 5)
    imports = claim(sources(["example.imports"]), limit=2, worker_id="w", beats=True)
    assert sorted(job.type for job in imports) == ["example.import-readings"] * 2
    settle(
        [
            Outcome(Lease(job.id, job.lease_id), Report.ACK, "8759", None, job)
            for job in imports
            if job.lease_id
        ]
    )
    run_job(overview.summarise)
    run_job(overview.draw, Failure("timeout", "took too long", retryable=False))
    run_job(jobs.send_mail)
    failed = api.get_workflow(made)
    assert (failed.state, failed.completed, failed.failed, failed.cancelled) == ("failed", 3, 1, 1)
    api.resume_workflow(failed)
    run_job(overview.draw)
    run_job(overview.announce)
    ended = api.get_workflow(made)
    assert (ended.state, ended.completed, ended.runs) == ("completed", 5, 2)


def test_all_types_of_the_readme_are_registered_and_no_other() -> None:
    types = [name for name in registry.types() if name.startswith(("example.", "misbehave."))]
    readme = (readings.DATA.parent.parent / "README.md").read_text(encoding="utf-8")
    told = [
        line.split("`")[1]
        for line in readme.splitlines()
        if line.startswith(("| `example.", "| `misbehave."))
    ]
    assert sorted(told) == types


@pytest.mark.slow
@pytest.mark.parametrize("how", ["exit", "segfault"])
def test_crash_takes_the_process_down(how: str) -> None:
    code = (
        "import django; django.setup();"
        f"from example_project.showcase import misbehave; misbehave.crash({how!r})"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=30, env=os.environ.copy()
    )
    assert ended.returncode == {"exit": 7, "segfault": -11}[how]


def test_enqueued_examples_use_queues_of_their_own(ojs_db: None) -> None:
    calls: list[tuple[JobHandler[..., Any], tuple[str, ...]]] = [
        (jobs.import_readings, ("Seattle",)),
        (jobs.thumbnail, ("rocket.jpg",)),
        (jobs.send_mail, ("a@example.com", "s", "b")),
        (jobs.report, ()),
        (misbehave.loop, ()),
        (misbehave.unserved, ()),
    ]
    found = {handler.type: api.get(handler.enqueue(*arguments)).queue for handler, arguments in calls}
    assert found == {
        "example.import-readings": "example.imports",
        "example.thumbnail": "example.work",
        "example.mail": "example.work",
        "example.report": "example.work",
        "misbehave.loop": "example.misbehave",
        "misbehave.unserved": "example.nobody",
    }


def test_table_aligns_columns_and_marks_what_is_empty() -> None:
    rows = [
        Line("import Seattle", "completed", 2, 12.5, ""),
        Line("unserved", "discarded", 0, None, "enqueue_ttl_expired"),
    ]
    assert outcome.table(rows).splitlines() == [
        "job             state      attempts  duration  error",
        "--------------  ---------  --------  --------  -------------------",
        "import Seattle  completed         2   12.50 s  -",
        "unserved        discarded         0         -  enqueue_ttl_expired",
    ]


def test_fired_line_tells_limit_and_elapsed() -> None:
    text = str(Fired("total", "too-long", 6.0, 6.0123))
    assert text == "total timeout            fired: limit 6 s, elapsed 6.01 s (too-long)"


def ended(handler: Any, kind: str, seconds: float, ran: bool = True) -> Any:
    """A job of ``handler`` with an event ``seconds`` after its start."""
    job = handler.enqueue()
    row = Job.objects.get(id=job.id)
    end = row.limits_from + timedelta(seconds=seconds)
    if ran:
        Attempt.objects.create(
            job=row, lease_seq=1, lease_id=uuid4(), attempt=1, started_at=row.limits_from,
            ended_at=end, outcome="timeout",
        )  # fmt: skip
    Event.objects.create(id=uuid4(), kind=kind, created_at=end, job_id=job.id)
    return job


@pytest.mark.parametrize(
    ("handler", "timeout", "kind", "seconds", "limit"),
    [
        (misbehave.loop, "execution", "job.timeout", 2.1, 2.0),
        (misbehave.loop, "execution", "job.timeout", 1.5, None),
        (misbehave.loop, "execution", "job.timeout", 4.5, None),
        (misbehave.swallow, "execution, hard", "job.timeout", 2.02, 2.0),
        (misbehave.swallow, "execution, hard", "job.timeout", 1.1, None),
        (misbehave.too_long, "total", "job.total_timeout", 10.1, 10.0),
        (misbehave.silent, "heartbeat", "job.stalled", 2.2, 2.0),
        (misbehave.silent, "heartbeat", "job.timeout", 2.2, None),
    ],
)
def test_timeout_is_seen_only_if_its_event_is_there_in_time(
    ojs_db: None, handler: Any, timeout: str, kind: str, seconds: float, limit: float | None
) -> None:
    job = ended(handler, kind, seconds)
    found = outcome.fired([Planned(job.id, "the job", "x", timeout)])
    expected: list[Any] = [] if limit is None else [(timeout, limit, pytest.approx(seconds))]
    assert [(item.timeout, item.limit, item.elapsed) for item in found] == expected


def test_enqueue_ttl_needs_no_attempt(ojs_db: None) -> None:
    job = ended(misbehave.unserved, "job.ttl_expired", 2.05, ran=False)
    found = outcome.fired([Planned(job.id, "unserved", "x", "enqueue TTL")])
    assert [item.limit for item in found] == [2.0]
    assert [item.elapsed for item in found] == pytest.approx([2.05])


def test_lines_sum_the_attempts_of_a_job(ojs_db: None) -> None:
    job = ended(misbehave.loop, "job.timeout", 2.5)
    Attempt.objects.create(
        job_id=job.id, lease_seq=2, lease_id=uuid4(), attempt=1, started_at=START,
        ended_at=START + timedelta(hours=1), outcome="released",
    )  # fmt: skip
    (line,) = outcome.lines([Planned(job.id, "loop")])
    assert (line.label, line.state) == ("loop", "available")
    assert line.seconds == pytest.approx(2.5)


def test_wrong_names_what_did_not_end_as_planned(ojs_db: None) -> None:
    job = misbehave.loop.enqueue()
    planned = [Planned(job.id, "loop", "timeout", "execution")]
    found = outcome.wrong(planned, outcome.lines(planned))
    assert "loop is available, not discarded timeout" in found
    assert sum("timeout was not seen to fire" in sentence for sentence in found) == 5
    assert outcome.wrong(planned, []) == ["1 jobs are gone"]


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_marked_processes_are_found_until_they_are_gone(tmp_path: Path) -> None:
    group = processes.Processes("a mark", tmp_path)
    child = subprocess.Popen(["sleep", "60"], env={**os.environ, processes.MARK: "a mark"})
    try:
        assert processes.poll(lambda: group.alive("sleep 60"), 30)
        assert processes.Processes("another mark", tmp_path).alive() == []
    finally:
        child.kill()
        child.wait()
    assert processes.poll(lambda: not group.alive(), 30)


def test_poll_gives_up() -> None:
    assert processes.poll(lambda: False, 0.05, 0.01) is False
