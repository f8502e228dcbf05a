"""The settings of every process of a soak; which database and which mutant come by environment."""

from __future__ import annotations

import os

from example_project.settings import *  # noqa: F403
from example_project.settings import INSTALLED_APPS

DEBUG = False
INSTALLED_APPS.remove("example_project.showcase")
INSTALLED_APPS.append("tests.soak")
OJS = {"EVENTS": "all", "AUTODISCOVER": ["workload"]}
if os.environ.get("OJS_TEST_MUTANT", "").endswith("fence"):
    OJS["UNFENCED_ACK"] = "allow"
