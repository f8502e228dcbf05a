"""Clusters of our own for the whole session; ``default`` is the one that a test asks for."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from tests.clusters.clusters import KINDS, Cluster
from tests.clusters.pointing import default_is
from tests.clusters.proxy import Proxy
from tests.conftest import empty_tables
from tests.process.conftest import diary, flag, manage, python, worker  # noqa: F401


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of it is about processes."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.process)


def absent(key: str, reason: str) -> None:
    """Skip, or fail where ``OJS_REQUIRE`` names it."""
    if key in os.environ.get("OJS_REQUIRE", "").split(","):
        pytest.fail(f"required but missing: {key} ({reason})")
    pytest.skip(f"no {key} of our own: {reason}")


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """A folder that other users may enter; servers do not run as root."""
    with tempfile.TemporaryDirectory(prefix="ojs-clusters-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


def created(cluster: Cluster) -> None:
    """Up, with our tables."""
    cluster.create()
    cluster.migrate()


@pytest.fixture(scope="session")
def clusters(folder: Path) -> Iterator[dict[str, Cluster]]:
    """Those that can be started here, all at once."""
    made = {kind.key: kind(folder / kind.key) for kind in KINDS if kind.missing() is None}
    with ExitStack() as started, ThreadPoolExecutor() as pool:
        for one in made.values():
            started.callback(one.kill)
        for creation in [pool.submit(created, one) for one in made.values()]:
            creation.result()
        yield made


@pytest.fixture(params=[kind.key for kind in KINDS])
def cluster(
    request: pytest.FixtureRequest, clusters: dict[str, Cluster], django_db_blocker: Any
) -> Iterator[Cluster]:
    """A server that this test may do anything to; our tables are empty before and after."""
    key = request.param
    if key not in clusters:
        absent(key, next(str(kind.missing()) for kind in KINDS if kind.key == key))
    found = clusters[key]
    with django_db_blocker.unblock(), default_is(found.url()):
        empty_tables()
        yield found
        connections["default"].close()
        empty_tables()


@pytest.fixture
def ojs_db(cluster: Cluster) -> None:
    """What the fixtures of the process tests ask for."""


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[Callable[[], Proxy]]:
    """Make a proxy in front of the cluster."""
    with ExitStack() as stack:

        def make() -> Proxy:
            return stack.enter_context(Proxy(cluster.port))

        yield make
