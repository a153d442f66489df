"""The router's own OpenAPI document, at ``/openapi.json``.

Invariant: it is made from the routes that the application has, so it names each endpoint and no other. Schemas say what
the router itself asks of a request; all other fields are vLLM's, whose own document describes them.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from aiohttp import web

from router.native import PASSED
from speedtier import __version__

__all__ = ["PATH", "add_document", "document"]

PATH = "/openapi.json"
_STRING: dict[str, Any] = {"type": "string"}
_LENGTH: dict[str, Any] = {"type": ["integer", "null"], "minimum": 1}
_SHARED: dict[str, Any] = {
    "model": {"type": ["string", "null"], "description": "A model's name, or an alias that means a traffic class."},
    "stream": {"type": ["boolean", "null"]},
    "max_tokens": _LENGTH,
    "service_tier": {"type": ["string", "null"], "description": "May name a traffic class."},
}
_MESSAGE = {
    "type": "object",
    "required": ["role"],
    "properties": {"role": _STRING, "content": {"type": ["string", "array", "null"]}},
}


def _object(required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    forbidden = {"required": ["kv_transfer_params"]}  # R7
    return {"type": "object", "required": required, "properties": {**_SHARED, **properties}, "not": forbidden}


SCHEMAS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": _object(
        ["messages"],
        messages={"type": "array", "minItems": 1, "items": _MESSAGE},
        max_completion_tokens=_LENGTH,
    ),
    "/v1/completions": _object(["prompt"], prompt={"type": ["string", "array"]}),
}
_ANY = {"type": "object", "not": {"required": ["kv_transfer_params"]}}
_FORM = {"type": "object", "required": ["file"], "properties": {"file": {"type": "string", "format": "binary"}}}
_FORMS = frozenset(each.path for each in PASSED if each.body == "form")
_BARE = frozenset(each.path for each in PASSED if each.body == "none")
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "code"],
            "properties": {
                "message": _STRING,
                "type": _STRING,
                "param": {"type": ["string", "null"]},
                "code": {"type": ["integer", "string", "null"]},
            },
        }
    },
}


def _operation(method: str, path: str, text: str) -> dict[str, Any]:
    made: dict[str, Any] = {
        "summary": " ".join(text.split()),
        "responses": {
            "200": {"description": "The reply."},
            "default": {
                "description": "An OpenAI error object.",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    if names:
        made["parameters"] = [{"name": name, "in": "path", "required": True, "schema": _STRING} for name in names]
    if method in ("POST", "PUT", "PATCH") and path not in _BARE:
        kind = "multipart/form-data" if path in _FORMS else "application/json"
        schema = _FORM if path in _FORMS else SCHEMAS.get(path, _ANY)
        made["requestBody"] = {"required": path in SCHEMAS, "content": {kind: {"schema": schema}}}
    return made


def _routes(routes: Iterable[web.AbstractRoute]) -> Iterator[tuple[str, str, str]]:
    for route in routes:
        if route.resource is not None and route.method not in ("HEAD", "OPTIONS", "*"):
            yield route.method, route.resource.canonical, route.handler.__doc__ or ""


def document(app: web.Application) -> dict[str, Any]:
    """The document of an application's routes."""
    paths: dict[str, dict[str, Any]] = {}
    for method, path, text in _routes(app.router.routes()):
        paths.setdefault(path, {})[method.lower()] = _operation(method, path, text)
    return {
        "openapi": "3.1.0",
        "info": {"title": "speedtier router", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def add_document(app: web.Application) -> None:
    """Serve the document; after all other routes have been added."""
    made: dict[str, Any] = {}

    async def answer(request: web.Request) -> web.Response:
        """This document."""
        made.update(made or document(request.app))
        return web.json_response(made)

    app.router.add_get(PATH, answer)
