"""``runworker``: claim jobs and run their handlers."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import connections

from django_ojs import __version__, conf
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.names import check_queue_name, check_worker_id
from django_ojs.domain.options import HeartbeatMode
from django_ojs.domain.reserved import is_own
from django_ojs.engines import EngineFamily, family_of
from django_ojs.handlers import execution, registry
from django_ojs.management.base import OJSCommand, plural
from django_ojs.management.logs import add_log_format, log_format, set_up_logging
from django_ojs.management.times import span_ms
from django_ojs.process_title import set_title
from django_ojs.services import deploys, queues
from django_ojs.services.phrases import humanize_duration
from django_ojs.services.workers import process_name
from django_ojs.worker.supervisor import reload
from django_ojs.worker.supervisor.config import Config, Summary
from django_ojs.worker.supervisor.probes import HealthServer
from django_ojs.worker.supervisor.runner import Runner


class Command(OJSCommand):
    """Parses the arguments into a :class:`Config`, runs the worker, and prints a summary."""

    help = "Claim jobs and run their handlers, with their timeouts enforced."

    def add_arguments(self, parser: CommandParser) -> None:
        """Every option can be given as ``OJS_<OPTION>`` in the environment too."""
        super().add_arguments(parser)
        option = partial(_add_option, parser)
        several: Any = {"action": _Append, "read": _names, "default": []}
        option("--queue", "queue to serve; repeat in the order of service; default all", **several)
        option("--exclude-queue", "queue not to serve", **several)
        option("--concurrency", "jobs at a time, each in a process of its own (default 2)", int, 2)
        option(
            "--async-slots",
            "coroutine jobs at a time, in one process they share, besides (default OJS['ASYNC_SLOTS'])",
            int,
        )
        option(
            "--heartbeat",
            "what counts as a sign of life of handlers that do not say: auto (default) or manual",
            _heartbeat_mode,
            "auto",
            choices=("auto", "manual"),
        )
        option("--drain", "run until nothing is available, print a summary, exit", _yes_or_no)
        option("--once", "run one job at most, then exit", _yes_or_no)
        option("--max-jobs", "exit 75 after this many jobs", int)
        option("--max-runtime", "exit 75 after this time: seconds, 10m, PT1H")
        option("--max-rss", "replace an executor above this many MiB, between jobs", float)
        option(
            "--shutdown-timeout",
            "how long running jobs may take after SIGTERM (default 25)",
            default="25",
        )
        option("--release", "the version of your application, for the admin: a new one is a deployment")
        option("--worker-id", "name of this worker; default host, process id and a random part")
        option("--health-port", "serve /status/started and /status/connected on this port", int)
        option(
            "--health-host",
            "the address of --health-port (default 127.0.0.1); 0.0.0.0 or :: for all",
            default="127.0.0.1",
        )
        add_log_format(parser, _env(parser, "--log-format", None, log_format))
        option("--reload", "restart when a source file changes (development)", _yes_or_no)
        option("--no-maintenance", "leave reaping, promoting and pruning to others", _yes_or_no)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until stopped; the exit code says why."""
        if options["reload"] and not reload.is_child():
            sys.exit(reload.run_reloading())
        alias = self.alias(options)
        _refuse_unshared(alias)
        config = self._config(alias, options)
        if all(is_own(type=name) for name in registry.types()):
            modules = " or ".join(f"{name}.py" for name in conf.current().autodiscover)
            raise CommandError(
                f"no job handlers are registered: put functions with @job into {modules} of an "
                "app in INSTALLED_APPS"
            )
        verbosity = options["verbosity"]
        set_up_logging(self.stderr, verbosity, options["log_format"])
        for queue, other in _elsewhere(config):
            self.print_line(
                f"--queue {queue}: its jobs go to the database {other!r}, this worker serves {alias!r}",
                trouble=True,
            )
        with self.usable_database(alias):
            if verbosity and options["format"] == "text":
                self._banner(config)
            connections.close_all()
            # Imported before the fork, so that the executors share it.
            execution.chain.members()
            set_title(f"worker {config.worker_id}")
            runner = Runner(config)
            health = _health_server(options["health_host"], options["health_port"], runner)
            if health is not None:
                health.start()
            summary = runner.run()
            if health is not None:
                health.close()
        rate = summary.jobs / summary.seconds if summary.seconds else 0.0
        per_job = summary.statements / summary.jobs if summary.jobs else 0.0
        value = {
            "jobs": summary.jobs,
            "completed": summary.completed,
            "failed": summary.failed,
            "given_back": summary.given_back,
            "seconds": round(summary.seconds, 3),
            "jobs_per_second": round(rate, 1),
            "statements_per_job": round(per_job, 3),
        }
        self.confirm(options, value, _last_lines(summary, options["verbosity"]))
        if summary.exit_code:
            sys.exit(summary.exit_code)

    def _config(self, alias: str, options: dict[str, Any]) -> Config:
        try:
            named = [check_queue_name(name, "--queue") for name in options["queue"]]
            excluded = [check_queue_name(n, "--exclude-queue") for n in options["exclude_queue"]]
            runtime = options["max_runtime"]
            _within("--health-port", options["health_port"], 1, 65535)
            return Config(
                worker_id=check_worker_id(options["worker_id"] or process_name(), "--worker-id"),
                queues=tuple(named),
                exclude=tuple(excluded),
                concurrency=_within("--concurrency", options["concurrency"], 1),
                async_slots=_slots(options["async_slots"]),
                heartbeat=options["heartbeat"],
                drain=options["drain"],
                once=options["once"],
                max_jobs=_within("--max-jobs", options["max_jobs"], 1),
                max_runtime=None if runtime is None else _seconds("--max-runtime", runtime),
                max_rss=_within("--max-rss", options["max_rss"], 1),
                shutdown_timeout=_seconds(
                    "--shutdown-timeout", options["shutdown_timeout"], allow_zero=True
                ),
                maintenance=not options["no_maintenance"],
                release=(options["release"] or "")[: deploys.MOST_NAME],
                using=alias,
            )
        except InvalidRequest as error:
            raise CommandError(_error_text(error, options), returncode=2) from error

    def _banner(self, config: Config) -> None:
        types = [name for name in registry.types() if not is_own(type=name)]
        served = ", ".join(config.queues) or "all queues"
        if config.exclude:
            served += " except " + ", ".join(config.exclude)
        paused = [n for n in queues.paused(using=config.using) if n in config.queues]
        limits = conf.current().limits
        connection = connections[config.using]
        banner = (
            f"django-ojs {__version__} worker {config.worker_id}\n"
            f"  database   {config.using} ({connection.display_name})\n"
            f"  queues     {served}" + (f" (paused: {', '.join(paused)})" if paused else "") + "\n"
            f"  types      {len(types)}: {', '.join(types[:8])}{', ...' if len(types) > 8 else ''}\n"
            f"  executors  {config.concurrency}"
            + (f", and one for {plural(config.async_slots, 'coroutine')}" if config.async_slots else "")
            + "\n"
            f"  defaults   timeout {(limits.timeout_ms or 0) / 1000:g} s,"
            f" grace {(limits.grace_period_ms or 0) / 1000:g} s,"
            f" heartbeat {(limits.heartbeat_timeout_ms or 0) / 1000:g} s;"
            f" shutdown {config.shutdown_timeout:g} s"
        )
        for line in banner.splitlines():
            self.print_line(line)


