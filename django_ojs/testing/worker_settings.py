"""The settings of a worker that a test has started: those of the project, as Django changes them for
tests, with the test databases.
"""

from __future__ import annotations

import json
import os
from importlib import import_module

_project = import_module(os.environ["OJS_TEST_SETTINGS"])
globals().update({name: value for name, value in vars(_project).items() if name.isupper()})
# The names as the test has them now, and what keeps mails from being sent.
globals().update(json.loads(os.environ["OJS_TEST_OVERRIDES"]))
_names = json.loads(os.environ["OJS_TEST_DATABASES"])
DATABASES = {
    alias: {**database, "NAME": _names.get(alias, database.get("NAME"))}
    for alias, database in _project.DATABASES.items()
}
