"""The settings of the tests, for a project whose every log line says which job it is about."""

from __future__ import annotations

import os

from tests.settings import *  # noqa: F403

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"job": {"()": "django_ojs.observability.logs.JobContextFilter"}},
    "formatters": {
        "json": {"()": "django_ojs.observability.logs.JSONFormatter"},
        "text": {"format": "TEXT %(job_id)s %(job_type)s %(attempt)s %(trace_id)s %(message)s"},
    },
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            "filters": ["job"],
            "formatter": os.environ.get("OJS_TEST_FORMAT", "json"),
        }
    },
    "root": {"handlers": ["console"], "level": "INFO"},
}
