"""The two legs of a native pair: vLLM's standard exchange over NixlConnector.

The prefill server is asked for one token with ``do_remote_decode`` and answers with the ``kv_transfer_params`` under
which the decode server fetches the state (as vLLM's own example proxies do it).

Invariant: the legs are one transaction. The prefill server holds a request's blocks until a decode server has fetched
them or has said that it will not: one that refuses the request says so, and so does one whose client leaves. What no
decode server was asked for yet is fetched and dropped. Where none can be reached, vLLM's own lease
(``kv_lease_duration``, 30 s) frees the blocks.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

import aiohttp
import msgspec

from router.body import Body
from router.config import Timeouts
from router.errors import ApiError, PeerBroken, PeerTimeout
from router.headers import json_headers
from router.native.server import Server
from router.native.upstream import Upstream

__all__ = ["Exchange", "exchanged"]

_LOG = logging.getLogger("router")
PATHS = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/messages"})
# Several prompts or replies share one state, or what they ask for is made while the prompt is computed: the decode
# server then computes the prompt itself.
WHOLE = {"n": (1,), "best_of": (1,), "echo": (False,), "prompt_logprobs": (), "use_beam_search": (False,)}
PREFILL = {
    "kv_transfer_params": {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        **dict.fromkeys(("remote_engine_id", "remote_block_ids", "remote_host", "remote_port")),
    },
    "stream": False,
    "max_tokens": 1,
}
NOT_FOR_PREFILL = ("stream_options", "min_tokens", "min_completion_tokens")


class _Params(msgspec.Struct, frozen=True):
    kv_transfer_params: dict[str, object] | None = None


def exchanged(path: str, body: Body | None) -> bool:
    """Whether a request's state can go from a prefill to a decode server."""
    if path not in PATHS or body is None or body.fields is None:
        return False
    if any(body.get(name) not in (None, *neutral) for name, neutral in WHOLE.items()):
        return False
    prompt = body.get("prompt") if path == "/v1/completions" else None
    return not isinstance(prompt, list) or all(isinstance(token, int) for token in prompt)


class Exchange:
    """Runs prefill legs, and frees what they left."""

    def __init__(self, upstream: Upstream, timeouts: Timeouts) -> None:
        self._upstream = upstream
        self._timeouts = timeouts

    async def prefill(
        self, server: Server, path: str, headers: Mapping[str, str], body: Body
    ) -> dict[str, object] | aiohttp.ClientResponse | None:
        """The parameters for the decode leg; None: the server keeps no state; or its reply, when it refuses.

        Raises:
            Unreached, PeerBroken, PeerTimeout: it cannot be reached, breaks off or makes no sense.
        """
        assert server.prefill_url is not None and server.prefill_health is not None
        order = {name: value for name, value in (body.fields or {}).items() if name not in NOT_FOR_PREFILL}
        order |= {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in PREFILL.items()}
        if "max_completion_tokens" in order:
            order["max_completion_tokens"] = msgspec.Raw(b"1")
        data, sent = msgspec.json.encode(order), json_headers(headers)
        try:
            async with asyncio.timeout(self._timeouts.prefill):
                reply = await self._upstream.ask("POST", server.prefill_url, path, sent, data, server.prefill_health)
                if reply.status != 200:
                    return reply
                async with reply:
                    return msgspec.json.decode(await reply.read(), type=_Params).kv_transfer_params
        except TimeoutError:
            raise PeerTimeout(
                f"native prefill server {server.prefill_url} did not answer within {self._timeouts.prefill:g} s"
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            server.prefill_health.failed(str(error))
            raise PeerBroken(f"native prefill server {server.prefill_url} broke off: {error}") from error
        except msgspec.MsgspecError as error:
            raise PeerBroken(
                f"native prefill server {server.prefill_url} sent a reply that is no good: {error}"
            ) from error

    async def free(
        self, server: Server, path: str, headers: Mapping[str, str], body: Body, params: dict[str, object]
    ) -> None:
        """Have the decode server fetch a state that nobody wants any more, bounded."""
        order = body.changed({**PREFILL, "kv_transfer_params": params})
        with suppress(TimeoutError, ApiError, aiohttp.ClientError, OSError):
            async with asyncio.timeout(self._timeouts.handoff):
                sent = json_headers(headers)
                reply = await self._upstream.ask("POST", server.url, path, sent, order.raw, server.health)
                async with reply:
                    await reply.read()
                return
        _LOG.warning("native prefill server %s keeps a state until its lease ends", server.prefill_url)
