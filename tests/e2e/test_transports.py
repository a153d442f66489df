"""One prefill server and a decode node for each transport: whichever way the state goes, the tokens are vLLM's own."""

import importlib.util
from pathlib import Path

import aiohttp
import msgspec
import pytest

from deploy.checkpoints import ensure
from deploy.processes import Part, Stack, free_ports
from deploy.up import VllmConfig, vllm_part
from deploy.up.nodes import decode_part, router_part
from persistent_engine.models import read_facts
from tests.e2e.serving import QUIET, Client, limited, prompts
from tilert_connector.transport import TRANSPORTS, EngineMissing
from tilert_connector.transport.mooncake_engine import MooncakeEngine

COUNT = 30
TOKENS = 16


def installed() -> list[str]:
    """The transports whose libraries are here."""
    names = ["tcp", "shm"]
    if importlib.util.find_spec("nixl") is not None:
        names.append("nixl")
    try:
        MooncakeEngine("127.0.0.1").close()
        names.append("mooncake")
    except EngineMissing as error:
        print(error)
    return names


def nodes(directory: Path, model: Path, transport: str, prefill: str) -> tuple[list[Part], str, str]:
    """A decode node and a router before it; the URLs of both."""
    port, front = free_ports(2)
    settings = {"model": str(model), "dtype": "float32", "host": "127.0.0.1", "port": port, "workers": 1}
    decode = decode_part(directory / transport, settings, {"slots": 2, "receiver": {"transport": transport}})
    url, router = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{front}"
    settings = {
        "host": "127.0.0.1",
        "port": front,
        "prefill": [prefill],
        "native": [prefill],
        "decode": [{"url": url}],
        "tokenizer": str(model),
    }
    parts = [decode, router_part(directory / transport, settings, {})]
    return [msgspec.structs.replace(part, name=f"{part.name}-{transport}") for part in parts], url, router


@pytest.mark.contract("H2", "H8")
@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_each_transport_gives_the_same_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCX_NET_DEVICES", "lo")
    name, names = "tiny-gqa", installed()
    model = ensure(name)
    (port,) = free_ports(1)
    prefill = f"http://127.0.0.1:{port}"
    made = {transport: nodes(tmp_path, model, transport, prefill) for transport in names}
    parts = [vllm_part(VllmConfig(), model, name, "float32", port), *(part for one in made.values() for part in one[0])]
    asked = prompts(COUNT, read_facts(model).vocabulary, 7)
    async with (
        Stack(tmp_path, QUIET) as running,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as http,
    ):
        await running.start(parts)
        judge = Client(http, prefill)
        expected = [await judge.complete(name, prompt, max_tokens=TOKENS) for prompt in asked]
        for transport, (_, url, front) in made.items():
            router = Client(http, front)
            calls = [router.complete(name, prompt, "speed", max_tokens=TOKENS) for prompt in asked]
            answers = await limited(calls, 4)
            for prompt, ours, theirs in zip(asked, answers, expected, strict=True):
                same = ours["choices"][0]["token_ids"] == theirs["choices"][0]["token_ids"]
                assert same, f"{transport}: prompt of {len(prompt)} tokens"
            async with http.get(url + "/decode_status") as reply:
                status = await reply.json()
            assert status["ended"]["failed"] == 0
            log = (tmp_path / f"decode-{transport}.log").read_text()
            assert f"transport {transport}: self-test moved" in log
    assert set(names) <= set(TRANSPORTS)
