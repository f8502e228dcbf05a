"""The migrations of this release, and two more."""

from __future__ import annotations

import django_ojs.migrations

__path__ = [*django_ojs.migrations.__path__, *__path__]
