"""Nodes of a Galera cluster: one that may not answer, and one that is behind."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connections

from django_ojs import api
from django_ojs.models import Job
from django_ojs.services.rate_limits import admission
from django_ojs.store import batches, sessions
from django_ojs.store.dialect import dialect
from tests.clusters.conftest import absent
from tests.clusters.pointing import default_is
from tests.conftest import empty_tables
from tests.failover import galera
from tests.failover.galera import Node
from tests.services.support import ack, make, nobody_admits, now_stored, take
from tests.support import ROOT, poll


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Sequence[Node]]:
    """A cluster of two nodes."""
    if (reason := Node.missing()) is not None:
        absent("mariadb", reason)
    template = galera.make_template(folder)
    nodes = [Node(folder / f"galera{number}") for number in range(2)]
    try:
        for node in nodes:
            node.becomes_copy_of(template)
        galera.start(nodes)
        yield nodes
    finally:
        for node in nodes:
            node.kill()


@pytest.fixture
def nodes(running: Sequence[Node], django_db_blocker: Any) -> Iterator[Sequence[Node]]:
    """The cluster; ``default`` is its first node, and our tables are empty."""
    with django_db_blocker.unblock(), default_is(running[0].url()):
        empty_tables()
        yield running
        connections["default"].close()


@pytest.fixture
def rejecting(nodes: Sequence[Node]) -> Iterator[None]:
    """The first node answers as one that has lost the others."""
    nodes[0].admin("SET GLOBAL wsrep_reject_queries = ALL")
    yield
    nodes[0].admin("SET GLOBAL wsrep_reject_queries = NONE")


def test_the_ladder_says_how_to_see_that_a_node_is_of_the_majority(nodes: Sequence[Node]) -> None:
    (statement,) = re.findall(
        r"^(SHOW GLOBAL STATUS .*);$", (ROOT / "docs/howto/scale.md").read_text(), re.MULTILINE
    )
    assert [node.admin(statement) for node in nodes] == [[("wsrep_cluster_status", "Primary")]] * 2


@pytest.mark.fault("F145")
def test_a_node_that_may_not_answer_refuses_no_report(rejecting: None) -> None:
    refused: list[int] = []
    assert batches.answers("default"), "what needs no table is answered"
    with pytest.raises(OperationalError, match="WSREP has not yet prepared"):
        batches.in_batches(
            [1, 2],
            lambda part: Job.objects.count(),
            refused=lambda item, error: refused.append(item),
            most=2,
            using="default",
        )
    assert refused == []


@pytest.mark.fault("F146")
def test_a_new_session_sees_what_was_committed_on_another_node(nodes: Sequence[Node]) -> None:
    """As after a failover: the node that takes over has received everything, and not applied it."""
    _, second = nodes
    second.admin("SET GLOBAL wsrep_desync = ON")
    paused = second.connect()
    try:
        paused.cursor().execute("FLUSH TABLES WITH READ LOCK")
        job = api.enqueue("test.job")
        with default_is(second.url()):
            assert not Job.objects.filter(pk=job.id).exists(), "it is behind"
            connections["default"].close()
            with sessions.caught_up("default"):
                going_on = threading.Thread(target=_go_on_when_waited_for, args=(second, paused))
                going_on.start()
                assert Job.objects.filter(pk=job.id).exists()
                going_on.join()
    finally:
        paused.close()
        second.admin("SET GLOBAL wsrep_desync = OFF")


def test_a_worker_of_a_cluster_claims_and_reports_on_one_connection(nodes: Sequence[Node]) -> None:
    """Else a report could come to a node that does not know the claim yet."""
    assert not dialect("default").claims_apart()


@pytest.mark.fault("F147")
def test_of_two_nodes_that_take_a_job_one_takes_another(
    nodes: Sequence[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The locks of a node are its own: who commits second learns of the other then."""
    first, second = nodes
    taken, left = make(2)
    connection: Any = connections["default"]
    connection.ensure_connection()
    real, ahead = connection._commit, [True]

    def commit() -> None:
        if ahead and Job.objects.filter(pk=taken.id, state="active").exists():
            ahead.clear()
            second.admin(f"UPDATE ojs.{TABLE} SET state = 'cancelled' WHERE id = %s", str(taken.id))
        real()

    monkeypatch.setattr(connection, "_commit", commit)
    before = first.conflicts()
    (claimed,) = take(1)
    assert not ahead and first.conflicts() == before + 1
    assert claimed.id == left.id
    assert Job.objects.get(pk=taken.id).state == "cancelled"


def test_two_nodes_do_not_let_in_one_job_each_where_one_may_run(
    nodes: Sequence[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The locks of a node are its own: who commits second learns of the other then."""
    first, second = nodes
    limit = {"key": "k", "concurrency": 1}
    (job,) = make(1, rate_limit=limit) and take()
    ack(job)
    with nobody_admits():
        (mine,) = make(1, rate_limit=limit)
    connection: Any = connections["default"]
    real, ahead = connection._commit, [True]

    def commit() -> None:
        if ahead and Job.objects.filter(pk=mine.id, held=False).exists():
            ahead.clear()
            enqueueing = threading.Thread(target=_enqueue, args=(second, limit))
            enqueueing.start()
            enqueueing.join()
        real()

    monkeypatch.setattr(connection, "_commit", commit)
    before = first.conflicts()
    admission.admit_due(at_once=True, using="default")
    assert not ahead and first.conflicts() == before + 1
    (theirs,) = Job.objects.filter(held=False, state="available")
    assert theirs.priority == 5
    assert now_stored(mine).held


def _enqueue(node: Node, limit: dict[str, Any]) -> None:
    """A job that is let in first, over another node."""
    with default_is(node.url()):
        make(1, rate_limit=limit, priority=5)
        connections["default"].close()


def _go_on_when_waited_for(node: Node, paused: Any) -> None:
    """Let a node apply what it has received, when a session waits for that."""
    try:
        poll(lambda: node.sessions() and node.admin(WAITING), every=0.05)
    finally:
        paused.cursor().execute("UNLOCK TABLES")


TABLE = Job._meta.db_table
WAITING = (
    "SELECT 1 FROM information_schema.processlist"
    " WHERE user = 'ojs' AND command = 'Query' AND time_ms > 300"
)
