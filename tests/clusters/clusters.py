"""Database servers of our own: made in a folder, started on a free port, ended by their process ids."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.db import connections

from tests.support import ROOT, alive, descendants, poll

ACCOUNT = "ojs"
"""The account and the database of the application; it may do nothing to the server."""


def program(name: str) -> str | None:
    """The path of a server program, also where no PATH leads to."""
    packaged = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: path.parts)
    return (
        shutil.which(name)
        or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
        or (str(packaged[-1]) if packaged else None)
    )


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def as_user(name: str) -> dict[str, Any]:
    """How to start a server, which refuses to run as root: as ``name``, or as ourselves."""
    if os.geteuid() != 0:
        return {}
    known = {entry.pw_name for entry in pwd.getpwall()}
    account = pwd.getpwnam(name if name in known else "nobody")
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def folder_of(name: str, folder: Path) -> Path:
    """A new folder that belongs to the user of :func:`as_user`."""
    folder.mkdir()
    if who := as_user(name):
        os.chown(folder, who["user"], who["group"])
    return folder


class Cluster(ABC):
    """One server. ``start``, ``crash`` and ``kill`` as often as wanted; the port stays.

    ``durable`` as in production, otherwise quick: what is written survives a kill of the server's
    processes without any flush, because the kernel has it.
    """

    key: str
    """How ``OJS_REQUIRE`` calls it."""
    user: str
    programs: tuple[str, ...]
    scheme: str

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        self.folder = folder_of(self.user, folder)
        self.durable = durable
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def missing(cls) -> str | None:
        """Why there can be none here."""
        absent = [name for name in cls.programs if program(name) is None]
        return f"{', '.join(absent)}: not installed" if absent else None

    def url(self, port: int | None = None) -> str:
        """Where the application finds its database; behind another port, if told so."""
        return f"{self.scheme}://{ACCOUNT}@127.0.0.1:{port or self.port}/{ACCOUNT}"

    def create(self) -> None:
        """Make the server, the account and its database; it is up then."""
        self._install()
        self.start()
        for statement in self._setup:
            self.admin(statement)

    def migrate(self) -> None:
        """Give the database our tables."""
        self._run(sys.executable, "manage.py", "migrate", "-v0", DATABASE_URL=self.url())

    def start(self) -> None:
        """Start it; returns when it answers."""
        until = time.monotonic() + 60
        self._launch()
        while not self.answers():
            if time.monotonic() > until:
                raise RuntimeError(f"{self} does not start:\n{self.log()}")
            time.sleep(0.05)
            if self.ended() is not None:
                # What is left of a crashed predecessor may stand in the way for a moment.
                self._launch()

    def ended(self) -> int | None:
        """Its exit code, if it was started and has ended by itself."""
        return None if self._process is None else self._process.poll()

    def pids(self) -> set[int]:
        """Its processes."""
        if self._process is None or self._process.poll() is not None:
            return set()
        return {self._process.pid, *descendants(self._process.pid)}

    def log(self) -> str:
        """The end of what the server wrote."""
        return (self.folder / "log").read_text(errors="replace")[-2000:]

    def _launch(self) -> None:
        with (self.folder / "log").open("ab") as out:
            self._process = subprocess.Popen(
                self._command(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                **as_user(self.user),
            )

    @abstractmethod
    def crash(self) -> None:
        """End it at once and without any order, as an operator's *immediate* restart does."""

    def kill(self) -> None:
        """SIGKILL for every process of the server at once."""
        if self._process is None:
            return
        pids = self.pids()
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait(10)
        poll(lambda: not [pid for pid in pids if alive(pid)])
        self._process = None
        connections.close_all()

    def restart(self) -> None:
        """Crash, and come back."""
        self.crash()
        self.start()

    @abstractmethod
    def connect(self, database: str | None = ACCOUNT) -> Any:
        """A session of the one who may do everything, in autocommit."""

    @abstractmethod
    def admin(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run a statement as the one who may do everything; its rows."""

    def sessions(self) -> list[int]:
        """The sessions of the application."""
        return [int(session) for (session,) in self.admin(self._sessions)]

    @abstractmethod
    def terminate(self, session: int) -> bool:
        """End a session; whether it was there."""

    def terminate_sessions(self) -> int:
        """End every session of the application; how many there were."""
        return sum(self.terminate(session) for session in self.sessions())

    @abstractmethod
    def read_only(self, on: bool) -> None:
        """As a server that was failed over from, or not any more."""

    @property
    @abstractmethod
    def waiting(self) -> bool:
        """Whether a session of the application waits for a lock."""

    def __str__(self) -> str:
        return type(self).__name__

    _setup: Sequence[str]
    _sessions: str

    @abstractmethod
    def _install(self) -> None: ...

    @abstractmethod
    def _command(self) -> list[str]: ...

    def answers(self) -> bool:
        """Whether it lets us in."""
        try:
            # Before the driver, which leaves its socket open when it is refused.
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            self.admin("SELECT 1")
        except Exception:
            return False
        return True

    def _run(self, *command: str, who: dict[str, Any] | None = None, **environment: str) -> None:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            **(who or {}),
        )
        if done.returncode:
            raise RuntimeError(f"{command[:3]}: {done.stdout[-1000:]}\n{done.stderr[-2000:]}")


class PostgreSQL(Cluster):
    """PostgreSQL."""

    key = "pg"
    user = "postgres"
    programs: tuple[str, ...] = ("initdb", "postgres")
    scheme = "postgres"
    quick = {
        "fsync": "off",
        "full_page_writes": "off",
        "shared_buffers": "16MB",
        "wal_level": "minimal",
        "max_wal_senders": "0",
        "max_wal_size": "64MB",
        "min_wal_size": "32MB",
        "log_min_messages": "fatal",
    }
    _setup: Sequence[str] = (
        f"CREATE ROLE {ACCOUNT} LOGIN",
        f"CREATE DATABASE {ACCOUNT} OWNER {ACCOUNT}",
    )
    _sessions = f"SELECT pid FROM pg_stat_activity WHERE usename = '{ACCOUNT}'"

    def crash(self) -> None:
        """``pg_ctl -m immediate``."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(60)
        self._process = None
        connections.close_all()

    def connect(self, database: str | None = ACCOUNT) -> Any:
        import psycopg

        return psycopg.connect(
            host=str(self.folder), port=self.port, user="postgres", dbname=database, autocommit=True
        )

    def admin(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Over the socket in the folder."""
        with self.connect("postgres") as session:
            cursor = session.execute(statement, parameters or None)
            return list(cursor.fetchall()) if cursor.description else []

    def read_only(self, on: bool) -> None:
        """25006 for every write, in the sessions that there are too."""
        self.admin(f"ALTER SYSTEM SET default_transaction_read_only = {'on' if on else 'off'}")
        self.admin("SELECT pg_reload_conf()")

    @property
    def waiting(self) -> bool:
        """By the activity."""
        return bool(
            self.admin(
                "SELECT 1 FROM pg_stat_activity WHERE usename = %s AND wait_event_type = 'Lock'",
                ACCOUNT,
            )
        )

    def terminate(self, session: int) -> bool:
        """By its process."""
        return bool(self.admin("SELECT pg_terminate_backend(%s)", session)[0][0])

    def _install(self) -> None:
        self._run(
            str(program("initdb")),
            *("-D", str(self.folder / "data"), "-A", "trust", "-U", "postgres", "-E", "UTF8"),
            *("--locale=C.UTF-8", "--no-sync", "--no-instructions"),
            who=as_user(self.user),
        )

    def _command(self) -> list[str]:
        options = {
            **({} if self.durable else self.quick),
            "max_connections": "300",
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.folder,
        }
        given = [f"--{name}={value}" for name, value in options.items()]
        return [
            str(program("postgres")),
            "-D",
            str(self.folder / "data"),
            f"--port={self.port}",
            *given,
        ]


class MariaDB(Cluster):
    """MariaDB."""

    key = "mariadb"
    user = "mysql"
    programs: tuple[str, ...] = ("mariadb-install-db", "mariadbd")
    scheme = "mysql"
    quick = (
        "--innodb-buffer-pool-size=32M",
        "--innodb-log-file-size=16M",
        "--innodb-flush-log-at-trx-commit=2",
    )
    _setup = (
        f"CREATE DATABASE {ACCOUNT} CHARACTER SET utf8mb4",
        f"CREATE USER '{ACCOUNT}'@'127.0.0.1'",
        f"GRANT ALL ON {ACCOUNT}.* TO '{ACCOUNT}'@'127.0.0.1'",
    )
    _sessions = f"SELECT id FROM information_schema.processlist WHERE user = '{ACCOUNT}'"

    def crash(self) -> None:
        """There is no other way than SIGKILL."""
        self.kill()

    def connect(self, database: str | None = ACCOUNT) -> Any:
        import pymysql

        where = {"unix_socket": str(self.folder / "socket"), "user": "root", "database": database}
        return pymysql.connect(**where, charset="utf8mb4", autocommit=True)

    def admin(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Over the socket in the folder."""
        session = self.connect(None)
        try:
            with session.cursor() as cursor:
                cursor.execute(statement, parameters or None)
                return list(cursor.fetchall())
        finally:
            session.close()

    def read_only(self, on: bool) -> None:
        """1290 for every write of an ordinary account."""
        self.admin(f"SET GLOBAL read_only = {int(on)}")

    @property
    def waiting(self) -> bool:
        """By InnoDB's counter: its list of transactions is made anew only 0.1 s after the last look."""
        ((_, waits),) = self.admin("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'")
        return int(waits) > 0

    def terminate(self, session: int) -> bool:
        """By its number."""
        import pymysql

        try:
            self.admin(f"KILL CONNECTION {session}")
        except pymysql.OperationalError:
            # Not ``pymysql.err``: Django, which knows it as MySQLdb, loads that a second time.
            return False
        return True

    def _install(self) -> None:
        self._run(
            str(program("mariadb-install-db")),
            *("--no-defaults", f"--datadir={self.folder / 'data'}", "--skip-test-db", self._tmpdir),
            "--auth-root-authentication-method=normal",
            *("--innodb-log-file-size=16M", "--innodb-flush-log-at-trx-commit=2"),
            who=as_user(self.user),
        )

    def _command(self) -> list[str]:
        return [
            str(program("mariadbd")),
            "--no-defaults",
            f"--datadir={self.folder / 'data'}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            f"--socket={self.folder / 'socket'}",
            f"--pid-file={self.folder / 'pid'}",
            *("--skip-name-resolve", "--skip-log-bin", "--max-connections=300", self._tmpdir),
            *(() if self.durable else self.quick),
        ]

    @property
    def _tmpdir(self) -> str:
        """A server that starts deletes what it finds of temporary tables in its folder for them.

        Of other servers too, which then crash.
        """
        return f"--tmpdir={self.folder}"


KINDS: tuple[type[Cluster], ...] = (PostgreSQL, MariaDB)