class _Append(argparse.Action):
    """Collects values; the first one replaces the default, which may be of the environment."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        known = getattr(namespace, self.dest)
        setattr(namespace, self.dest, [*([] if known is self.default else known), values])


def _heartbeat_mode(text: str) -> HeartbeatMode:
    if text == "manual":
        return "manual"
    if text == "auto":
        return "auto"
    raise ValueError(text)


def _elsewhere(config: Config) -> Iterator[tuple[str, str]]:
    """The queues to be served that are in other databases, with these."""
    databases = conf.current().databases
    if databases.are_several:
        for queue in config.queues:
            if (alias := databases.of(queue)) != config.using:
                yield queue, alias


def _slots(given: int | None) -> int:
    """The coroutines at a time: the option, or ``OJS["ASYNC_SLOTS"]``."""
    return conf.current().async_slots if given is None else conf.slots(given, "--async-slots")


def _last_lines(summary: Summary, verbosity: int) -> Iterator[str]:
    """What became of the jobs; with more verbosity what they cost."""
    failed = f", {summary.failed} failed" if summary.failed else ""
    back = f", {summary.given_back} given back unbegun" if summary.given_back else ""
    took = humanize_duration(timedelta(seconds=summary.seconds))
    yield f"ended after {took}: {plural(summary.completed, 'job')} completed{failed}{back}"
    if verbosity > 1 and summary.jobs:
        rate = summary.jobs / summary.seconds
        yield f"{rate:.1f} jobs/s, {summary.statements / summary.jobs:.2f} statements per job"


def _refuse_unshared(alias: str) -> None:
    """Raise ``CommandError`` where no other process could see the jobs."""
    connection: Any = connections[alias]
    if family_of(connection) is EngineFamily.SQLITE and connection.is_in_memory_db():
        raise CommandError(
            f"the database {alias!r} is SQLite in memory, which a worker's processes cannot share: "
            "use a file; in tests, django_ojs.testing.drain() runs jobs in the process of the test"
        )
    if connection.in_atomic_block:
        raise CommandError(
            "a worker cannot run inside atomic(), since its processes see no uncommitted jobs; "
            "in tests, django_ojs.testing.drain() runs jobs in the transaction of TestCase"
        )


def _health_server(host: str, port: int | None, runner: Runner) -> HealthServer | None:
    if port is None:
        return None
    checks = {"/status/started": runner.started, "/status/connected": runner.connected}
    try:
        return HealthServer(host, port, checks, {"/metrics": runner.metrics})
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise CommandError(f"--health-port: cannot listen on {host} port {port}: {why}") from error


def _add_option(
    parser: CommandParser,
    option: str,
    text: str,
    read: Callable[[str], Any] = str,
    default: Any = None,
    **more: Any,
) -> None:
    """Add an option whose default is ``OJS_<OPTION>`` of the environment, parsed by ``read``."""
    if read is _yes_or_no:
        default, more = False, {"action": "store_true"}
    elif not more:
        more = {"type": read}
    parser.add_argument(option, default=_env(parser, option, default, read), help=text, **more)


def _env(parser: CommandParser, option: str, default: Any, read: Callable[[str], Any]) -> Any:
    """The value of an option in the environment; an invalid one is an error under its own name."""
    name = f"OJS_{option.removeprefix('--').replace('-', '_').upper()}"
    text = os.environ.get(name)
    if text is None:
        return default
    try:
        return read(text)
    except ValueError:
        parser.error(f"{name}: {text!r} is no value of {option}")


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _yes_or_no(text: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True}
    words |= {"": False, "0": False, "false": False, "no": False, "off": False}
    try:
        return words[text.lower()]
    except KeyError:
        raise ValueError(text) from None


def _error_text(error: InvalidRequest, options: dict[str, Any]) -> str:
    """The error under the name by which the value was given: an option or a variable."""
    name = error.field.removeprefix("--").replace("-", "_")
    variable = f"OJS_{name.upper()}"
    given = options.get(name)
    shown = ",".join(given) if isinstance(given, list) else str(given)
    return f"{variable}: {error.rule}" if os.environ.get(variable) == shown else str(error)


def _within(option: str, value: Any, least: int, most: float = math.inf) -> Any:
    if value is not None and not value >= least:  # also what is no number
        raise InvalidRequest(option, f"must be at least {least}")
    if value is not None and value > most:
        raise InvalidRequest(option, f"must be at most {most}")
    return value


def _seconds(option: str, value: str, *, allow_zero: bool = False) -> float:
    return span_ms(value, option, allow_zero=allow_zero) / 1000
