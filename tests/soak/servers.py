"""A database to break: a server of our own on a free port, or a file."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from django.db import connections


class Missing(Exception):
    """A program that is needed is not there, or does not work."""


class Database(Protocol):
    """What a soak asks of its database."""

    url: str

    def start(self) -> None:
        """Up, and answering."""

    def halt(self) -> None:
        """Down at once, as in a crash."""

    def tend(self) -> int | None:
        """Up again if it has gone down by itself; its exit code then."""

    def stop(self) -> None:
        """Down for good, and nothing left."""

    def pids(self) -> set[int]:
        """Its processes."""

    def end_sessions(self, pick: float) -> int:
        """End up to three sessions of others; how many."""


class File:
    """SQLite: no server, so no faults of one."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/soak.sqlite3"

    def start(self) -> None:
        """Nothing to do."""

    halt = tend = stop = start

    def pids(self) -> set[int]:
        """None."""
        return set()

    def end_sessions(self, pick: float) -> int:
        """There are none."""
        return 0


class Server:
    """A server process of our own, as an unprivileged account."""

    account = ""
    sessions = ""
    end = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "server"
        self.data = self.folder / "data"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.folder.mkdir()
        if owner := self._owner():
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        until = time.monotonic() + 60
        while True:
            self._process = self._run(self.command())
            while self._process.poll() is None:
                if self.ready():
                    return
                if time.monotonic() > until:
                    break
                time.sleep(0.05)
            # What is left of a crashed predecessor may stand in the way for a moment.
            if time.monotonic() > until:
                raise Missing(f"the database server does not start: {self.log()}")
            time.sleep(0.2)

    def tend(self) -> int | None:
        """Up again if it has gone down by itself; its exit code then."""
        code = None if self._process is None else self._process.poll()
        if code is not None:
            self.start()
        return code

    def halt(self) -> None:
        """Down at once, as in a crash; until it is started."""
        assert self._process is not None
        os.kill(self._process.pid, self.crash)
        self._process.wait(30)
        self._process = None

    def stop(self) -> None:
        """Down for good."""
        if self._process is not None and self._process.poll() is None:
            self.halt()

    def pids(self) -> set[int]:
        """The server and the processes below it."""
        from tests.support import descendants

        if self._process is None or self._process.poll() is not None:
            return set()
        return {self._process.pid, *descendants(self._process.pid)}

    def end_sessions(self, pick: float) -> int:
        """One to three neighbours in the list of sessions."""
        connection = connections["default"]
        with connection.cursor() as cursor:
            cursor.execute(self.sessions)
            found = [row[0] for row in cursor.fetchall()]
            first = int(pick * len(found))
            chosen = found[first : first + 1 + int(pick * 1000) % 3]
            ended = 0
            for session in chosen:
                try:
                    cursor.execute(self.end, [session])
                    ended += 1
                except Exception:  # it may have ended by itself
                    continue
        connection.close()
        return ended

    def log(self) -> str:
        """The end of what the server wrote."""
        return (self.folder / "log").read_text(errors="replace")[-2000:]

    crash: int = signal.SIGKILL

    def command(self) -> Sequence[str]:
        """The server's command line."""
        raise NotImplementedError

    def ready(self) -> bool:
        """Whether a client gets in."""
        raise NotImplementedError

    def _owner(self) -> pwd.struct_passwd | None:
        """Servers refuse to run as root; anybody else runs them as themselves."""
        if os.geteuid() != 0:
            return None
        try:
            return pwd.getpwnam(self.account)
        except KeyError:
            raise Missing(f"root needs the account {self.account} to run the server") from None

    def _run(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """As the account that owns its files."""
        who: dict[str, Any] = {}
        if owner := self._owner():
            who = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                command,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "HOME": str(self.folder), "LC_ALL": "C.UTF-8"},
                start_new_session=True,
                **who,
            )

    def _once(self, command: Sequence[str]) -> None:
        if self._run(command).wait(120):
            raise Missing(f"{command[0]}: {self.log()}")


class Postgres(Server):
    """PostgreSQL; an immediate shutdown is its crash."""

    account = "postgres"
    crash = signal.SIGQUIT
    sessions = (
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid() ORDER BY pid"
    )
    end = "SELECT pg_terminate_backend(%s)"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.url = f"postgres://soak@127.0.0.1:{self.port}/soak"
        self._once(
            [
                *(program("initdb"), "-D", f"{self.data}", "-A", "trust", "-U", "soak"),
                *("-E", "UTF8", "--locale=C.UTF-8", "--no-sync"),
            ]
        )

    def command(self) -> Sequence[str]:
        """Durable, as in production."""
        return [
            *(program("postgres"), "-D", f"{self.data}", "-p", f"{self.port}", "-k", f"{self.folder}"),
            *("-c", "listen_addresses=127.0.0.1", "-c", "max_connections=300"),
        ]

    def ready(self) -> bool:
        """Whether a client gets in; the first one makes the database."""
        import psycopg

        place = f"postgres://soak@127.0.0.1:{self.port}/postgres"
        try:
            with psycopg.connect(place, autocommit=True, connect_timeout=2) as line:
                if not line.execute("SELECT 1 FROM pg_database WHERE datname = 'soak'").fetchone():
                    line.execute("CREATE DATABASE soak")
                return True
        except psycopg.OperationalError:
            return False


class MariaDB(Server):
    """MariaDB; its crash is a SIGKILL."""

    account = "mysql"
    sessions = (
        "SELECT id FROM information_schema.processlist WHERE db = 'soak' AND id <> CONNECTION_ID()"
    )
    end = "KILL %s"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.url = f"mysql://root@127.0.0.1:{self.port}/soak"
        self._once(
            [
                *(program("mariadb-install-db"), "--no-defaults", f"--datadir={self.data}"),
                *("--auth-root-authentication-method=normal", "--skip-test-db", self._own_tmpdir()),
            ]
        )

    def command(self) -> Sequence[str]:
        """Durable, as in production."""
        return [
            *(program("mariadbd"), "--no-defaults", f"--datadir={self.data}", f"--port={self.port}"),
            *("--bind-address=127.0.0.1", f"--socket={self.folder}/socket", "--skip-name-resolve"),
            *(f"--pid-file={self.folder}/pid", "--max-connections=300", self._own_tmpdir()),
        ]

    def _own_tmpdir(self) -> str:
        """A server that starts deletes what it finds of temporary tables in its folder for them.

        Of other servers too, which then crash.
        """
        return f"--tmpdir={self.folder}"

    def ready(self) -> bool:
        """Whether a client gets in; the first one makes the database."""
        import pymysql

        try:
            line = pymysql.connect(host="127.0.0.1", port=self.port, user="root", connect_timeout=2)
        except pymysql.OperationalError:
            return False
        with line, line.cursor() as cursor:
            cursor.execute("CREATE DATABASE IF NOT EXISTS soak CHARACTER SET utf8mb4")
        return True


KINDS: dict[str, type[File | Postgres | MariaDB]] = {"sqlite": File, "pg": Postgres, "mariadb": MariaDB}


def program(name: str) -> str:
    """The newest program of this name, in the path or where Debian keeps PostgreSQL's."""
    versions = glob.glob(f"/usr/lib/postgresql/*/bin/{name}")
    if versions:
        return max(versions, key=lambda path: float(path.split("/")[4]))
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise Missing(f"there is no {name} here")
    return found


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
