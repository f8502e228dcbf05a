"""``manage.py demo --incident``: a deploy that really fails, and leaves what an operator would find."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.db.models import Count

from django_ojs.models import DeployMark, Job, Worker, Workflow
from tests.support import Manage

pytestmark = pytest.mark.process


def test_an_incident_can_be_looked_at(ojs_db: None, tmp_path: Path) -> None:
    environment = {"EXAMPLE_VAR": str(tmp_path / "var")}
    demo = Manage(("demo", "--incident", "--failures=331"), tmp_path / "demo", environment)
    try:
        assert demo.wait(90) == 0, demo.stderr
    finally:
        demo.stop()
    discarded = Job.objects.filter(state="discarded")
    errors = discarded.values_list("type", "error__type").annotate(count=Count("pk")).order_by()
    found = {(kind, error.rpartition(".")[2]): count for kind, error, count in errors}
    assert found.pop(("checkout.close-day", "ValueError")) == 1
    assert found.keys() == {
        ("checkout.charge", "KeyError"),
        ("checkout.charge", "ValueError"),
        ("checkout.capture", "GatewayRefused"),
    }
    assert sum(found.values()) == 331
    assert Job.objects.filter(queue="example.newsletter", state="available").count() == 400
    assert Workflow.objects.get(name="close the day").state == "failed"
    assert DeployMark.objects.get().name == "shop 1.42"
    (box,) = Worker.objects.filter(name__startswith="box-7")
    assert box.phase == Worker.Phase.RUNNING
    assert Job.objects.get(state="active").worker_id == box.name
