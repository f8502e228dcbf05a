from __future__ import annotations

from django.db import migrations, models

from django_ojs.store.migration_operations import AddIndexOnline

TABLES = ("job", "attempt", "event", "queue", "worker")


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("django_ojs", "0002_next_columns")]

    operations = [
        AddIndexOnline(table, models.Index(fields=["next_number"], name=f"{table}_next"))
        for table in TABLES
    ]
