"""Settings of the example project. ``DATABASE_URL`` chooses the database, a SQLite file by default."""

from __future__ import annotations

import os
from pathlib import Path

import django

from example_project.databases import parse

BASE_DIR = Path(__file__).resolve().parent.parent
VAR_DIR = Path(os.environ.get("EXAMPLE_VAR", BASE_DIR / "var"))

DEBUG = os.environ.get("DJANGO_DEBUG", "1") == "1"
SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY", "for-development-only" if DEBUG else "")
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]

DATABASES = {"default": parse(os.environ.get("DATABASE_URL") or f"sqlite:///{BASE_DIR}/db.sqlite3")}

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "django_filters",
    "django_ojs",
    "example_project.showcase",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "example_project.urls"
WSGI_APPLICATION = "example_project.wsgi.application"
STATIC_URL = "static/"
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

_MAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": _MAIL_BACKEND, "OPTIONS": {"file_path": VAR_DIR / "mail"}}}
else:
    EMAIL_BACKEND = _MAIL_BACKEND
    EMAIL_FILE_PATH = VAR_DIR / "mail"

# ``OJS_DEV_TOKEN=dev`` lets conformance suites in, with their hook into heartbeats and as many
# new queues as they have cases.
_DEV_TOKEN = os.environ.get("OJS_DEV_TOKEN")
OJS = {
    "EVENTS": "all",
    "HTTP": {
        "DEV_TOKEN": _DEV_TOKEN,
        "TEST_DIRECTIVES": bool(_DEV_TOKEN),
        "MAX_NEW_QUEUES_PER_HOUR": 10_000 if _DEV_TOKEN else 100,
    },
}
