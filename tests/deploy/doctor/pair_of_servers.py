"""A decode node with a real receiver and no model, and a server that looks like vLLM with the connector."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

from deploy.checkpoints import ensure
from deploy.doctor import Check, DoctorConfig, examine
from deploy.doctor.pattern import Pattern
from persistent_engine.models import read_facts
from persistent_engine.runtime import FakeEngine
from persistent_engine.server import DecodeConfig, DecodeNode, serving
from tilert_connector import Receiver, ReceiverConfig
from tilert_connector.authority import check_claim
from tilert_connector.claim import read_claim
from tilert_connector.config import ConnectorConfig
from tilert_connector.errors import ClaimError, TicketError
from tilert_connector.layout import Fingerprint, KvLayout
from tilert_connector.ticket import read_keys
from tilert_connector.transport import allocate_slots

ROOM = 64
DISABLED = b'{"error": {"message": "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out"}}'


def mark_of(**changes: Any) -> Fingerprint:
    blank = {name: "x" for name in Fingerprint.__struct_fields__}
    return Fingerprint(**{**blank, "protocol": 1, "block_size": 1, **changes})  # type: ignore[arg-type]


def node_of(config: ReceiverConfig, slots: int) -> DecodeNode:
    facts = read_facts(ensure("tiny-gqa"))
    made = DecodeConfig(model="x", port=0, slots=slots, max_tokens=ROOM, receiver=config, block_size=32)
    node = DecodeNode(made, facts, None, FakeEngine(), mark_of())  # type: ignore[arg-type]
    memory = allocate_slots("tcp", slots, node.layout.slot_bytes(ROOM))
    node.receiver = Receiver(config, node.layout, node.fingerprint, [slot.array.data for slot in memory], ROOM)
    return node


@dataclass
class LikeVllm:
    """vLLM's answers (0.32), and the connector's deeds by its own code. connector: None where it is not loaded."""

    layout: KvLayout
    mark: Fingerprint
    connector: ConnectorConfig | None = field(default_factory=lambda: ConnectorConfig(connect_s=2.0))
    version: str = "0.32.0"
    scale_out: bool = True
    tasks: set["asyncio.Task[Any]"] = field(default_factory=set)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_get("/version", self._version)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/inference/v1/generate", self._generate)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await asyncio.gather(*self.tasks)
            await runner.cleanup()

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": self.version})

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m"}]})

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(text="vllm:tilert_handoffs_total 0.0\n" if self.connector else "")

    async def _generate(self, request: web.Request) -> web.Response:
        if not self.scale_out:
            return web.Response(status=403, body=DISABLED)
        body = await request.json()
        if "token_ids" not in body:
            return web.Response(status=400, body=b"{}")
        told = self._hand_over(body) if self.connector else None
        return web.json_response({"choices": [{"token_ids": [7]}], "kv_transfer_params": told})

    def _hand_over(self, body: dict[str, Any]) -> dict[str, Any] | None:
        assert self.connector is not None
        tokens = len(body["token_ids"])
        try:
            claim = read_claim(body["kv_transfer_params"])
            assert claim is not None
            check_claim(read_keys(self.connector.ticket_key_file), claim, tokens)
        except (ClaimError, TicketError) as error:
            return {"tilert_refused": str(error)}
        sending = Pattern(self.layout, self.mark, tokens).send(self.connector, claim)
        task = asyncio.get_running_loop().create_task(sending)
        self.tasks.add(task)
        return None


class Both:
    """A pair; change `vllm` before `examined`."""

    def __init__(self, node: DecodeNode, decode: str) -> None:
        self.node, self.decode = node, decode
        self.vllm = LikeVllm(node.layout, node.fingerprint)

    async def examined(self, **changes: Any) -> dict[str, Check]:
        async with self.vllm.serving() as prefill:
            asked = {"prefill": prefill, "decode": self.decode, "mib": 1, "timeout_s": 8.0, **changes}
            return {check.name: check for check in await examine(msgspec.convert(asked, DoctorConfig))}


@contextlib.asynccontextmanager
async def both(slots: int = 1, **receiver: Any) -> AsyncIterator[Both]:
    node = node_of(ReceiverConfig(**receiver), slots)
    async with serving(node) as port:
        yield Both(node, f"http://127.0.0.1:{port}")
