"""The project's addresses, and those that a theme has of its own."""

from __future__ import annotations

from django.apps import apps
from django.urls import include, path

from example_project.urls import urlpatterns as _project

urlpatterns = [*_project]
if apps.is_installed("grappelli"):
    urlpatterns.append(path("grappelli/", include("grappelli.urls")))
