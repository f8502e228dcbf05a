"""PostgreSQL with a standby: two servers that begin as copies of one folder."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.clusters import clusters
from tests.clusters.clusters import ACCOUNT
from tests.clusters.proxy import Proxy
from tests.failover import judge
from tests.failover.judge import Attempt, Rows
from tests.failover.nodes import Backend, Balancer, Listen, Status
from tests.lab import effects, raw
from tests.lab.databases import SteppablePostgreSQL, suspended
from tests.support import poll


class Server(SteppablePostgreSQL):
    """One of the two. ``options`` are for its command line, ``offset`` seconds are on its clock."""

    quick = {
        "fsync": "off",
        "full_page_writes": "off",
        "shared_buffers": "16MB",
        "wal_level": "replica",
        "max_wal_senders": "4",
        "wal_keep_size": "64MB",
        "wal_receiver_timeout": "5s",
        "wal_retrieve_retry_interval": "500ms",
        "log_min_messages": "fatal",
    }

    def __init__(self, folder: Path, *, offset: int = 0) -> None:
        super().__init__(folder)
        self.options: dict[str, str] = {}
        self.offset = offset
        if offset:
            self.set_clock(offset)

    def _command(self) -> list[str]:
        plain = clusters.PostgreSQL._command(self)
        plain += [f"--{name}={value}" for name, value in self.options.items()]
        return self._faked(plain) if self.offset else plain

    def rows(self) -> Rows:
        """What it shows, past every proxy."""
        with raw.session(self.url()) as session:
            return judge.rows(session)

    def shut_down(self) -> None:
        """End it in order: its folder is a backup then."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._process.wait(60)
        self._process = None

    def becomes_copy_of(self, template: Path) -> None:
        """Its data are those of a server that was shut down."""
        subprocess.run(["cp", "-a", str(template), str(self.folder / "data")], check=True)


def make_template(folder: Path) -> Path:
    """The data of a server with our tables."""
    server = Server(folder / "template")
    try:
        server.create()
        server.migrate()
        server.shut_down()
    finally:
        server.kill()
    return server.folder / "data"


STANDBY = "standby suspended"
WAIT = 10.0
"""Seconds for which commits wait then: more than twice as long as a heartbeat may take."""
DETECTION = 3.0
"""Seconds until what decides gives the primary up."""
_OPTIONS = "connect_timeout=3&tcp_user_timeout=6000"
"""What the documentation tells applications to say: nobody guards their connections but they."""


class Pair:
    """A primary with a standby, each behind a proxy, and what clients connect to.

    ``way`` is ``hosts`` for both in one DSN, or ``address`` for one that a balancer serves. What
    decides who the primary is, as Patroni does, is this class; it knows one thing of the servers: the
    standby is told to promote itself when it has to.
    """

    synchronous = "ojs_standby"

    def __init__(
        self, folder: Path, template: Path, *, way: str, offset: int = 0, synchronous: bool = True
    ) -> None:
        self._stack = ExitStack()
        self.old = Server(folder / "old")
        self.new = Server(folder / "new", offset=offset)
        self._way = way
        self._writer: Server | None = self.old
        for server in (self.old, self.new):
            server.becomes_copy_of(template)
        self.to_old, self.to_new = Proxy(self.old.port), Proxy(self.new.port)
        if synchronous:
            self.old.options["synchronous_standby_names"] = self.synchronous
        self.new.options["primary_conninfo"] = (
            f"host=127.0.0.1 port={self.to_old.port} user=postgres"
            f" application_name={self.synchronous} connect_timeout=2"
        )
        (self.new.folder / "data" / "standby.signal").touch()
        self._folder = folder
        self._held: list[int] = []

    def __enter__(self) -> Pair:
        stack = self._stack
        for server in (self.old, self.new):
            stack.callback(server.kill)
        for proxy in (self.to_old, self.to_new):
            stack.enter_context(proxy)
        self.old.start()
        self.new.start()
        poll(self._streams)
        if self._way == "address":
            backends = []
            for server, proxy in ((self.old, self.to_old), (self.new, self.to_new)):
                status = Status(lambda server=server: self._writer is server)  # type: ignore[misc]
                stack.callback(status.close)
                backends.append(Backend(proxy.port, status.port))
            balancer = Balancer(self._folder / "haproxy", {"database": Listen(backends)})
            stack.enter_context(balancer.running())
            self._port = balancer.ports["database"]
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _streams(self) -> bool:
        wanted = "sync" if self.old.options else "async"
        return self.old.admin("SELECT sync_state FROM pg_stat_replication") == [(wanted,)]

    def url(self) -> str:
        """What the application is told, and is never told anew."""
        if self._way == "address":
            return f"postgres://{ACCOUNT}@127.0.0.1:{self._port}/{ACCOUNT}?{_OPTIONS}"
        return (
            f"postgres://{ACCOUNT}@/{ACCOUNT}?host=127.0.0.1,127.0.0.1"
            f"&port={self.to_old.port},{self.to_new.port}"
            f"&target_session_attrs=read-write&{_OPTIONS}"
        )

    def urls(self) -> list[str]:
        """What those are told that compete for jobs."""
        return [self.url()]

    def lose(self, how: str) -> float:
        """Take the primary away: ``killed``, ``suspended`` or ``cut off``, from its standby too. The
        standby is promoted; returns the moment from which it can be written to. With ``standby
        suspended``, the commits of the primary wait for a while, and it goes on reading.
        """
        if how == STANDBY:
            with suspended(self.new):
                time.sleep(WAIT)
            return effects.now()
        if not self.old.options:
            # What has not arrived by now never will.
            self._hold_back()
            time.sleep(1)
        if how == "killed":
            self.old.kill()
        elif how == "suspended":
            self._stack.enter_context(suspended(self.old))
        else:
            self.to_old.silence()
        self._writer = None
        time.sleep(DETECTION)
        for pid in self._held:
            # A promotion waits until it has ended.
            os.kill(pid, signal.SIGCONT)
        assert self.new.admin("SELECT pg_promote(true, 30)") == [(True,)]
        poll(lambda: self.new.admin("SELECT pg_is_in_recovery()") == [(False,)])
        self._writer = self.new
        return effects.now()

    def rows(self) -> Rows:
        """What the new primary shows, or the only one that there was."""
        return (self._writer or self.new).rows()

    def come_back(self, how: str) -> list[Attempt]:
        """The old primary is there again, and believes that it is one, until what decides finds it and
        ends it; what it had acknowledged.
        """
        if how in ("killed", STANDBY):
            return []
        if how == "suspended":
            for pid in self.old.pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        else:
            self.to_old.speak()
        time.sleep(3)
        on_old = self.old.rows().attempts
        self.old.crash()
        return on_old

    def disagreements(self) -> list[str]:
        """There is one server left."""
        return []

    def _hold_back(self) -> None:
        """Nothing reaches the standby any more."""
        for pid in self.new.pids():
            title = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"walreceiver" in title:
                os.kill(pid, signal.SIGSTOP)
                self._held.append(pid)
