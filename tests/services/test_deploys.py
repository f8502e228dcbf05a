"""Deployments: marked by a command, or noticed when workers of another version start; each once."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from django_ojs import clock
from django_ojs.clock import FrozenClock
from django_ojs.models import DeployMark
from django_ojs.services import deploys, http_workers, prune, workers
from django_ojs.services.workers import WorkerInfo
from django_ojs.worker.supervisor.config import Config

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]


def start(name: str, version: str, **about: Any) -> WorkerInfo:
    """A worker of the project starts."""
    info = WorkerInfo(name, clock.new_lease(), version=version, **about)
    workers.register(info)
    return info


def stop(info: WorkerInfo) -> None:
    workers.deregister(info.id, None, incarnation=info.incarnation)


def noticed() -> list[str]:
    """The names of the marks that nobody made."""
    rows = DeployMark.objects.filter(noticed=True).order_by("at", "pk")
    return list(rows.values_list("name", flat=True))


def test_the_first_workers_are_no_deployment(frozen: FrozenClock) -> None:
    start("a", "1.0")
    start("b", "1.0")
    assert noticed() == []


def test_a_new_version_is_one_though_it_rolls(frozen: FrozenClock) -> None:
    old = [start(name, "1.0") for name in "abc"]
    frozen.advance(3600)
    for info in old:
        workers.report(info, phase="running", running=0)
    stop(old[0])
    start("a2", "1.1")
    assert noticed() == ["1.1"]
    frozen.advance(660)
    for info in old[1:]:
        workers.report(info, phase="running", running=0)
    # One of the old ones is started again, and another new one.
    start("a2", "1.1")
    start("b", "1.0")
    start("a3", "1.1")
    assert noticed() == ["1.1"]


def test_going_back_is_one_too(frozen: FrozenClock) -> None:
    for version in ("1.0", "1.1", "1.0"):
        info = start("a", version)
        frozen.advance(3600)
        stop(info)
    assert noticed() == ["1.1", "1.0"]


def test_the_version_of_the_application_counts(frozen: FrozenClock) -> None:
    start("a", "django-ojs 1", labels={"release": "shop 1"})
    frozen.advance(3600)
    start("b", "django-ojs 1", labels={"release": "shop 2"})
    assert noticed() == ["shop 2"]
    assert Config("w", release="shop 2").identity().labels == {"release": "shop 2"}
    assert Config("w").identity().labels == {}


def test_clients_over_http_are_compared_with_their_own(frozen: FrozenClock) -> None:
    start("a", "1.0")

    def seen(name: str, version: str) -> None:
        http_workers.seen(name, "token:js", beats=True, reported={"version": version})

    seen("js", "js 7")
    frozen.advance(3600)
    seen("js", "js 7")
    assert noticed() == []
    frozen.advance(3600)
    seen("js", "js 8")
    assert noticed() == ["js 8"]
    frozen.advance(3600)
    seen("other", "")
    assert noticed() == ["js 8"]


def test_a_command_marks_one_which_its_workers_do_not_again(frozen: FrozenClock) -> None:
    start("a", "1.0")
    frozen.advance(3600)
    out = StringIO()
    call_command("ojs", "mark-deploy", "shop 1.42", stdout=out)
    assert out.getvalue().startswith("marked shop 1.42 at 2")
    frozen.advance(60)
    start("b", "1.1")
    assert noticed() == []
    row = DeployMark.objects.get()
    assert (row.name, row.noticed, bool(row.by)) == ("shop 1.42", False, True)
    out = StringIO()
    call_command("ojs", "mark-deploy", "--format", "json", stdout=out)
    assert json.loads(out.getvalue())["name"] == ""
    with pytest.raises(CommandError, match="longer than 200"):
        call_command("ojs", "mark-deploy", "x" * 201)


def test_what_several_noticed_at_once_is_one(frozen: FrozenClock) -> None:
    now = frozen.time
    for name, minutes in (("1.1", 0), ("1.1", 1), ("1.2", 2), ("1.1", 30), ("1.1", 45)):
        DeployMark.objects.create(at=now + timedelta(minutes=minutes), name=name, noticed=True)
    found = deploys.between(now, now + timedelta(hours=1))
    assert [row.name for row in found] == ["1.1", "1.2", "1.1", "1.1"]
    assert deploys.between(now + timedelta(minutes=40), now + timedelta(hours=1)) == found[-1:]
    moment = now + timedelta(minutes=20)
    assert deploys.before(moment, found, timedelta(minutes=20)) == found[1]
    assert deploys.before(moment, found, timedelta(minutes=17)) is None


def test_marks_are_kept_as_long_as_the_charts(frozen: FrozenClock) -> None:
    deploys.mark("1")
    frozen.advance(29 * 86_400)
    assert prune.prune().counts["stats"] == 0
    frozen.advance(2 * 86_400)
    assert prune.prune(dry_run=True).counts["stats"] == 1
    assert prune.prune().counts["stats"] == 1
    assert not DeployMark.objects.exists()
