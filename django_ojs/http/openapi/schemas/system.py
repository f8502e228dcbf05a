"""Health, manifest, errors, figures and schemas."""

from __future__ import annotations

from django_ojs.http.openapi import fields as f


class Health(f.Component):
    """Whether it works; more for those who may inspect."""

    needed = frozenset({"status", "version", "uptime_seconds", "backend"})
    status = f.one_of("ok", "degraded")
    version = f.text()
    uptime_seconds = f.count()
    backend = f.mapping("`type`, `status` and `latency_ms`.")
    queues = f.mapping()
    workers = f.mapping()
    troubles = f.strings()
    oldest_overdue_seconds = f.count()


class Ready(f.Component):
    """Whether requests can be served."""

    status = f.one_of("ready", "not_ready")


class Manifest(f.Component):
    """What this server can do."""

    specversion = f.text()
    ojs_version = f.text()
    implementation = f.mapping(values=f.text())
    conformance_level = f.integer()
    conformance_tier = f.text()
    unique_job_strength = f.one_of("strong")
    protocols = f.strings()
    backend = f.text()
    capabilities = f.mapping(values=f.boolean())
    extensions = f.strings()
    endpoints = f.mapping(values=f.text())


class ProblemComponent(f.Component):
    """What an error code means."""

    code = f.text()
    http_status = f.integer()
    retryable = f.boolean()
    hint = f.text()


class Throughput(f.Component):
    """The last minute."""

    processed_per_minute = f.count()
    failed_per_minute = f.count()


class Stats(f.Component):
    """Everything in figures."""

    queues = f.count()
    workers = f.count()
    jobs = f.mapping("By state.", f.integer())
    throughput = Throughput
    uptime_seconds = f.count()
    computed_at = f.timestamp()


class Schema(f.Component):
    """A schema of the ``args`` of a job type."""

    type = f.text()
    version = f.integer()
    schema = f.mapping("JSON Schema.")
    created_at = f.timestamp()


class SchemaStored(Schema):
    """A schema that was stored; nothing is checked against it yet, and `warnings` say so."""

    warnings = f.array(f.Warned)


class SchemaRequest(f.Body):
    """A schema to register."""

    needed = frozenset({"schema"})
    schema = f.mapping("JSON Schema; not empty.")


SchemaPage = f.page("SchemaPage", "schemas", Schema)


class SchemaVersion(f.Component):
    """A version."""

    version = f.integer()
    created_at = f.timestamp()
    is_latest = f.boolean()


class SchemaVersions(f.Component):
    """The versions of a type."""

    type = f.text()
    versions = f.array(SchemaVersion)


class SchemaDeleted(f.Component):
    """It is gone."""

    deleted = f.boolean()
    type = f.text()
    version = f.integer()
