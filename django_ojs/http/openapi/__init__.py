"""The OpenAPI document, made from the registered routes; no module that serves a request imports it.

It is checked in as ``docs/reference/openapi.json``. To write it again::

    python manage.py shell -c "from django_ojs.http import openapi; print(openapi.dump(), end='')"
"""

from __future__ import annotations

from django_ojs.http.openapi.document import document, dump

__all__ = ["document", "dump"]
