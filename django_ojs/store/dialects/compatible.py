"""Servers that speak PostgreSQL's language and are not PostgreSQL."""

from __future__ import annotations

from django_ojs.store.dialects.base import Dialect
from django_ojs.store.dialects.postgresql import Postgres


class PostgresCompatible(Postgres):
    """CockroachDB and its like: PostgreSQL's statements, without NOTIFY and without the words that are
    there for PostgreSQL's planner.
    """

    notifies = False
    limit = Dialect.limit
    ranged = Dialect.ranged
    in_state = Dialect.in_state
