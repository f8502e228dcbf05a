"""A table of jobs in realistic proportions, made by the database itself: millions in a minute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connections

from django_ojs.domain.incidents import identify, normalised
from django_ojs.domain.states import State
from django_ojs.models import FailureStat, Incident, Queue

MINE = "my.only"
"""The type of a single job, which is among the newest 25,000."""
TYPES = (
    "mail.send",
    "mail.digest",
    "image.resize",
    "report.build",
    "sync.pull",
    "sync.push",
    "index.add",
)
CHUNK = 1_000_000
LIVE = 10_000
"""Among so many newest jobs some run."""


@dataclass(frozen=True, slots=True)
class _Words:
    """How a database says it."""

    numbers: Callable[[int, int], str]
    hexadecimal: Callable[[str, int], str]
    time: Callable[[datetime, str], str]
    uuid: str = "{}"
    json: str = "{}"
    analyze: str = "ANALYZE django_ojs_job"


_WORDS = {
    "postgresql": _Words(
        lambda start, stop: f"generate_series({start}::bigint, {stop - 1}::bigint) AS s(n)",
        lambda value, width: f"lpad(to_hex(({value})::bigint), {width}, '0')",
        lambda base, seconds: f"(TIMESTAMPTZ '{base.isoformat()}' + ({seconds}) * INTERVAL '1 second')",
        uuid="({})::uuid",
        json="({})::jsonb",
        analyze="VACUUM (ANALYZE) django_ojs_job",
    ),
    "sqlite": _Words(
        lambda start, stop: (
            f"(WITH RECURSIVE c(n) AS (SELECT {start} UNION ALL SELECT n + 1 FROM c"
            f" WHERE n < {stop - 1}) SELECT n FROM c) s"
        ),
        lambda value, width: f"printf('%0{width}x', {value})",
        lambda base, seconds: (
            f"strftime('%Y-%m-%d %H:%M:%S', {int(base.timestamp())} + ({seconds}), 'unixepoch')"
        ),
    ),
    "mysql": _Words(
        lambda start, stop: f"(SELECT seq AS n FROM seq_{start}_to_{stop - 1}) s",
        lambda value, width: f"LPAD(LOWER(HEX({value})), {width}, '0')",
        lambda base, seconds: (
            f"TIMESTAMPADD(SECOND, {seconds}, '{base.replace(tzinfo=None).isoformat(' ')}')"
        ),
        analyze="ANALYZE TABLE django_ojs_job",
    ),
}


def load(rows: int, now: datetime, *, using: str) -> None:
    """Fill the empty table: one job a second up to ``now``, most of them completed.

    The newest quarter holds those that wait, the newest 10,000 those that run. MySQL has no series
    of numbers: there it must be MariaDB.
    """
    connection = connections[using]
    words = _WORDS[connection.vendor]
    columns = _columns(rows, now, words)
    names, values = ", ".join(columns), ", ".join(columns.values())
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            cursor.execute("SET SESSION sql_mode = CONCAT(@@sql_mode, ',PIPES_AS_CONCAT')")
        for start in range(0, rows, CHUNK):
            numbers = words.numbers(start, min(rows, start + CHUNK))
            cursor.execute(
                f"INSERT INTO django_ojs_job ({names})"
                f" SELECT {values} FROM (SELECT n, {_state(rows)} AS was FROM {numbers}) r"
            )
        if connection.vendor == "mysql":
            cursor.execute("SET SESSION sql_mode = DEFAULT")
        Queue.objects.using(using).bulk_create(
            Queue(name=name, created_at=now) for name in ("bulk", "default", "rare")
        )
        cursor.execute(words.analyze)
        if connection.vendor == "mysql":
            cursor.fetchall()


def _state(rows: int) -> str:
    """The state of job number ``n``."""
    running, waiting = f"n >= {rows - LIVE}", f"n >= {rows - rows // 4}"
    return _case(
        (f"{running} AND n % 20 = 1", State.ACTIVE),
        (f"{running} AND n % 20 = 3", State.PENDING),
        (f"{waiting} AND n % 4 = 0", State.AVAILABLE),
        (f"{waiting} AND n % 20 = 7", State.SCHEDULED),
        (f"{waiting} AND n % 20 = 9", State.RETRYABLE),
        ("n % 25 = 11", State.DISCARDED),
        ("n % 50 = 13", State.CANCELLED),
        otherwise=f"'{State.COMPLETED.value}'",
    )


def _columns(rows: int, now: datetime, words: _Words) -> dict[str, str]:
    """Each column of job ``n`` in the state ``was``."""
    base = (now - timedelta(seconds=rows)).replace(microsecond=0)
    active, ended = "was = 'active'", "was IN ('cancelled', 'completed', 'discarded')"
    timed = "was IN ('scheduled', 'retryable')"
    failed = "was IN ('discarded', 'retryable')"

    def at(seconds: str, when: str = "") -> str:
        moment = words.time(base, seconds)
        return f"CASE WHEN {when} THEN {moment} END" if when else moment

    def json(text: str) -> str:
        return words.json.format(text)

    milliseconds = f"{int(base.timestamp() * 1000)} + n * 1000"
    random = words.hexadecimal("n % 4096", 3) + " || '8' || " + words.hexadecimal("n", 15)
    key = words.uuid.format(f"{words.hexadecimal(milliseconds, 12)} || '7' || {random}")
    error = (
        '\'{"type": "\' || '
        + _case(("n % 3 = 0", "timeout"), ("n % 3 = 1", "stalled"), otherwise="'app.Broken'")
        + ' || \'", "message": "no luck with number \' || n || \'"}\''
    )
    kinds = [(f"n % 7 = {place}", name) for place, name in enumerate(TYPES[1:])]
    incidents = [(f"n % 21 = {place}", _incident(place).id) for place in range(21)]
    return {
        "id": key,
        "state": "was",
        "queue": _case(
            ("n % 5000 = 17", "rare"), ("n % 10 = 2", "bulk"), otherwise="'default'"
        ),
        "type": _case((f"n = {rows - 20_001}", MINE), *kinds, otherwise=f"'{TYPES[0]}'"),
        "attempt": f"CASE WHEN {ended} OR {active} OR was = 'retryable' THEN 1 ELSE 0 END",
        "lease_id": f"CASE WHEN {active} THEN {key} END",
        "worker_id": f"CASE WHEN {active} OR {ended} THEN 'w' || (n % 8 + 1) END",
        "created_at": at("n"),
        "limits_from": at("n"),
        "enqueued_at": at("n", "was NOT IN ('scheduled', 'pending')"),
        "scheduled_at": at(f"{rows} + (n * 7919) % 86400", timed),
        "started_at": at("n + n % 5", f"{active} OR {ended}"),
        "heartbeat_at": at(str(rows - 5), active),
        "deadline_at": at(f"{rows} + CASE WHEN n % 40 = 1 THEN -600 ELSE 600 END", active),
        "finished_at": at("n + n % 5 + (n * 7919) % 300", ended),
        "dead_letter": "(was = 'discarded' AND n % 2 = 0)",
        "retry": json("'{}'"),
        "args": json(
            '\'[{"order": \' || n || \', "to": "user\' || n || \'@example.org",'
            ' "subject": "Your order has been shipped", "lines": [1, 2, 3]}]\''
        ),
        "meta": json(
            '\'{"tenant": "\' || ' + _case(("n % 50 = 0", "acme"), otherwise="'t' || (n % 100)")
            + ' || \'"}\''
        ),
        "tags": json("'[\"t' || (n % 10) || '\"]'"),
        "error": f"CASE WHEN {failed} THEN {json(error)} END",
        "errors": json("'[]'"),
        "incident": f"CASE WHEN {failed} THEN {_case(*incidents, otherwise='NULL')} END",
        "extra": json("'{}'"),
        "progress_message": "''",
    }  # fmt: skip


def _incident(place: int) -> Incident:
    """That of the failed jobs whose number has this remainder, divided by 21."""
    error = ("timeout", "stalled", "app.Broken")[place % 3]
    kind = (*TYPES[1:], TYPES[0])[place % 7]
    message = "no luck with number 0"
    return Incident(
        id=identify(kind, error, message),
        type=kind,
        error=error,
        message=normalised(message),
        sample=message,
    )


def count_failures(now: datetime, *, using: str) -> None:
    """Roll-up rows as if the failed jobs of the last week had failed when they were made: minutes of
    the last four hours, of which more are never kept, and hours.
    """
    incidents = [_incident(place) for place in range(21)]
    for one in incidents:
        one.first_seen, one.last_seen = now - timedelta(days=7), now
    Incident.objects.using(using).bulk_create(incidents)
    hour = now.replace(minute=0, second=0, microsecond=0)
    minute = now.replace(second=0, microsecond=0)
    steps = [(hour - timedelta(hours=number), 3600, 120) for number in range(4, 168)]
    steps += [(minute - timedelta(minutes=number), 60, 2) for number in range(2, 240)]
    FailureStat.objects.using(using).bulk_create(
        [
            FailureStat(
                at=at, step=step, queue=queue, type=one.type, error=one.error, incident=one.id, count=n
            )
            for at, step, n in steps
            for one in incidents
            for queue in ("bulk", "default")
        ],
        batch_size=500,
    )


def _case(*pairs: tuple[str, str], otherwise: str) -> str:
    whens = " ".join(f"WHEN {condition} THEN '{value}'" for condition, value in pairs)
    return f"CASE {whens} ELSE {otherwise} END"
