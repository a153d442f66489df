"""Requests drawn from the router's own OpenAPI document, and ones that break it: nothing that a client sends makes the
router fail. Its stubs never do, so whatever is 5xx here is its own, but for what it says it does not do (501).
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode

from router import DecodeNodeConfig, RouterConfig, Timeouts, running
from router.app import build_app
from router.fake import FakeDecode, FakeNative, FakePrefill, serving
from router.native import SOCKETS
from router.openapi import document

pytestmark = [pytest.mark.contract("R2", "R10"), pytest.mark.soak, pytest.mark.slow]
EXAMPLES = 300 if "SPEEDTIER_SOAK_S" in os.environ else 5
DOCUMENT = document(build_app(RouterConfig()))
OPERATIONS = [found.ok() for found in schemathesis.openapi.from_dict(DOCUMENT).get_all_operations()]
BREAKABLE = [each for each in OPERATIONS if "requestBody" in DOCUMENT["paths"][each.path][each.method]]
CASES = [
    *(pytest.param(each, GenerationMode.POSITIVE, id=f"{each.label} kept") for each in OPERATIONS),
    *(pytest.param(each, GenerationMode.NEGATIVE, id=f"{each.label} broken") for each in BREAKABLE),
]


@asynccontextmanager
async def stubbed(model_dir: Path) -> AsyncIterator[str]:
    async with (
        serving(FakePrefill(model_dir).app()) as prefill,
        serving(FakeDecode().app()) as decode,
        serving(FakeNative().app()) as native,
    ):
        nodes = (DecodeNodeConfig(url=decode),)
        quick = Timeouts(shutdown=0.2)
        config = RouterConfig(port=0, prefill=(prefill,), decode=nodes, native=(native,), timeouts=quick)
        async with running(config) as url:
            yield url


@pytest.fixture(scope="module")
def url(model_dir: Path) -> Iterator[str]:
    """A router between stubs, in a thread of its own: what draws the requests waits for their replies."""
    found: list[str] = []
    up, end = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with stubbed(model_dir) as where:
            found.append(where)
            up.set()
            await end.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert up.wait(20)
    yield found[0]
    loop.call_soon_threadsafe(end.set)
    thread.join(20)
    loop.close()


@pytest.mark.parametrize("tier", ["speed", "native"])
@pytest.mark.parametrize(("operation", "mode"), CASES)
def test_no_request_makes_the_router_fail(url: str, operation, tier: str, mode: GenerationMode) -> None:  # type: ignore[no-untyped-def]
    expected = {501} if operation.path in SOCKETS else set()

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case) -> None:  # type: ignore[no-untyped-def]
        reply = case.call(base_url=url, headers={"x-traffic-class": tier}, timeout=20)
        assert reply.status_code < 500 or reply.status_code in expected, (reply.text, case.as_curl_command())
        if reply.status_code >= 400 and reply.request.method != "HEAD":
            assert reply.json()["error"]["message"], reply.text

    check()
