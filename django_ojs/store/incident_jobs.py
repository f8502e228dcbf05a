"""The jobs of incidents, counted and sampled by the index ``ojs_job_incident``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django_ojs.models import Attempt, Job
from django_ojs.store.dialect import cursor, dialect

SAMPLE = 20
"""How many of the newest jobs of an incident tell which workers had them."""
_TABLE = Job._meta.db_table
_ATTEMPTS = Attempt._meta.db_table


@dataclass(slots=True)
class IncidentJobs:
    """Jobs by state, as many as were asked for at most, and the attempts of the newest by worker."""

    states: Counter[str] = field(default_factory=Counter)
    workers: Counter[str] = field(default_factory=Counter)


def jobs_of(caps: Mapping[str, int], *, using: str) -> dict[str, IncidentJobs]:
    """Count the jobs of each incident, up to its cap, and sample their attempts; one statement."""
    if not caps:
        return {}
    by_index = dialect(using).by_index("ojs_job_incident")
    parts: list[str] = []
    parameters: list[Any] = []
    for place, (incident, cap) in enumerate(caps.items()):
        some = f"FROM {_TABLE} j{by_index} WHERE j.incident = %s"
        parts += [
            f"SELECT {place} AS place, 'state' AS kind, i.state AS name, COUNT(*) AS n"
            f" FROM (SELECT j.state {some} LIMIT %s) i GROUP BY i.state",
            f"SELECT {place}, 'worker', a.worker_id, COUNT(*) FROM (SELECT j.id {some}"
            f" ORDER BY j.finished_at DESC LIMIT {SAMPLE}) i JOIN {_ATTEMPTS} a ON a.job_id = i.id"
            " WHERE a.outcome <> 'completed' AND a.worker_id IS NOT NULL GROUP BY a.worker_id",
        ]
        parameters += [incident, cap, incident]
    found = {incident: IncidentJobs() for incident in caps}
    ids = list(caps)
    with cursor(using) as cur:
        cur.execute(" UNION ALL ".join(parts), parameters)
        for place, kind, name, n in cur.fetchall():
            one = found[ids[place]]
            (one.states if kind == "state" else one.workers)[name] += int(n)
    return found
