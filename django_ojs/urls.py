"""What a project includes: ``path("", include("django_ojs.urls"))``.

``/ojs/v1/``, ``/ojs/manifest``, ``/health`` and ``/ready``.
"""

from __future__ import annotations

from django.urls import re_path

from django_ojs.extensions.schemas.http import FEATURE as SCHEMAS
from django_ojs.http import routes, routing
from django_ojs.http.views.system import SystemViewSet

routes.register_all()
routing.register(SCHEMAS)

_METHODS = ("get", "post", "put", "patch", "delete")
_nothing = SystemViewSet.as_view(dict.fromkeys(_METHODS, "nothing"))

urlpatterns = [
    *routing.patterns(),
    re_path(r"^ojs(?:/(?P<rest>.*))?\Z", routing.non_atomic(_nothing)),
]
