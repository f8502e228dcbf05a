"""The settings of every process of the lab; which database comes by environment."""

from __future__ import annotations

from example_project.settings import *  # noqa: F403
from example_project.settings import INSTALLED_APPS

DEBUG = False
INSTALLED_APPS.remove("example_project.showcase")
INSTALLED_APPS.append("tests.lab")
OJS = {"EVENTS": "all"}
