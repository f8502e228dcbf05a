"""One row is held by somebody else."""

from __future__ import annotations

from tests.lab.cases import SERVERS, Case
from tests.lab.stage import Stage


def own_cancel(stage: Stage) -> None:
    """A handler cancels a job of its neighbour ``A`` within a transaction, and goes on."""
    from django_ojs import api

    victim = stage.live()[-1]
    stage.cancelled.append(victim)
    release = stage.flag("release")
    stage.probe_all()
    holder = str(api.enqueue("lab.cancels", [victim, str(release)], queue="b").id)
    stage.living.append(holder)
    with stage.blocking_on("sqlite"):
        stage.begun([holder])
        stage.last()
        release.touch()
        stage.ended([holder])


def ended_job(stage: Stage) -> None:
    """The row of a job whose handler ends meanwhile, and so do those of its neighbours."""
    first = stage.live()[0]
    stage.probe_all()
    with stage.held("SELECT id FROM django_ojs_job WHERE id = %s FOR UPDATE", stage.row(first)):
        stage.last()


def queue(stage: Stage) -> None:
    """A pause of the queue in an open transaction."""
    stage.live()
    stage.probe_all()
    with stage.held("UPDATE django_ojs_queue SET paused = true WHERE name = %s", "a"):
        stage.last()


def worker(stage: Stage) -> None:
    """The row of the worker that has the jobs."""
    stage.live()
    stage.probe_all()
    with stage.held("SELECT id FROM django_ojs_worker WHERE name = %s FOR UPDATE", "A"):
        stage.last()


def task(stage: Stage) -> None:
    """The row in which the scans of all reapers are recorded."""
    stage.live()
    stage.probe_all()
    with stage.held("SELECT name FROM django_ojs_maintenancerun WHERE name = %s FOR UPDATE", "reap"):
        stage.last()


def event_stream(stage: Stage) -> None:
    """The row of those who give events their places."""
    stage.live()
    stage.probe_all()
    with stage.held("SELECT id FROM django_ojs_eventstream FOR UPDATE"):
        stage.last()


CASES = [
    Case("row held by a handler's cancel()", own_cancel),
    Case("row of an ended job held", ended_job, databases=SERVERS),
    Case("queue row held", queue, databases=SERVERS),
    Case("worker row held", worker, databases=SERVERS),
    Case("maintenance row held", task, databases=SERVERS),
    Case("event-stream row held", event_stream, databases=SERVERS),
]
