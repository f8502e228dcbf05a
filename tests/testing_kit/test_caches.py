"""What a process remembers of rows does not outlive them."""

from __future__ import annotations

from django.core.management import call_command
from django.db import transaction

import django_ojs
from django_ojs.models import Queue
from django_ojs.services import enqueue as service
from django_ojs.testing.committing import as_committed


def test_a_flush_is_noticed(ojs_db: None) -> None:
    django_ojs.enqueue("kit.x", queue="kit-q")
    assert Queue.objects.filter(name="kit-q").exists()
    assert service.unknown(["kit-q"], using="default") == []
    call_command("flush", verbosity=0, interactive=False)
    django_ojs.enqueue("kit.x", queue="kit-q")
    assert Queue.objects.filter(name="kit-q").exists()


def test_a_rollback_is_noticed(in_test_case: None) -> None:
    with transaction.atomic():
        as_committed("default", lambda: django_ojs.enqueue("kit.x", queue="kit-q"))
        assert Queue.objects.filter(name="kit-q").exists()
        transaction.set_rollback(True)
    assert not Queue.objects.filter(name="kit-q").exists()
    assert service.unknown(["kit-q"], using="default") == ["kit-q"]
