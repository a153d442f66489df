"""A stand-in for the whole stack behind one port: streams made-up tokens for both tiers, with faults on cue."""

import argparse
import asyncio
import json
import os

from aiohttp import web

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--fault", default="", help="differ, fallback, cut, error, refuse or die")
options = parser.parse_args()


async def health(_: web.Request) -> web.Response:
    return web.Response()


async def chat(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    tier = request.headers["x-traffic-class"]
    faulty = options.fault if tier == "speed" and len(body["messages"]) > 2 else ""
    if faulty == "die":
        os._exit(7)
    if faulty == "refuse":
        return web.json_response({"error": {"message": "no slot is free", "code": 429}}, status=429)
    headers = {"content-type": "text/event-stream", "x-speedtier-class": tier}
    if faulty == "fallback":
        headers |= {"x-speedtier-class": "native", "x-speedtier-fallback": "logprobs"}
    reply = web.StreamResponse(headers=headers)
    await reply.prepare(request)
    for place in range(body["max_tokens"]):
        last = place == body["max_tokens"] - 1
        token = 7 if faulty == "differ" and place == 3 else place
        choice = {
            "delta": {"content": f" w{token}\x1b"},
            "token_ids": [token],
            "finish_reason": "length" if last else None,
        }
        event = {"error": {"message": "state lost"}} if faulty == "error" and place == 2 else {"choices": [choice]}
        await reply.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        if faulty == "cut" and place == 2:
            return reply
        await asyncio.sleep(0.001)
    await reply.write(b"data: [DONE]\n\n")
    return reply


application = web.Application()
application.add_routes([web.get("/health", health), web.post("/v1/chat/completions", chat)])
web.run_app(application, host="127.0.0.1", port=options.port, print=None)
