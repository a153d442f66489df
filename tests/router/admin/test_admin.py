"""``/admin``: closed without its key; servers come and go while requests run (R4)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from router import RouterConfig
from router.admin import AdminKey
from router.app import build_app
from router.config import ApiKey
from router.fake import FakeDecode, FakePrefill, serving
from speedtier.errors import ConfigError
from tests.router.stack import Open, Stack, until

KEY = "admin-secret-of-some-length"
BEARING = {"authorization": f"Bearer {KEY}"}
PATHS = [
    ("GET", "/admin/nodes"),
    ("POST", "/admin/nodes"),
    ("POST", "/admin/nodes/x/drain"),
    ("POST", "/admin/nodes/x/resume"),
    ("DELETE", "/admin/nodes/x"),
]


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    file = tmp_path / "admin.key"
    file.write_text(KEY + "\n")
    return str(file)


async def call(stack: Stack, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    async with stack.session.request(method, stack.url + path, json=body, headers=headers or BEARING) as reply:
        return reply.status, await reply.json()


async def nodes(stack: Stack, kind: str) -> list[dict[str, Any]]:
    status, found = await call(stack, "GET", "/admin/nodes")
    assert status == 200
    return [each for each in found["nodes"] if each["kind"] == kind]


@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_it_is_closed_without_the_key(open_stack: Open, key_file: str, method: str, path: str) -> None:
    api_key = ApiKey(name="k", sha256="0" * 64)
    for keys in ((), (api_key,)):
        stack = await open_stack(admin_key_file=key_file, api_keys=keys)
        for headers in ({"x-o": "1"}, {"authorization": "Bearer " + KEY[:-1]}, {"authorization": KEY}):
            status, answer = await call(stack, method, path, **headers)
            assert status == 401 and answer["error"]["type"] == "AuthenticationError" and KEY not in str(answer)


@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_there_is_none_unless_it_is_asked_for(open_stack: Open, method: str, path: str) -> None:
    stack = await open_stack()
    status, answer = await call(stack, method, path)
    assert status == 404 and answer["error"]["type"] == "NotFoundError"


@pytest.mark.parametrize("text", ["", "short\n", "two lines of it\nare too many", "Schlüssel-von-einer-Länge"])
def test_a_key_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "key"
    file.write_text(text)
    with pytest.raises(ConfigError, match="admin_key_file"):
        build_app(RouterConfig(admin_key_file=str(file)))
    with pytest.raises(ConfigError, match="admin_key_file"):
        AdminKey(str(tmp_path / "absent"))


async def test_a_decode_node_comes_and_goes(open_stack: Open, key_file: str) -> None:
    other = FakeDecode(tokens=[41] * 300, pace_s=0.01)
    stack = await open_stack(admin_key_file=key_file, nodes=[], native=())
    async with stack.ask(max_tokens=4) as reply:
        assert reply.status == 503
    async with serving(other.app()) as url:
        status, added = await call(stack, "POST", "/admin/nodes", {"kind": "decode", "url": url})
        assert status == 201 and added["kind"] == "decode"
        name = added["name"]
        running = asyncio.create_task(stack.whole(max_tokens=60))
        await until(lambda: other.active)
        assert [(each["state"], each["in_flight"]) for each in await nodes(stack, "decode")] == [("up", 1)]
        removing = asyncio.create_task(call(stack, "DELETE", f"/admin/nodes/{name}"))
        async with asyncio.timeout(15):
            while (await nodes(stack, "decode"))[0]["state"] != "draining":
                await asyncio.sleep(0.01)
        assert not removing.done(), "it waits for the request"
        assert (await running)["usage"]["completion_tokens"] == 60
        assert (await removing)[0] == 200 and await nodes(stack, "decode") == []
        assert (await call(stack, "DELETE", f"/admin/nodes/{name}"))[0] == 404


async def test_a_drained_node_gets_nothing_until_it_is_resumed(open_stack: Open, key_file: str) -> None:
    pair = [FakeDecode(), FakeDecode()]
    stack = await open_stack(admin_key_file=key_file, nodes=pair)
    first, second = [each["name"] for each in await nodes(stack, "decode")]
    status, drained = await call(stack, "POST", f"/admin/nodes/{first}/drain")
    assert status == 200 and drained["state"] == "draining"
    for _ in range(3):
        await stack.whole(max_tokens=2)
    assert not pair[0].orders and len(pair[1].orders) == 3
    assert (await call(stack, "POST", f"/admin/nodes/{first}/resume"))[0] == 200
    assert (await call(stack, "POST", f"/admin/nodes/{second}/drain"))[0] == 200
    await stack.whole(max_tokens=2)
    assert len(pair[0].orders) == 1
    assert (await call(stack, "POST", f"/admin/nodes/{first}/drain"))[0] == 200
    async with stack.session.get(stack.url + "/ready?class=speed") as reply:
        assert reply.status == 503 and "every decode server is being drained" in await reply.text()


async def test_servers_of_two_kinds_at_one_address(open_stack: Open, model_dir, key_file: str) -> None:
    stack = await open_stack(admin_key_file=key_file)
    (native,) = await nodes(stack, "native")
    status, answer = await call(stack, "POST", f"/admin/nodes/{native['name']}/drain")
    assert status == 400 and answer["error"]["param"] == "kind"
    async with serving(FakePrefill(model_dir, native_body=b'{"second": 1}').app()) as url:
        given = {"kind": "native", "url": url}
        assert (await call(stack, "POST", "/admin/nodes", given))[0] == 201
        status, answer = await call(stack, "POST", "/admin/nodes", given)
        assert status == 400 and "there already" in answer["error"]["message"]
        assert (await call(stack, "DELETE", f"/admin/nodes/{native['name']}?kind=native"))[0] == 200
        async with stack.ask(headers={"x-o": "1"}) as reply:
            assert await reply.json() == {"second": 1}
    assert [each["name"] for each in await nodes(stack, "prefill")] == [native["name"]]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"kind": "decode", "url": "ftp://x"}, "url"),
        ({"kind": "decode", "url": "http://user:word@h"}, "url"),
        ({"kind": "warp", "url": "http://h"}, "kind"),
        ({"kind": "native", "url": "http://h", "ctrl_port": 1}, "ctrl_port"),
        ({"kind": "decode", "url": "http://h", "prefill_url": "http://p"}, "prefill_url"),
        ({"kind": "decode", "url": "http://h", "x": 1}, "unknown field `x`"),
        (None, "no server to add"),
    ],
)
async def test_what_cannot_be_added_is_refused_by_name(open_stack: Open, key_file: str, body: Any, says: str) -> None:
    stack = await open_stack(admin_key_file=key_file)
    status, answer = await call(stack, "POST", "/admin/nodes", body)
    assert status == 400 and says in str(answer)
    for query in ("?within_s=soon", "?within_s=-1", "?within_s=nan", "?kind=warp"):
        assert (await call(stack, "DELETE", f"/admin/nodes/x{query}"))[0] == 400
