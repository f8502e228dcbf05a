"""The tests' settings with a theme of Django's admin: ``OJS_TEST_THEME`` is its package."""

from __future__ import annotations

import os

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS

INSTALLED_APPS = [os.environ["OJS_TEST_THEME"], *INSTALLED_APPS]
ROOT_URLCONF = "tests.browser.theme_urls"
JAZZMIN_SETTINGS = {"use_google_fonts_cdn": False}
