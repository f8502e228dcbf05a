"""Every option of ``runworker`` can come from the environment, and is blamed by its own name."""

from __future__ import annotations

import argparse
from typing import Any

import pytest
from django.core.management import CommandError, call_command, load_command_class

GENERAL = {
    *("help", "version", "verbosity", "settings", "pythonpath", "traceback", "no_color"),
    *("force_color", "skip_checks", "database", "format"),
}
VALUES: dict[str, tuple[str, Any]] = {
    "queue": ("mail,default", ["mail", "default"]),
    "exclude_queue": ("bulk", ["bulk"]),
    "concurrency": ("4", 4),
    "drain": ("1", True),
    "once": ("true", True),
    "max_jobs": ("10", 10),
    "max_runtime": ("10m", "10m"),
    "max_rss": ("512.5", 512.5),
    "shutdown_timeout": ("5", "5"),
    "worker_id": ("w1", "w1"),
    "release": ("shop 2", "shop 2"),
    "async_slots": ("20", 20),
    "heartbeat": ("manual", "manual"),
    "health_port": ("7117", 7117),
    "health_host": ("::", "::"),
    "log_format": ("json", "json"),
    "reload": ("on", True),
    "no_maintenance": ("yes", True),
}


def parser() -> argparse.ArgumentParser:
    """That of ``runworker``, as the environment is now."""
    return load_command_class("django_ojs", "runworker").create_parser("manage.py", "runworker")


def test_every_option_has_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {action.dest for action in parser()._actions} - GENERAL == VALUES.keys()
    for name, (text, _) in VALUES.items():
        monkeypatch.setenv(f"OJS_{name.upper()}", text)
    found = vars(parser().parse_args([]))
    assert {name: found[name] for name in VALUES} == {
        name: value for name, (_, value) in VALUES.items()
    }


def test_a_flag_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("0", "", "false", "No"):
        monkeypatch.setenv("OJS_DRAIN", text)
        assert parser().parse_args([]).drain is False


def test_the_queues_of_the_command_line_replace_those_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OJS_QUEUE", "mail,default")
    assert parser().parse_args([]).queue == ["mail", "default"]
    given = ["--queue", "bulk", "--queue", "slow"]
    assert [parser().parse_args(given).queue for _ in range(2)] == [["bulk", "slow"]] * 2
    assert parser().parse_args([]).queue == ["mail", "default"]


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("OJS_CONCURRENCY", "abc"),
        ("OJS_CONCURRENCY", "0"),
        ("OJS_DRAIN", "perhaps"),
        ("OJS_LOG_FORMAT", "xml"),
        ("OJS_MAX_RSS", "much"),
        ("OJS_MAX_RSS", "nan"),
        ("OJS_QUEUE", "Not A Queue"),
        ("OJS_SHUTDOWN_TIMEOUT", "soon"),
        ("OJS_WORKER_ID", "a/b"),
    ],
)
def test_a_bad_variable_is_blamed_by_its_name(
    monkeypatch: pytest.MonkeyPatch, ojs_db: None, variable: str, text: str
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(CommandError) as refused:
        call_command("runworker")
    assert variable in str(refused.value)


def test_an_option_on_the_command_line_is_blamed_itself(
    monkeypatch: pytest.MonkeyPatch, ojs_db: None
) -> None:
    monkeypatch.setenv("OJS_CONCURRENCY", "4")
    with pytest.raises(CommandError) as refused:
        call_command("runworker", "--concurrency", "0")
    assert str(refused.value).startswith("--concurrency: ")
