"""A Galera cluster: three servers that begin as copies of one folder, and what clients connect to."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.clusters.clusters import ACCOUNT, MariaDB, as_user, free_port
from tests.clusters.proxy import Proxy
from tests.failover import judge
from tests.failover.judge import Attempt, Rows
from tests.failover.nodes import CHECK_MS, Backend, Balancer, Listen, Status
from tests.lab import effects, raw
from tests.lab.databases import suspended
from tests.support import poll

PROVIDERS = "usr/lib*/galera*/libgalera_smm.so"
SIZE = 3
ANOTHER = "another suspended"
RISE = 16
"""For eight seconds: a node that was suspended believes that it is one of the others until its
``evs.suspect_timeout`` is over.
"""
_SYNCED = "4"
_CHECK_S = 1.5
"""Seconds that what runs beside a node waits for the node's answer."""
_POSITION = re.compile(r"Recovered position: (\S+:-?\d+)")
SYNC_WAIT = "--wsrep-sync-wait=7"
"""Reads, updates and inserts see what was committed before on any node."""


def provider() -> str | None:
    """The library that makes a node of a server, if it is installed."""
    return next((str(path) for path in sorted(Path("/").glob(PROVIDERS))), None)


class Node(MariaDB):
    """One of them, or of as many as ``peers`` names, by their ports for each other."""

    programs = (*MariaDB.programs, "rsync")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.group_port, self._receive_port, self._transfer_port = (free_port() for _ in range(3))
        self.peers: list[int] = []
        self.options: list[str] = []
        self._once: list[str] = []

    @classmethod
    def missing(cls) -> str | None:
        """Why there can be none here."""
        return super().missing() or (None if provider() else "galera-4: not installed")

    def _command(self) -> list[str]:
        addresses = ",".join(f"127.0.0.1:{port}" for port in self.peers)
        options = (
            f"gmcast.listen_addr=tcp://127.0.0.1:{self.group_port}",
            f"ist.recv_addr=127.0.0.1:{self._receive_port}",
            "gcache.size=32M",
        )
        return [
            *super()._command(),
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
            "--wsrep-on=ON",
            f"--wsrep-provider={provider()}",
            f"--wsrep-provider-options={';'.join(options)}",
            "--wsrep-cluster-name=ojs",
            f"--wsrep-cluster-address=gcomm://{addresses}",
            f"--wsrep-node-name={self.folder.name}",
            "--wsrep-node-address=127.0.0.1",
            "--wsrep-sst-method=rsync",
            f"--wsrep-sst-receive-address=127.0.0.1:{self._transfer_port}",
            *self.options,
            *self._once,
        ]

    def bootstrap(self) -> None:
        """Start as the first of a cluster."""
        self._once = ["--wsrep-new-cluster"]
        self.start()
        self._once = []
        poll(self.synced, 60, every=0.05)

    def join(self) -> None:
        """Start, and catch up with those that are there; after a crash from where it stood."""
        self._once = [f"--wsrep-start-position={self._recovered()}"]
        self.start()
        self._once = []
        poll(self.synced, 120, every=0.05)

    def _recovered(self) -> str:
        """As ``galera_recovery`` of the packages finds out."""
        state = (self.folder / "data" / "grastate.dat").read_text()
        known = dict(re.findall(r"^(uuid|seqno):\s+(\S+)", state, re.MULTILINE))
        if known["seqno"] != "-1":
            return f"{known['uuid']}:{known['seqno']}"
        log = self.folder / "recovered.err"
        self._run(*self._command(), "--wsrep-recover", f"--log-error={log}", who=as_user(self.user))
        return str(_POSITION.findall(log.read_text())[-1])

    def shut_down(self) -> None:
        """End it in order: its folder is a backup then."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)
        self._process = None

    def becomes_copy_of(self, template: Path) -> None:
        """Its data are those of a node that was shut down."""
        subprocess.run(["cp", "-a", str(template), str(self.folder / "data")], check=True)

    def status(self) -> dict[str, str]:
        """What it says of itself; empty if it does not answer."""
        import pymysql

        try:
            session = pymysql.connect(
                unix_socket=str(self.folder / "socket"),
                user="root",
                connect_timeout=_CHECK_S,
                read_timeout=_CHECK_S,
            )
            try:
                with session.cursor() as cursor:
                    cursor.execute("SHOW GLOBAL STATUS LIKE 'wsrep\\_%'")
                    return {name: str(value) for name, value in cursor.fetchall()}
            finally:
                session.close()
        except (pymysql.Error, OSError):
            return {}

    def synced(self, size: int | None = None) -> bool:
        """Whether it takes statements, in a cluster of so many."""
        said = self.status()
        return (
            said.get("wsrep_local_state") == _SYNCED
            and said.get("wsrep_cluster_status") == "Primary"
            and said.get("wsrep_ready") == "ON"
            and size in (None, int(said["wsrep_cluster_size"]))
        )

    def conflicts(self) -> int:
        """How many transactions of its clients were rolled back for one of another node."""
        said = self.status()
        return int(said["wsrep_local_cert_failures"]) + int(said["wsrep_local_bf_aborts"])

    def alone(self, yes: bool) -> None:
        """Whether it hears nothing of the others, and they nothing of it."""
        self.admin(f"SET GLOBAL wsrep_provider_options = 'gmcast.isolate={int(yes)}'")

    def rows(self, *, dirty: bool = False) -> Rows:
        """What it shows of all that was committed before; or, dirty, also when it may not answer."""
        with raw.session(self.url()) as session:
            how = "wsrep_dirty_reads = 1" if dirty else "wsrep_sync_wait = 1"
            session.run(f"SET SESSION {how}")
            return judge.rows(session)


def make_template(folder: Path) -> Path:
    """The data of a node with our tables."""
    node = Node(folder / "galera")
    try:
        node._install()
        node.bootstrap()
        for statement in node._setup:
            node.admin(statement)
        node.migrate()
        node.shut_down()
    finally:
        node.kill()
    return node.folder / "data"


def start(nodes: Sequence[Node]) -> None:
    """Make a cluster of them; returns when they take statements."""
    for node in nodes:
        node.peers = [other.group_port for other in nodes]
    first, *others = nodes
    first.bootstrap()
    with ThreadPoolExecutor() as pool:
        for joined in [pool.submit(node.join) for node in others]:
            joined.result()
    poll(lambda: all(node.synced(len(nodes)) for node in nodes), 60, every=0.1)


class Galera:
    """Three nodes, each behind a proxy, behind a balancer that knows which are synced.

    With ``writers`` of 1 the other nodes only stand in for the first. With 2, sessions come to two of
    them in turn, and each of the two has an address of its own, so that who claims the same jobs does
    it on different nodes. Each statement ``waits`` until the node has seen what was committed before.
    """

    def __init__(self, folder: Path, template: Path, *, writers: int, waits: bool) -> None:
        self._stack = ExitStack()
        self._folder = folder
        self.nodes = [Node(folder / f"node{number}") for number in range(SIZE)]
        for node in self.nodes:
            node.becomes_copy_of(template)
            if waits:
                node.options.append(SYNC_WAIT)
        self.old, *self.others = self.nodes
        self._away = self.old
        self._proxies = [Proxy(node.port) for node in self.nodes]
        self._writers = writers
        self._unreachable: set[Node] = set()

    def __enter__(self) -> Galera:
        stack = self._stack
        for node in self.nodes:
            stack.callback(node.kill)
        for proxy in self._proxies:
            stack.enter_context(proxy)
        start(self.nodes)
        backends = []
        for node, proxy in zip(self.nodes, self._proxies, strict=True):
            status = Status(self._answers(node))
            stack.callback(status.close)
            backends.append(Backend(proxy.port, status.port))
        listens = {"database": Listen(backends, self._writers, RISE)}
        for number in range(self._writers):
            # The one whose it is first.
            listens[f"writer{number}"] = Listen([*backends[number:], *backends[:number]], 1, RISE)
        balancer = Balancer(self._folder / "haproxy", listens)
        stack.enter_context(balancer.running())
        self._ports = balancer.ports
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _answers(self, node: Node) -> Callable[[], bool]:
        def writable() -> bool:
            if node in self._unreachable:
                # Longer than the balancer waits.
                time.sleep(2 * _CHECK_S)
                return False
            return node.synced()

        return writable

    def url(self) -> str:
        """What the application is told, and is never told anew."""
        return f"mysql://{ACCOUNT}@127.0.0.1:{self._ports['database']}/{ACCOUNT}"

    def urls(self) -> list[str]:
        """What those are told that compete for jobs."""
        ports = [self._ports[f"writer{number}"] for number in range(self._writers)]
        return [f"mysql://{ACCOUNT}@127.0.0.1:{port}/{ACCOUNT}" for port in ports]

    def lose(self, how: str) -> float:
        """Take the writer away: ``killed``, ``suspended``, ``cut off`` from everybody, or ``alone``,
        where clients still reach it. The others have to see for themselves; returns the moment. With
        ``another suspended``, all commits wait until the others have given that one up.
        """
        if how == "killed":
            self.old.kill()
        elif how in ("suspended", ANOTHER):
            self._away = self.nodes[-1] if how == ANOTHER else self.old
            self._stack.enter_context(suspended(self._away))
        else:
            if how == "cut off":
                self._unreachable.add(self.old)
                self._proxies[0].silence()
            self.old.alone(True)
        return effects.now()

    def rows(self) -> Rows:
        """What those that remain show, past every proxy."""
        return self.others[0].rows(dirty=True)

    def come_back(self, how: str) -> list[Attempt]:
        """The old one joins the others again; what it showed before."""
        on_old: list[Attempt] = []
        if how == "killed":
            self.old.join()
        elif how in ("suspended", ANOTHER):
            for pid in self._away.pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            on_old = self._away.rows(dirty=True).attempts
        else:
            on_old = self.old.rows(dirty=True).attempts
            self.old.alone(False)
            if how == "cut off":
                self._proxies[0].speak()
                self._unreachable.clear()
        poll(lambda: all(node.synced(SIZE) for node in self.nodes), 90, every=0.1)
        # The balancer sends it sessions again, of those that it was the first for.
        time.sleep(RISE * CHECK_MS / 1000 + 1)
        return on_old

    def disagreements(self) -> list[str]:
        """What is not the same on all nodes; nobody writes any more."""
        first, *others = [node.rows() for node in self.nodes]
        return [
            f"node{number} shows other rows" for number, rows in enumerate(others, 1) if rows != first
        ]

    def conflicts(self) -> int:
        """How many transactions were rolled back for one of another node, on all of them."""
        return sum(node.conflicts() for node in self.nodes)
