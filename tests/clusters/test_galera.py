"""Nodes of a Galera cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connections

from django_ojs.models import Job
from django_ojs.store import batches
from tests.clusters.conftest import absent
from tests.clusters.pointing import default_is
from tests.conftest import empty_tables
from tests.failover import galera
from tests.failover.galera import Node
from tests.services.support import make, take


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


TABLE = Job._meta.db_table
