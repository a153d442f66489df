"""The table of vLLM's endpoints is complete: it names each route of the installed vLLM, and no other."""

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from router.native.endpoints import ENDPOINTS, OPERATOR, OWN, PASSED, SOCKETS, refusal

pytestmark = pytest.mark.contract("R10")
VERBS = ("get", "post", "put", "delete", "patch", "head", "options", "websocket", "route", "api_route")
REGISTER = {*VERBS, "add_route", "add_api_route", "add_api_websocket_route", "mount", "Mount", "RouteConfig"}
SOURCES = ("vllm.entrypoints", "model_hosting_container_standards")
# Of which vLLM 0.32 has none, but OpenAI's API has.
OURS = {"/v1/responses/{response_id}"}


def routes(file: Path) -> Iterator[str]:
    """Paths of the calls in a file that register a route."""
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        given = [*node.args[:1], *(each.value for each in node.keywords if each.arg == "path")]
        for each in given if name in REGISTER else ():
            if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value.startswith("/"):
                yield each.value


def installed() -> set[str]:
    found = set()
    for name in SOURCES:
        top, _, rest = name.partition(".")
        spec = importlib.util.find_spec(top)
        assert spec is not None and spec.submodule_search_locations is not None, f"{top} is not installed"
        root = Path(next(iter(spec.submodule_search_locations))) / rest
        found |= {path for file in root.rglob("*.py") for path in routes(file)}
    return found


def test_every_route_of_the_installed_vllm_is_named() -> None:
    found = installed()
    assert len(found) > 60, "the scan finds the routes"
    assert found - ENDPOINTS == set(), "decide: passed or for operators (router/native/endpoints.py)"
    assert ENDPOINTS - found - OURS == set(), "vLLM has them no more"


def test_each_is_named_once() -> None:
    every = [*OWN, *(each.path for each in PASSED), *SOCKETS, *OPERATOR]
    assert len(every) == len(set(every))


def test_a_refusal_says_whose_endpoint_it_is() -> None:
    for path in OPERATOR:
        assert "for operators" in refusal("POST", path.replace("{adapter_name}", "x"))
    assert "no endpoint" in refusal("GET", "/v1/nope")
