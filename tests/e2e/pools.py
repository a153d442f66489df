"""A latency tier of two decode nodes and a native pair, fed by one and the same prefill server."""

import asyncio
import copy
import importlib.util
import json
from pathlib import Path
from typing import Any

import msgspec

from deploy.checkpoints import ensure
from deploy.processes import Part, free_ports
from deploy.up import VllmConfig, vllm_part
from deploy.up.nodes import decode_part, router_part
from deploy.up.vllm import KV_TRANSFER
from tests.e2e.serving import Client

NIXL = importlib.util.find_spec("nixl") is not None
LEASE_S = 12
MARK: dict[str, Any] = {"do_remote_decode": True, "do_remote_prefill": False}
MARK |= dict.fromkeys(("remote_engine_id", "remote_block_ids", "remote_host", "remote_port"))


class Pools:
    """The parts, and where each answers. The native decode server has nothing of ours, so it is the judge, too; it
    keeps no prefixes, so that each native request really fetches its state. Without NIXL it is a plain vLLM."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name, self.model = name, ensure(name)
        prefill, native, one, two, router, first_side, second_side = free_ports(7)
        self.prefill_url, self.native_url, self.router_url, *self.decode_urls = (
            f"http://127.0.0.1:{port}" for port in (prefill, native, router, one, two)
        )
        self.parts = [
            self._prefill(prefill, first_side),
            self._native(native, second_side),
            *(self._decode(directory, number, port) for number, port in enumerate((one, two))),
            self._router(directory, router),
        ]

    def _prefill(self, port: int, side: int) -> Part:
        part = vllm_part(VllmConfig(), self.model, self.name, "float32", port)
        return with_nixl(part, side, beside=True) if NIXL else part

    def _native(self, port: int, side: int) -> Part:
        config = VllmConfig(arguments=("--no-enable-prefix-caching",))
        part = vllm_part(config, self.model, self.name, "float32", port, connector=False)
        part = msgspec.structs.replace(part, name="native")
        return with_nixl(part, side, beside=False) if NIXL else part

    def _decode(self, directory: Path, number: int, port: int) -> Part:
        settings = {"model": str(self.model), "dtype": "float32", "host": "127.0.0.1", "port": port, "workers": 1}
        part = decode_part(directory / f"decode{number}", settings, {"slots": 2})
        return msgspec.structs.replace(part, name=f"decode{number}")

    def _router(self, directory: Path, port: int) -> Part:
        settings = {
            "host": "127.0.0.1",
            "port": port,
            "prefill": [self.prefill_url],
            "native": [] if NIXL else [self.prefill_url],
            "native_pairs": [{"prefill": self.prefill_url, "decode": self.native_url}] if NIXL else [],
            "decode": [{"url": url} for url in self.decode_urls],
            "tokenizer": str(self.model),
        }
        return router_part(directory, settings, {})


def with_nixl(part: Part, side: int, beside: bool) -> Part:
    """The part with NixlConnector: beside ours as a producer, or alone as a consumer."""
    nixl: dict[str, Any] = {"kv_connector": "NixlConnector", "kv_role": "kv_consumer", "kv_buffer_device": "cpu"}
    nixl["kv_connector_extra_config"] = {"kv_lease_duration": LEASE_S}
    command = list(part.command)
    if beside:
        nixl["kv_role"] = "kv_producer"
        both = copy.deepcopy(KV_TRANSFER)
        both["kv_connector_extra_config"]["connectors"].insert(0, nixl)  # type: ignore[index]
        command[command.index("--kv-transfer-config") + 1] = json.dumps(both | {"kv_buffer_device": "cpu"})
    else:
        command += ["--kv-transfer-config", json.dumps(nixl)]
    environment = {"VLLM_NIXL_SIDE_CHANNEL_PORT": str(side), "UCX_NET_DEVICES": "lo"}
    return msgspec.structs.replace(part, command=tuple(command), environment=part.environment | environment)


async def native_exchange(prefill: Client, native: Client, name: str, prompt: list[int], tokens: int) -> list[int]:
    """vLLM's standard way: the prefill server's parameters are given to the decode server as they are."""
    first = await prefill.complete(name, prompt, max_tokens=1, kv_transfer_params=MARK)
    params = first["kv_transfer_params"]
    assert params["do_remote_prefill"] and not [key for key in params if key.startswith("tilert")]
    reply = await native.complete(name, prompt, max_tokens=tokens, kv_transfer_params=params)
    ids: list[int] = reply["choices"][0]["token_ids"]
    return ids


async def metric(client: Client, name: str) -> float:
    """Sum of a Prometheus metric over its labels."""
    async with client.http.get(client.url + "/metrics") as reply:
        lines = (await reply.text()).splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((name + "{", name + " ")))


async def freed(client: Client, name: str, within_s: float) -> None:
    """Wait until a server holds no block. It looks for news of its blocks only while it works, so it is given work."""
    async with asyncio.timeout(within_s):
        while await metric(client, "vllm:kv_cache_usage_perc"):
            await client.complete(name, [11, 12, 13], max_tokens=1)
            await asyncio.sleep(0.1)


async def settled(client: Client, decode_urls: list[str]) -> list[dict[str, Any]]:
    """The decode nodes' status once nothing is held on them or on the prefill server."""
    async with asyncio.timeout(30):
        while True:
            status = []
            for url in decode_urls:
                async with client.http.get(url + "/decode_status") as reply:
                    status.append(await reply.json())
            busy = any(one["sessions"] or one["slots_held"] or one["open"] for one in status)
            if not busy and not await metric(client, "vllm:kv_cache_usage_perc"):
                return status
            await asyncio.sleep(0.1)
