"""Log in, look and act, as a browser would."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Permission, User
from django.test import Client


def login(*permissions: str, superuser: bool = False, name: str = "ada") -> Client:
    """A browser in which a staff user with these permissions of ours is logged in."""
    user = User.objects.create_user(name, password="x", is_staff=True, is_superuser=superuser)
    for codename in permissions:
        user.user_permissions.add(Permission.objects.get(codename=codename))
    client = Client()
    client.force_login(user)
    return client


def page(client: Client, path: str, **query: str) -> str:
    """The text of a page; it must be there."""
    response = client.get(f"/admin/django_ojs/{path}", query)
    assert response.status_code == 200, response.status_code
    return response.content.decode()


def do(client: Client, job: Any, name: str, **fields: Any) -> Any:
    """Confirm an operation on one job."""
    path = f"/admin/django_ojs/job/{job.id}/do/{name}/"
    return client.post(path, {**fields, "_confirmed": "1"}, follow=False)
