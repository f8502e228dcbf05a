"""The tests' settings, with options of Django's own for the database: ``OJS_TEST_OPTIONS`` is JSON."""

from __future__ import annotations

import json
import os

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES

_given = json.loads(os.environ["OJS_TEST_OPTIONS"])
DATABASES["default"].setdefault("OPTIONS", {}).update(_given.pop("OPTIONS", {}))
DATABASES["default"].update(_given)
