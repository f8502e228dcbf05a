"""Creates the workflows of the plan until it is told to stop; cancels some and resumes some.

As with jobs, an id is written before it is tried, and again once the database has said yes.
"""

from __future__ import annotations

import argparse
import heapq
import signal
import threading
import time
from functools import partial
from typing import Any

import django

from tests.soak import workflow_plan
from tests.soak.workflow_plan import Member, Shape


def _step(member: Member) -> Any:
    from django_ojs import step
    from tests.soak import plan

    limits = plan.LIMITS_OF.get(member.kind, plan.LIMITS)
    options: dict[str, Any] = {"queue": member.queue, "when": member.when, **limits}
    return step(f"soak.{member.kind}", member.args, **options)


def built(shape: Shape) -> Any:
    """The shape as a workflow of the public API."""
    from django_ojs import batch, chain, group, workflow

    members = [_step(one) if isinstance(one, Member) else built(one) for one in shape.members]
    callbacks = {name: _step(one) for name, one in shape.callbacks.items()}
    if shape.kind == "dag":
        dag = workflow("soak", **callbacks)
        nodes: list[Any] = []
        for member, after in zip(members, shape.after, strict=True):
            nodes.append(dag.add(member, after=[nodes[place] for place in after]))
        return dag
    kinds: dict[str, Any] = {"chain": chain, "group": group, "batch": batch}
    return kinds[shape.kind](*members, **callbacks)


class Enqueuer:
    """One connection, one workflow at a time."""

    def __init__(self, seed: int) -> None:
        self._shapes = workflow_plan.shapes(seed)
        self._acts: list[tuple[float, str, str]] = []
        self._stopped = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: self._stopped.set())

    def run(self) -> None:
        """At the rate, unless as many workflows are running as should."""
        while not self._stopped.wait(1 / workflow_plan.RATE):
            self._act(time.monotonic())
            if not self._crowded():
                self._create(next(self._shapes))

    def _create(self, shape: Shape) -> None:
        from django_ojs import new_id
        from tests.soak import ledger
        from tests.soak.enqueuer import insist

        key = new_id()
        ledger.write("try workflow", workflow=str(key))
        made = built(shape)
        if insist(partial(made.enqueue, id=key, workflow_timeout=shape.timeout)) is None:
            return
        ledger.write("acknowledged workflow", workflow=str(key))
        for verb, after in (("cancel", shape.cancel_after), ("resume", shape.resume_after)):
            if after is not None:
                heapq.heappush(self._acts, (time.monotonic() + after, verb, str(key)))

    def _act(self, now: float) -> None:
        from django_ojs import cancel_workflow, resume_workflow
        from django_ojs.domain.errors import Conflict
        from tests.soak import ledger
        from tests.soak.enqueuer import insist

        verbs = {"cancel": cancel_workflow, "resume": resume_workflow}
        while self._acts and self._acts[0][0] <= now:
            _, verb, key = heapq.heappop(self._acts)
            try:
                if insist(partial(verbs[verb], key)) is not None:
                    ledger.write("workflow act", verb=verb, workflow=key)
            except Conflict:
                # It has ended, or has not: the ledger need not know.
                continue

    def _crowded(self) -> bool:
        from django_ojs.models import Workflow
        from tests.soak.enqueuer import insist

        running = Workflow.objects.filter(finished_at__isnull=True, parent_id__isnull=True)
        count = insist(lambda: (running.count(),))
        return count is not None and count[0] >= workflow_plan.OPEN


def main() -> None:
    """Until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    chosen = parser.parse_args()
    django.setup()
    Enqueuer(chosen.seed).run()


if __name__ == "__main__":
    main()
