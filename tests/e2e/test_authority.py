"""Tickets and CURVE on a real pair behind the router, with the connector loaded alone; what the doctor and both
sides' metrics say of it."""

import asyncio
import json
import re
import socket
import urllib.request
from pathlib import Path

import aiohttp
import msgspec
import pytest

from deploy.checkpoints import ensure
from deploy.doctor import DoctorConfig, examine
from deploy.keys import KeysConfig, keys
from persistent_engine.server import DecodeConfig, serving
from persistent_engine.server.node import open_node
from router import DecodeNodeConfig, RouterConfig, running
from tests.tilert_connector.vllm_server import VllmServer, vllm_server
from tilert_connector import ReceiverConfig

pytestmark = [pytest.mark.vllm, pytest.mark.slow]
FLAGS = ("--max-model-len", "1024", "--enable-scale-out", "--compilation-config")
ROTATE_IN_TORCH = json.dumps({"custom_ops": ["all", "-rotary_embedding"]})


def alone(**extra: str) -> dict[str, object]:
    """Our connector without MultiConnector around it."""
    return {
        "kv_connector": "TileRTConnector",
        "kv_connector_module_path": "tilert_connector.connector",
        "kv_role": "kv_producer",
        "kv_connector_extra_config": extra,
    }


def metrics(url: str) -> dict[str, float]:
    """name{labels} -> value; labels that vLLM gives to all of its own are cut away."""
    with urllib.request.urlopen(url + "/metrics", timeout=30) as reply:
        lines = [line for line in reply.read().decode().splitlines() if line and not line.startswith("#")]
    pairs = (line.rpartition(" ") for line in lines)
    plain = (
        (re.sub(r',?(engine="0"|model_name="m"),?', "", name).removesuffix("{}"), value) for name, _, value in pairs
    )
    return {name: float(value) for name, value in plain}


def strangers(server: VllmServer) -> None:
    """A client of vLLM points it at a port of its own: nobody calls."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(1.0)
        port = listener.getsockname()[1]
        told = {"tilert_host": "127.0.0.1", "tilert_ctrl_port": port, "tilert_handoff": "mine", "tilert_ticket": "x.y"}
        server.complete([5, 6, 7], told)
        with pytest.raises(TimeoutError):
            listener.accept()


@pytest.mark.contract("H1", "H9")
async def test_a_pair_that_trusts_its_router_alone(tmp_path: Path) -> None:
    model, place = ensure("tiny-mla"), tmp_path / "keys"
    keys(KeysConfig(directory=str(place), decode=("127.0.0.1",), prefill=("p", "doctor")))
    ticket, curve = str(place / "ticket.key"), str(place / "decode" / "127.0.0.1.key")
    ours = alone(
        ticket_key_file=ticket,
        curve_key_file=str(place / "prefill" / "p.key_secret"),
        curve_server=str(place / "decode"),
    )
    receiver = ReceiverConfig(
        ticket_key_file=ticket,
        curve_key_file=str(place / "decode" / "127.0.0.1.key_secret"),
        curve_clients=str(place / "prefill"),
    )
    config = DecodeConfig(model=str(model), port=0, max_tokens=512, dtype="float32", receiver=receiver)
    log = tmp_path / "log"
    with vllm_server(model, log, *FLAGS, ROTATE_IN_TORCH, connectors=ours) as server:
        node = await asyncio.to_thread(open_node, config)
        async with serving(node) as port:
            decode = f"http://127.0.0.1:{port}"
            asked = DoctorConfig(
                prefill=server.url,
                decode=decode,
                mib=1,
                ticket_key_file=ticket,
                curve_key_file=str(place / "prefill" / "doctor.key_secret"),
                curve_server=curve,
            )
            checks = await examine(asked)
            assert [check.state for check in checks] == ["ok"] * 7 + ["skipped"] + ["ok"] * 2, checks
            await asyncio.to_thread(strangers, server)
            await through_the_router(server, decode, ticket, str(model))
            told = await asyncio.to_thread(metrics, decode)
    assert told['speedtier_decode_handoffs_total{end="committed"}'] == 2
    assert told['speedtier_decode_handoffs_total{end="cancelled"}'] == 1  # the doctor's pattern
    assert told['speedtier_decode_commit_seconds_bucket{le="+Inf"}'] == 3
    text = log.read_text()
    assert text.count(" end=committed ") == 2 and "request" in text and "is not handed off: ticket: " in text


async def through_the_router(server: VllmServer, decode: str, ticket: str, model: str) -> None:
    """A marked request is answered as vLLM answers it, and counted on its side."""
    prompt = list(range(20, 120))
    expected = await asyncio.to_thread(server.complete, prompt, None, 8)
    settings = RouterConfig(
        port=0,
        prefill=(server.url,),
        native=(server.url,),
        decode=(DecodeNodeConfig(url=decode),),
        tokenizer=model,
        ticket_key_file=ticket,
    )
    async with running(settings) as url, aiohttp.ClientSession() as http:
        body = {"model": "m", "prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        headers = {"x-traffic-class": "speed", "content-type": "application/json"}
        data = msgspec.json.encode(body | {"return_token_ids": True})
        async with http.post(url + "/v1/completions", data=data, headers=headers) as reply:
            answer = await reply.json()
            assert reply.status == 200, answer
    assert answer["choices"][0]["token_ids"] == expected
    told = await asyncio.to_thread(metrics, server.url)
    assert told['vllm:tilert_handoffs_total{end="committed"}'] == 2
    assert told['vllm:tilert_handoffs_total{end="refused"}'] == 1
    assert told["vllm:tilert_commit_seconds_count"] == 2
    assert 0 < told["vllm:tilert_early_bytes_total"] <= told["vllm:tilert_sent_bytes_total"]
