"""The app."""

from __future__ import annotations

from django.apps import AppConfig


class ShowcaseConfig(AppConfig):
    """django_ojs imports ``jobs.py`` of every installed app; nothing to do here."""

    name = "example_project.showcase"
    label = "showcase"
    default_auto_field = "django.db.models.BigAutoField"
