from typing import Any

from django.db import migrations


def leave_room(apps: Any, schema_editor: Any) -> None:
    """Room on each page for the next version of its rows, so that no index learns of a beat.

    Only PostgreSQL knows the setting. It takes no lock that anybody waits for and rewrites nothing:
    it holds for what is written from now on.
    """
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("ALTER TABLE django_ojs_job SET (fillfactor = 70)")


def fill_up(apps: Any, schema_editor: Any) -> None:
    """As it was."""
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("ALTER TABLE django_ojs_job RESET (fillfactor)")


class Migration(migrations.Migration):
    dependencies = [("django_ojs", "0003_admin")]

    operations = [migrations.RunPython(leave_room, fill_up)]
