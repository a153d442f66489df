"""The OpenAPI document says what the application has."""

import pytest
from aiohttp import web

from router import RouterConfig
from router.app import build_app
from router.native.endpoints import PASSED
from router.openapi import document
from tests.router.stack import CHAT, Open

pytestmark = pytest.mark.contract("R10")


def test_each_endpoint_is_in_the_document() -> None:
    app = build_app(RouterConfig())
    paths = document(app)["paths"]
    registered = {
        (route.method.lower(), route.resource.canonical)
        for route in app.router.routes()
        if route.resource is not None and route.method not in ("HEAD", "OPTIONS")
    }
    assert registered == {(method, path) for path, methods in paths.items() for method in methods}
    assert {"/health", CHAT, *(each.path for each in PASSED)} <= set(paths)
    assert all(each["summary"] for methods in paths.values() for each in methods.values()), "handlers have docstrings"


async def test_it_is_served(open_stack: Open) -> None:
    stack = await open_stack()
    async with stack.session.get(stack.url + "/openapi.json") as reply:
        found = await reply.json()
    assert found["openapi"] == "3.1.0" and CHAT in found["paths"]
    assert found["paths"]["/v1/responses/{response_id}"]["get"]["parameters"][0]["name"] == "response_id"


def test_routes_of_any_application_are_described() -> None:
    async def answer(_: web.Request) -> web.Response:
        """What it does."""
        return web.Response()

    app = web.Application()
    app.router.add_put("/x/{name}", answer)
    (operation,) = document(app)["paths"]["/x/{name}"].values()
    assert operation["summary"] == "What it does." and operation["requestBody"]["required"] is False
