"""Run by ``test_theme`` as ``theme.py FILE THEME``: the admin pages with a theme, on a SQLite file."""

from __future__ import annotations

import os
import sys

PATHS = (
    "job/",
    "job/{id}/change/",
    "job/{id}/do/cancel/",
    "queue/",
    "worker/",
    "deadletter/",
    "auditentry/",
    "apitoken/",
    "dashboard/",
    "failurestat/",
)


def main() -> None:
    """Make the database, look at every page, cancel a job."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings_theme"
    os.environ["DATABASE_URL"], os.environ["OJS_TEST_THEME"] = f"sqlite:///{sys.argv[1]}", sys.argv[2]
    import django
    from django.conf import settings

    settings.ALLOWED_HOSTS.append("testserver")
    django.setup()
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.test import Client

    from django_ojs.api import enqueue, get

    call_command("migrate", verbosity=0)
    user = User.objects.create_superuser("ada", password="x")
    job = enqueue("mail.send", [1])
    client = Client()
    client.force_login(user)
    for path in PATHS:
        response = client.get("/admin/django_ojs/" + path.format(id=job.id))
        print(path, response.status_code, sys.argv[2] in response.content.decode())
    form = {"_confirmed": "1", "reason": "x"}
    done = client.post(f"/admin/django_ojs/job/{job.id}/do/cancel/", form)
    print("cancel", done.status_code)
    print("state", get(job.id).state)


if __name__ == "__main__":
    sys.path.insert(0, os.getcwd())
    main()
