"""Background jobs in your own database, with deadlines that are kept (Open Job Spec).

Everything public is importable from here; it is loaded on first use, since Django's app registry
must be ready for most of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "1.0.0rc1"

if TYPE_CHECKING:
    from django_ojs.api import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name.startswith("_") and name != "__all__":
        raise AttributeError(name)
    import sys
    from importlib import import_module
    from importlib.util import find_spec

    # A settings module may import a module of the package, when the rest cannot be loaded yet: Python
    # asks for an attribute of that name first.
    loaded = "django_ojs.api" in sys.modules
    if not loaded and find_spec(f"{__name__}.{name}") is not None:
        raise AttributeError(f"module 'django_ojs' has not loaded its module {name!r} yet")
    try:
        return import_module("django_ojs.api").__dict__[name]
    except KeyError:
        raise AttributeError(f"module 'django_ojs' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    from django.apps import apps

    # Before the app registry is ready, nothing of the API can be loaded, and a debugger may ask.
    public: list[str] = __getattr__("__all__") if apps.models_ready else []
    return sorted({*globals(), *public})
