"""The example project's settings, with the handlers that the tests run."""

from __future__ import annotations

from importlib.util import find_spec

import django

from example_project.settings import *  # noqa: F403
from example_project.settings import DATABASES, INSTALLED_APPS

for _app in ("example_project.showcase", "tests.workload"):
    if find_spec(_app) is None and _app in INSTALLED_APPS:
        INSTALLED_APPS.remove(_app)
    elif find_spec(_app) is not None and _app not in INSTALLED_APPS:
        INSTALLED_APPS.append(_app)

_database = DATABASES["default"]
if _database["ENGINE"].endswith("sqlite3"):
    # A file, so that other processes and threads see the same database.
    _database["TEST"] = {"NAME": f"{_database['NAME']}.test"}
    # Nothing here survives the machine: no commit has to wait for its disk.
    _database["OPTIONS"]["init_command"] = "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF"
elif _database["ENGINE"].endswith("mysql"):
    import MySQLdb

    if MySQLdb.__name__ == "pymysql":
        # It reads every certificate of the system for each connection, which takes 50 ms.
        _database["OPTIONS"].setdefault("ssl_disabled", True)

HAS_TASKS = django.VERSION >= (6, 0) or find_spec("django_tasks") is not None
"""Whether ``django.tasks`` or its package for Django 5.2 is there."""
if HAS_TASKS:
    TASKS = {"default": {"BACKEND": "django_ojs.tasks_backend.OJSBackend", "QUEUES": []}}
    if django.VERSION < (6, 0):
        INSTALLED_APPS.append("django_tasks")

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
