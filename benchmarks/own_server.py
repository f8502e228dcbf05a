"""A PostgreSQL server for what needs more sessions than the usual one allows."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from tests.clusters.clusters import PostgreSQL, program

_COUNTING = "pg_stat_statements"


class OwnServer(PostgreSQL):
    """With room for 500 sessions, otherwise with the settings that PostgreSQL is installed with.

    It counts statements, where that extension is installed.
    """

    _setup = ()

    @classmethod
    def started(cls, folder: Path) -> OwnServer:
        """A new one in a folder, in place of what an earlier run left there."""
        shutil.rmtree(folder, ignore_errors=True)
        server = cls(folder, durable=True)
        server.create()
        return server

    @property
    def address(self) -> str:
        """Its URL, for the account that may do everything."""
        return f"postgres://postgres@127.0.0.1:{self.port}/postgres"

    def end(self) -> None:
        """End it in good order, and leave nothing behind."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # fast shutdown: sessions are ended
            self._process.wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _command(self) -> list[str]:
        found = Path(str(program("postgres"))).resolve().parent.parent
        counts = any(found.glob(f"lib/**/{_COUNTING}.so"))
        # The last word counts. 50 workers that are overloaded have opened 300.
        return [
            *super()._command(),
            "--max_connections=500",
            *([f"--shared_preload_libraries={_COUNTING}"] if counts else []),
        ]
