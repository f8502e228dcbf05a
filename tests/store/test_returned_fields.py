"""What an INSERT gives back is known without asking the server of ``default``."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.db.models import Model
from django.db.models.options import Options

from django_ojs.models import RateLimit

MODELS = [model for model in apps.get_app_config("django_ojs").get_models() if not model._meta.proxy]


@pytest.mark.every_database
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_they_are_those_of_django(ojs_db: None, model: type[Model]) -> None:
    assert connection.features.can_return_columns_from_insert, "as for each database that is tested"
    found: Any = vars(Options)["db_returning_fields"]
    assert model._meta.db_returning_fields == found.func(model._meta)


@pytest.mark.every_database
def test_a_new_row_has_what_the_database_filled_in(ojs_db: None) -> None:
    row = RateLimit.objects.create(key="a")
    assert row.created_at == RateLimit.objects.get().created_at
