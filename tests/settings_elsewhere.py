"""The tests' settings on an engine that is no server of these tests' own: distributed SQL, in CI.

``OJS_TEST_ENGINE`` is its backend, if not Django's for PostgreSQL, ``OJS_TEST_OPTIONS`` JSON for the
database. NOTIFY is off.
"""

from __future__ import annotations

import json
import os

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES, OJS

OJS = {**OJS, "NOTIFY": False}  # type: ignore[dict-item]
DATABASES["default"]["ENGINE"] = os.environ.get("OJS_TEST_ENGINE") or DATABASES["default"]["ENGINE"]
_given = json.loads(os.environ.get("OJS_TEST_OPTIONS") or "{}")
DATABASES["default"]["OPTIONS"].update(_given.pop("OPTIONS", {}))
DATABASES["default"].update(_given)
