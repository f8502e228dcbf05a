"""Servers that speak PostgreSQL's language and are not PostgreSQL."""

from __future__ import annotations

from django_ojs.store.dialects.base import Dialect
from django_ojs.store.dialects.postgresql import Postgres


class PostgresCompatible(Postgres):
    """CockroachDB and its like: PostgreSQL's statements, without NOTIFY, without the words that are
    there for PostgreSQL's planner, and without statements that are prepared.
    """

    notifies = False
    # What some of them call READ COMMITTED is REPEATABLE READ.
    lock_shows_latest = False
    place = Dialect.place
    at_places = Dialect.at_places
    limit = Dialect.limit
    ranged = Dialect.ranged
    in_state = Dialect.in_state
    repeated = Dialect.repeated
