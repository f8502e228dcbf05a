"""The tests' settings, for a project that reports its errors to Sentry."""

from __future__ import annotations

import json
import os

import sentry_sdk

from django_ojs.observability.sentry import OJSIntegration
from tests.settings import *  # noqa: F403

sentry_sdk.init(
    dsn=os.environ["OJS_TEST_SENTRY"],
    integrations=[OJSIntegration(**json.loads(os.environ.get("OJS_TEST_SENTRY_OPTIONS", "{}")))],
)
