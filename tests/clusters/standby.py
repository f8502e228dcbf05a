"""A primary of PostgreSQL with a standby that streams from it, each a server of our own."""

from __future__ import annotations

from pathlib import Path

from tests.clusters.clusters import PostgreSQL, as_user, program


class Primary(PostgreSQL):
    """One that standbys can follow."""

    quick = {**PostgreSQL.quick, "wal_level": "replica", "max_wal_senders": "4"}


class Standby(PostgreSQL):
    """A copy of ``primary`` that replays what it receives ``delay`` later, as ``"5s"``."""

    programs: tuple[str, ...] = (*PostgreSQL.programs, "pg_basebackup")
    quick = Primary.quick
    _setup: tuple[str, ...] = ()

    def __init__(self, folder: Path, primary: Primary, *, delay: str = "0") -> None:
        super().__init__(folder)
        self._primary = primary
        self._delay = delay

    def _install(self) -> None:
        self._run(
            str(program("pg_basebackup")),
            *("-D", str(self.folder / "data"), "-h", str(self._primary.folder), "-U", "postgres"),
            *("-p", str(self._primary.port), "-R", "-X", "stream", "-c", "fast", "--no-sync"),
            who=as_user(self.user),
        )
        with (self.folder / "data" / "postgresql.auto.conf").open("a") as out:
            out.write(f"recovery_min_apply_delay = '{self._delay}'\n")
            out.write("max_standby_streaming_delay = '100ms'\n")

    def has(self, place: str) -> bool:
        """Whether it has replayed what the primary had written up to ``place``."""
        return bool(self.admin("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", place)[0][0])
