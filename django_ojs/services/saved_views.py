"""Filters of the job list that users of the admin keep under a name."""

from __future__ import annotations

from collections.abc import Mapping

from django.db import transaction

from django_ojs.models import SavedView

MOST = 50
"""Views of one user."""


def of_user(user: str, *, using: str) -> list[SavedView]:
    """The views of a user, by name."""
    return list(SavedView.objects.using(using).filter(user=user).order_by("name")[:MOST])


def save(user: str, name: str, query: Mapping[str, str], *, using: str) -> bool:
    """Keep a filter under a name, in place of one that has it; ``False`` if the user has ``MOST``."""
    views = SavedView.objects.using(using)
    with transaction.atomic(using=using):
        others = views.filter(user=user).exclude(name=name)
        if others.count() >= MOST:
            return False
        views.update_or_create(user=user, name=name, defaults={"query": dict(query)})
    return True


def forget(user: str, name: str, *, using: str) -> bool:
    """Delete the view of that name; whether the user had one."""
    deleted, _models = SavedView.objects.using(using).filter(user=user, name=name).delete()
    return bool(deleted)
