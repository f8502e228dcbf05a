"""The same small Django settings for every system, and what its adapter adds."""

from __future__ import annotations

from benchmarks.harness import config
from benchmarks.systems import adapter_of

_adapter = adapter_of(config.SYSTEM)

SECRET_KEY = "benchmark"
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1"]
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": _adapter.django_database()}
# Django's default: a connection is closed after every request, and by most workers after every job.
DATABASES["default"]["CONN_MAX_AGE"] = None if config.TUNED else 0
INSTALLED_APPS = [*_adapter.installed_apps, _adapter.package]
LOGGING_CONFIG = None

globals().update(_adapter.settings())
