"""Entry point of a monitor that is a fresh interpreter: ``python -m django_ojs.worker.executor``."""

from __future__ import annotations

import socket
import sys

from django_ojs.worker.prefork.monitor import run_monitor


def _serve(channel: socket.socket, liveness: int) -> None:
    import django

    django.setup()
    from django_ojs.worker.executor.process import serve

    serve(channel, liveness)


if __name__ == "__main__":
    _control, _channel, _liveness = map(int, sys.argv[1:4])
    run_monitor(socket.socket(fileno=_control), socket.socket(fileno=_channel), _liveness, _serve)
