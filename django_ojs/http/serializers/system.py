"""Health, manifest, errors, figures and schemas."""

from __future__ import annotations

from rest_framework.serializers import BooleanField, CharField, DictField, IntegerField, ListField

from django_ojs.http.serializers.base import (
    Pagination,
    Request,
    Shape,
    Warned,
    _count,
    _object,
    _strings,
    _text,
    _when,
)


class Health(Shape):
    """Whether it works; more for those who may inspect."""

    needed = frozenset({"status", "version", "uptime_seconds", "backend"})
    status = _text(enum=["ok", "degraded"])
    version = CharField()
    uptime_seconds = _count()
    backend = _object("`type`, `status` and `latency_ms`.")
    queues = _object()
    workers = _object()
    troubles = _strings()
    oldest_overdue_seconds = _count()


class Ready(Shape):
    """Whether requests can be served."""

    status = _text(enum=["ready", "not_ready"])


class Manifest(Shape):
    """What this server can do."""

    specversion = CharField()
    ojs_version = CharField()
    implementation = DictField(child=CharField())
    conformance_level = IntegerField()
    conformance_tier = CharField()
    protocols = _strings()
    backend = CharField()
    capabilities = DictField(child=BooleanField())
    extensions = _strings()
    endpoints = DictField(child=CharField())


class Problem(Shape):
    """What an error code means."""

    code = CharField()
    http_status = IntegerField()
    retryable = BooleanField()
    hint = CharField()


class Throughput(Shape):
    """The last minute."""

    processed_per_minute = _count()
    failed_per_minute = _count()


class Stats(Shape):
    """Everything in figures."""

    queues = _count()
    workers = _count()
    jobs = DictField(child=IntegerField(), help_text="By state.")
    throughput = Throughput()
    uptime_seconds = _count()
    computed_at = _when()


class Schema(Shape):
    """A schema of the ``args`` of a job type."""

    type = CharField()
    version = IntegerField()
    schema = _object("JSON Schema.")
    created_at = _when()


class SchemaStored(Schema):
    """A schema that was stored; nothing is checked against it yet, and `warnings` say so."""

    warnings = ListField(child=Warned())


class SchemaRequest(Request):
    """A schema to register."""

    needed = frozenset({"schema"})
    schema = _object("JSON Schema; not empty.")


class SchemaPage(Shape):
    """A page of schemas; ``items`` equals ``schemas``."""

    schemas = ListField(child=Schema())
    items = ListField(child=Schema())
    pagination = Pagination()


class SchemaVersion(Shape):
    """A version."""

    version = IntegerField()
    created_at = _when()
    is_latest = BooleanField()


class SchemaVersions(Shape):
    """The versions of a type."""

    type = CharField()
    versions = ListField(child=SchemaVersion())


class SchemaDeleted(Shape):
    """It is gone."""

    deleted = BooleanField()
    type = CharField()
    version = IntegerField()
