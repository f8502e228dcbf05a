"""The document itself: paths from the registered routes, components from what they refer to."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Sequence
from typing import Any

from django.urls import get_resolver

from django_ojs.http import media, routing
from django_ojs.http.base import OPEN
from django_ojs.http.openapi import fields as f
from django_ojs.http.openapi.operations import (
    LEASE,
    METRICS,
    OPERATIONS,
    PATH_PARAMETERS,
    STREAM,
    Documented,
)
from django_ojs.http.openapi.schemas.jobs import Reason

_ROOT = f"/{routing.BASE}"
_METHODS = ("get", "post", "put", "patch", "delete")
_DESCRIPTION = """\
The HTTP binding of Open Job Spec 1.0, as django-ojs serves it.

Every error has the envelope `Error`. Objects may have further properties. A trailing slash does not
matter. Bodies may be `application/json` too, and compressed with gzip or deflate. With the header
`OJS-Version` the type of the answer is `application/openjobspec+json; profile="application/json"`,
and `queue` in answers about a queue is its name. `X-Request-Id` comes back with the answer."""
_SCHEME = """\
A token of `manage.py ojs token`. The roles of a requirement are scopes of the token, of which one is
needed; requirements of one operation are alternatives. The session of a staff user will do too."""


def document() -> dict[str, Any]:
    """The document of what this project serves."""
    # Loading the URL conf registers the capabilities.
    assert get_resolver().url_patterns
    schemas = _Schemas()
    paths: dict[str, dict[str, Any]] = {}
    for part in routing.features():
        for route in part.routes:
            paths[routing.url_of(route.path)] = {
                method: _operation(part.name, route, method, schemas)
                for method in _METHODS
                if method in route.actions
            }
    return {
        "openapi": "3.1.0",
        "info": {"title": "django-ojs", "version": media.VERSION, "description": _DESCRIPTION},
        # A parameter comes before the words that may stand in its place.
        "paths": dict(sorted(paths.items(), key=lambda item: item[0].replace("{", "<"))),
        "components": {
            "schemas": dict(sorted(schemas.components.items())),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "description": _SCHEME}},
        },
    }


def dump() -> str:
    """The document as text, always in the same order."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


class _Schemas:
    """The components that were referred to so far."""

    def __init__(self) -> None:
        self.components: dict[str, dict[str, Any]] = {}

    def resolved(self, value: Any) -> Any:
        """The schema with references in place of components, which are added to the document."""
        if isinstance(value, type):
            name = value.__name__.removesuffix("Component")
            if name not in self.components:
                self.components[name] = {}
                self.components[name] = self._component(value)
            return {"$ref": f"#/components/schemas/{name}"}
        if isinstance(value, dict):
            return {key: self.resolved(item) for key, item in value.items()}
        return [self.resolved(item) for item in value] if isinstance(value, list) else value

    def _component(self, kind: type[f.Component]) -> dict[str, Any]:
        properties: dict[str, Any] = {}
        for base in reversed(kind.__mro__):
            for name, value in vars(base).items():
                if isinstance(value, (dict, type)) and not name.startswith("__"):
                    properties.pop(name, None)
                    properties[name] = self.resolved(value)
        required = sorted(properties if kind.needed is None else kind.needed)
        return {
            "type": "object",
            "description": _prose(kind),
            "properties": properties,
            **({"required": required} if required else {}),
            **({"anyOf": [{"required": [name]} for name in kind.either]} if kind.either else {}),
            "additionalProperties": True,
        }


def _operation(tag: str, route: routing.Route, method: str, schemas: _Schemas) -> dict[str, Any]:
    path, action = routing.url_of(route.path), route.actions[method]
    documented = _documented(route.view, action)
    body = documented.body
    if documented.flat_body is not None and "{" not in path:
        body = documented.flat_body
    if method not in ("post", "put", "patch"):
        body = None
    text = _prose(getattr(route.view, action))
    scopes = route.view.scopes[action]
    who = "For everybody." if OPEN in scopes else f"Scope: {_listed(scopes)}."
    aliases = [routing.url_of(alias) for alias in route.aliases]
    also = f"\n\nAlso at {_listed(aliases, 'and')}." if aliases else ""
    words = re.findall(r"\w+", path.removeprefix(_ROOT).replace("-", "_"))
    parameters = _parameters(path, method, documented)
    return {
        "operationId": "_".join([method, *words]),
        "description": f"{text}\n\n{who}{also}",
        # Up to the first pause.
        "summary": re.split(r"[.:;](?:\s|$)", text)[0],
        **({"parameters": parameters} if parameters else {}),
        "tags": [tag],
        **({"requestBody": _request_body(body, schemas)} if body is not None else {}),
        # Alternatives, because one scope is enough.
        "security": [{}] if OPEN in scopes else [{"bearer": [scope]} for scope in scopes],
        "responses": _responses(documented, schemas),
    }


def _documented(view: type[Any], action: str) -> Documented:
    for kind in view.__mro__:
        found = OPERATIONS.get(f"{kind.__name__}.{action}")
        if found is not None:
            return found
    raise LookupError(f"{view.__name__}.{action} is not documented: add it to OPERATIONS")


def _parameters(path: str, method: str, documented: Documented) -> list[dict[str, Any]]:
    found = {
        ("path", name): PATH_PARAMETERS.get(name, f.text()) for name in re.findall(r"{(\w+)}", path)
    }
    # A reason is in the body, where there is one.
    if method == "delete" or documented.body is not Reason:
        found |= {("query", name): schema for name, schema in documented.query.items()}
    if documented.lease:
        found["header", "OJS-Lease"] = f.uuid(LEASE)
    return [
        {
            "in": place,
            "name": name,
            "schema": {key: value for key, value in schema.items() if key != "description"},
            "description": schema["description"],
            **({"required": True} if place == "path" else {}),
        }
        for (place, name), schema in sorted(found.items(), key=lambda item: item[0][1])
    ]


def _request_body(body: type[f.Component], schemas: _Schemas) -> dict[str, Any]:
    content = {"schema": schemas.resolved(body)}
    # Even an empty body is one, unless nothing in it is needed.
    required = {"required": True} if body.needed or body.either else {}
    return {"content": dict.fromkeys((media.OJS, "application/json"), content), **required}


_TEXTS = {STREAM: "Server-sent events.", METRICS: "Metrics in the text format of Prometheus."}


def _responses(documented: Documented, schemas: _Schemas) -> dict[str, Any]:
    """The answers, and the envelope of errors for every other status."""
    found: dict[str, Any] = {}
    for status, answer in documented.answers.items():
        if answer is None:
            found[str(status)] = {"description": "No body."}
        elif isinstance(answer, str):
            content = {answer: {"schema": f.text()}}
            found[str(status)] = {"content": content, "description": _TEXTS[answer]}
        else:
            text = "The database does not answer." if status == 503 else _prose(answer)
            content = {media.OJS: {"schema": schemas.resolved(answer)}}
            found[str(status)] = {"content": content, "description": text}
    error = {media.OJS: {"schema": schemas.resolved(f.Error)}}
    found["default"] = {"content": error, "description": "An error."}
    return found


def _listed(words: Sequence[str], last: str = "or") -> str:
    quoted = [f"`{word}`" for word in words]
    head, tail = quoted[:-1], quoted[-1]
    return f"{', '.join(head)} {last} {tail}" if head else tail


def _prose(documented: Any) -> str:
    return " ".join((inspect.getdoc(documented) or "").replace("``", "`").split())
