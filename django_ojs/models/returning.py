"""What an INSERT gives back does not depend on the server of the alias ``default``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import django
from django.db.models import AutoField, Field, Model


def decide_returned_fields(models: Iterable[type[Model]]) -> None:
    """Fix which fields an INSERT of each model gives back: its automatic key, and those that the
    database fills in.

    Django 5.2 finds that out when the first row is made, in any database, and asks the server of
    ``default`` whether it knows RETURNING; on MariaDB and MySQL that takes a connection. A process that
    works on another database could not start while that server is down. As in Django 6.0, each INSERT
    leaves out what its own database cannot give back.
    """
    if django.VERSION >= (6, 0):
        return
    for model in models:
        options: Any = model._meta
        options.db_returning_fields = [one for one in options.concrete_fields if _is_returned(one)]


def _is_returned(field: Field[Any, Any]) -> bool:
    return isinstance(field, AutoField) or field.has_db_default()
