"""Column types whose meaning must not depend on the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.engines import EngineFamily, family_of

if TYPE_CHECKING:
    _CharField = models.CharField[Any, Any]
else:
    _CharField = models.CharField


class CaseSensitiveCharField(_CharField):
    """A name that is compared byte by byte: ``Queue`` is never ``queue``, on MariaDB neither."""

    def db_parameters(self, connection: BaseDatabaseWrapper) -> dict[str, Any]:
        """The column, with a binary collation where the default one folds case."""
        parameters: dict[str, Any] = super().db_parameters(connection)
        if family_of(connection) is EngineFamily.MYSQL:
            parameters["collation"] = "utf8mb4_bin"
        return parameters
