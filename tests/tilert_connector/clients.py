"""HTTP clients that leave."""

import asyncio
import contextlib
from typing import Any

import aiohttp

from tests.tilert_connector.vllm_server import VllmServer


async def leave(
    server: VllmServer, prompt: list[int], params: dict[str, Any] | None, after: float, max_tokens: int = 1
) -> bool:
    """Ask, and close the connection after so many seconds. False: the answer came before."""
    body: dict[str, Any] = {"model": "m", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
    body |= {"ignore_eos": True, "kv_transfer_params": params}
    async with aiohttp.ClientSession() as http:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(after):
                async with http.post(server.url + "/v1/completions", json=body) as reply:
                    await reply.read()
                return False
    return True
