"""A vLLM server as one that was started without `--enable-scale-out`: those endpoints refuse, all others are its own.

Invariant: it refuses in vLLM's words (vllm/entrypoints/scale_out), as `router.fake.prefill` has them.
"""

import aiohttp
from aiohttp import web

from router.fake.prefill import DISABLED


def closed(vllm: str, session: aiohttp.ClientSession) -> web.Application:
    """The application in front of the server at `vllm`."""

    async def refuse(_: web.Request) -> web.Response:
        error = {"message": DISABLED, "type": "PermissionDeniedError", "param": None, "code": 403}
        return web.json_response({"error": error}, status=403)

    async def pass_on(request: web.Request) -> web.Response:
        names = ("content-type", "x-request-id")
        headers = {name: request.headers[name] for name in names if name in request.headers}
        data = await request.read()
        async with session.request(request.method, vllm + request.path_qs, headers=headers, data=data) as reply:
            return web.Response(body=await reply.read(), status=reply.status, content_type=reply.content_type)

    app = web.Application()
    app.router.add_post("/v1/chat/completions/render", refuse)
    app.router.add_post("/v1/completions/render", refuse)
    app.router.add_post("/inference/v1/generate", refuse)
    app.router.add_route("*", "/{rest:.*}", pass_on)
    return app
