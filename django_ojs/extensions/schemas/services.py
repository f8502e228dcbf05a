"""Keep and find schemas. A version is written once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError

from django_ojs import conf
from django_ojs.domain.errors import Conflict, InvalidRequest, NotFound
from django_ojs.domain.job import Actor
from django_ojs.domain.jsonvalue import MAX_ARGS_BYTES, encode
from django_ojs.domain.names import check_job_type
from django_ojs.models import JobSchema
from django_ojs.services import audit
from django_ojs.services.transactions import in_transaction


def put(
    job_type: str,
    version: int,
    schema: object,
    *,
    actor: Actor = Actor(),
    using: str | None = None,
) -> tuple[JobSchema, bool]:
    """Register a version; returns it, and whether it is new.

    The same content again is no error. Raises :class:`InvalidRequest`, and :class:`Conflict` for
    other content under the same version.
    """
    using = using or conf.current().database
    check_job_type(job_type, "type")
    if not isinstance(schema, Mapping) or not schema:
        raise InvalidRequest("schema", "must be a JSON Schema, a non-empty object")
    encode(dict(schema), "schema", max_bytes=MAX_ARGS_BYTES)
    rows = JobSchema.objects.using(using)
    there = rows.filter(type=job_type, version=version).first()
    if there is None:
        try:
            return _create(job_type, version, schema, actor, using=using), True
        except IntegrityError:
            there = rows.get(type=job_type, version=version)
    if not _same(there.schema, schema):
        raise Conflict(
            f"version {version} of {job_type} has other content", type=job_type, version=version
        )
    return there, False


@in_transaction
def _create(
    job_type: str, version: int, schema: Mapping[str, Any], actor: Actor, *, using: str = ""
) -> JobSchema:
    rows = JobSchema.objects.using(using)
    made = rows.create(type=job_type, version=version, schema=dict(schema))
    _note("created", made, actor, using)
    return made


def get(job_type: str, version: int | None = None, *, using: str | None = None) -> JobSchema:
    """A version, or the latest that is left. Raises :class:`NotFound`."""
    rows = JobSchema.objects.using(using or conf.current().database).filter(type=job_type)
    if version is not None:
        rows = rows.filter(version=version)
    found = rows.order_by("-version").first()
    if found is None:
        raise _missing(job_type, version)
    return found


def versions(job_type: str, *, using: str | None = None) -> list[JobSchema]:
    """The versions of a type, the oldest first, without their content."""
    rows = JobSchema.objects.using(using or conf.current().database)
    return list(rows.filter(type=job_type).order_by("version").defer("schema"))


@in_transaction
def delete(job_type: str, version: int, *, actor: Actor = Actor(), using: str = "") -> None:
    """Forget a version. Raises :class:`NotFound`."""
    rows = JobSchema.objects.using(using).filter(type=job_type, version=version)
    if not rows.delete()[0]:
        raise _missing(job_type, version)
    _note("deleted", JobSchema(type=job_type, version=version), actor, using)


def _note(what: str, row: JobSchema, actor: Actor, using: str) -> None:
    audit.note(f"schema.{what}", actor, target=("schema", f"{row.type}/{row.version}"), using=using)


def _same(one: object, other: object) -> bool:
    """Whether two JSON values are equal; in Python, so are ``true`` and 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other


def _missing(job_type: str, version: int | None) -> NotFound:
    name = job_type if version is None else f"{job_type}/{version}"
    return NotFound(f"There is no schema {name!r}.", resource_type="schema", resource_id=name)
