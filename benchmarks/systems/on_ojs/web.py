"""The project that gunicorn serves: our routes and a bare DRF view."""

from __future__ import annotations

urlpatterns: list[object] = []
