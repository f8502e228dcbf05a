from __future__ import annotations

from django.db import migrations, models

TABLES = ("job", "attempt", "event", "queue", "worker")


class Migration(migrations.Migration):
    dependencies = [("django_ojs", "0001_initial")]

    operations = [
        operation
        for table in TABLES
        for operation in (
            migrations.AddField(table, "next_number", models.IntegerField(db_default=7)),
            migrations.AddField(table, "next_text", models.CharField(max_length=20, null=True)),
        )
    ]
