"""A bad deploy, for screenshots and for who tries the admin: real jobs that really fail."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import NamedTuple

from django.core.management import call_command
from django.db.models import Count

from django_ojs import JobContext, WorkflowRecord, chain, clock, get, get_workflow, job
from django_ojs.models import Job
from example_project.showcase.processes import Processes, poll

QUEUE = "example.checkout"
UNSERVED = "example.newsletter"
STUCK = "example.export"
RELEASE = "shop 1.42"
_BATCH = 1_000
_DETERMINED = {"max_attempts": 3, "non_retryable_errors": [KeyError, ValueError, "GatewayRefused"]}


class GatewayRefused(Exception):
    """The payment provider answered, and said no."""


@job("checkout.charge", queue=QUEUE, timeout="30s", retry=_DETERMINED)
def charge(order: dict[str, object]) -> str:
    """Since the deploy orders of the new shop have no currency, and some an amount with a comma."""
    cents = round(float(str(order["amount"])) * 100)
    return f"{cents} {order['currency']}"


@job("checkout.capture", queue=QUEUE, timeout="30s", retry=_DETERMINED)
def capture(order: int) -> str:
    """The provider does not know what was never charged."""
    if order % 11:
        raise GatewayRefused(f"order {order} has not been charged")
    return "captured"


@job("newsletter.send", queue=UNSERVED)
def newsletter(address: str) -> str:
    """No worker serves its queue."""
    return address


@job("export.orders", queue=STUCK, timeout="10m")
def export(ctx: JobContext) -> None:
    """Is at 40 % when its worker is killed."""
    ctx.progress(0.4, "4,000 of 10,000 orders")
    while True:
        time.sleep(0.1)  # noqa: TID251


@job("checkout.close-day", queue=QUEUE, retry={"max_attempts": 1})
def close_day(step: str) -> str:
    """Cannot close a day with uncharged orders."""
    if step == "balance":
        raise ValueError("the day does not balance: 14,112 orders are not charged")
    return step


class Deploy(NamedTuple):
    """How much it meets."""

    failures: int
    good: int
    waiting: int = 400

    def enqueue(self) -> WorkflowRecord:
        """Enqueue everything; returns the workflow that halts."""
        orders: list[list[object]] = []
        for number in range(self.failures - self.failures // 3 + self.good):
            order: dict[str, object] = {"order": number, "amount": "19.90", "currency": "EUR"}
            if number >= self.good:
                if number % 5:
                    del order["currency"]
                else:
                    order["amount"] = "19,90"
            orders.append([order])
        # Eleventh orders would be captured.
        refused = [number for number in range(self.failures) if number % 11][: self.failures // 3]
        for handler, calls in ((charge, orders), (capture, [[number] for number in refused])):
            for start in range(0, len(calls), _BATCH):
                handler.enqueue_many(calls[start : start + _BATCH])
        newsletter.enqueue_many([[f"reader-{n}@example.com"] for n in range(self.waiting)])
        steps = (close_day.step(name) for name in ("collect", "balance", "report"))
        return chain(*steps, name="close the day").enqueue()


def happen(
    deploy: Deploy, processes: Processes, say: Callable[[str], None], seconds: float
) -> list[str]:
    """Let it happen; what did not go as it should."""
    first = clock.new_id()
    call_command("ojs", "mark-deploy", RELEASE, verbosity=0)
    halted = deploy.enqueue()
    say(f"enqueued: {deploy.failures:,} jobs that will fail, {deploy.good:,} that will not")
    say(f"enqueued: {deploy.waiting} jobs in a queue without a worker, a workflow")
    drain = ["runworker", "--drain", "--queue", QUEUE, "--concurrency", "2", "--verbosity", "0"]
    drain += ["--release", RELEASE]
    worker = processes.start("worker", *drain)
    found = []
    if not poll(lambda: worker.poll() is not None, seconds):
        found.append(f"the worker had not ended after {seconds:g} s")
    made = Job.objects.filter(queue=QUEUE, pk__gt=first)
    ended = dict(made.values_list("state").annotate(count=Count("pk")).order_by())
    # Of the workflow one step completes, one fails.
    if ended != {"completed": deploy.good + 1, "discarded": deploy.failures + 1}:
        found.append(f"the jobs of the deploy are {ended}")
    if get_workflow(halted).state != "failed":
        found.append(f"the workflow is {get_workflow(halted)}, not failed")
    exported = export.enqueue()
    name = f"box-7-{str(exported.id)[-6:]}"
    only = ("--queue", STUCK, "--worker-id", name, "--no-maintenance")
    box = processes.start(name, "runworker", *only)
    if not poll(lambda: get(exported).progress == 0.4, 20):
        found.append("the export had not begun after 20 s")
    box.send_signal(signal.SIGKILL)
    box.wait()
    say(f"{deploy.failures:,} jobs have failed, for three reasons, and the workflow has halted")
    say(f"{name} was killed in the middle of an export")
    return found
