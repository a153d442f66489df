"""`speedtier up` over a vLLM of one's own: what is found out before anything is started."""

from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from deploy.processes import free_ports
from deploy.up import UpConfig, VllmConfig, up
from deploy.up.launch import served_by
from speedtier.errors import ConfigError


async def models(_: web.Request) -> web.Response:
    return web.json_response({"data": [{"id": "first"}, {"id": "second"}]})


async def test_the_name_is_taken_from_the_server_or_checked_against_it() -> None:
    application = web.Application()
    application.router.add_get("/v1/models", models)
    async with TestServer(application) as server:
        url = str(server.make_url("")).rstrip("/")
        assert await served_by(url, "") == "first"
        assert await served_by(url, "second") == "second"
        with pytest.raises(ConfigError, match=r"served_name = 'third': the vLLM at .* serves first, second"):
            await served_by(url, "third")


def test_no_server_there_ends_it_before_anything_starts(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    config = UpConfig(model="tiny-gqa", port=0, directory=str(tmp_path), vllm=VllmConfig(url=url))
    with pytest.raises(ConfigError, match=rf"vllm.url = '{url}': no vLLM answers there"):
        up(config)
    assert not list(tmp_path.glob("*.log"))
