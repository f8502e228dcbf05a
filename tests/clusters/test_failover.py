"""``make failover``, the short form: the server that is written to is taken away under load."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.clusters.clusters import PostgreSQL
from tests.clusters.conftest import absent
from tests.failover import nodes
from tests.failover.galera import Node
from tests.support import ROOT


@pytest.mark.long
@pytest.mark.timeout(600)
def test_nothing_is_lost_when_another_server_takes_over() -> None:
    if (reason := PostgreSQL.missing() or nodes.missing()) is not None:
        absent("pg", reason)
    if (reason := Node.missing()) is not None:
        absent("mariadb", reason)
    done = subprocess.run(
        [sys.executable, "-m", "tests.failover", "--brief"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert "5 cases, 0 failed" in done.stdout
