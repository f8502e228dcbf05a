"""The tests' settings with the queue ``mail`` on a second database: ``OJS_TEST_SECOND`` is its URL."""

from __future__ import annotations

import os

from example_project.databases import parse
from tests.settings import *  # noqa: F403
from tests.settings import DATABASES, OJS

DATABASES["second"] = parse(os.environ["OJS_TEST_SECOND"])
OJS = {**OJS, "QUEUE_DATABASES": {"second": ["mail"]}}
