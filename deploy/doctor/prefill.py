"""The checks of the vLLM server, and of the two servers together."""

from typing import Any

from deploy.doctor.check import Check, failed, ok, skipped
from deploy.doctor.config import DoctorConfig
from deploy.doctor.decode import DecodeSide
from deploy.doctor.errors import Unanswered
from deploy.doctor.server import Server
from deploy.doctor.witness import Witness
from tilert_connector.layout import difference
from tilert_connector.ticket import node_name

__all__ = ["PrefillSide"]

KNOWN_VLLM = "0.32."
PROMPT = list(range(1, 17))
METRIC = "vllm:tilert_handoffs"
HELLO = "prefill: fingerprint"
HANDOFF = "both: one token, handed over and decoded"


class PrefillSide:
    """Checks of one vLLM server."""

    def __init__(self, config: DoctorConfig, server: Server) -> None:
        self._config = config
        self._model = ""
        self.server = server

    async def reach(self) -> list[Check]:
        """Its HTTP, its version, its scale-out endpoints, the connector."""
        name = "prefill: reachable"
        try:
            version = str((await self.server.get("/version"))["version"])
            self._model = str((await self.server.get("/v1/models"))["data"][0]["id"])
        except Unanswered as error:
            return [failed(name, str(error), "start vLLM, or correct --prefill or --api-key")]
        except (KeyError, IndexError, TypeError) as error:
            return [failed(name, f"{self.server.url} is no vLLM server: {error!r}", "correct --prefill")]
        checks = [ok(name, f"{self.server.url}, model {self._model}")]
        if version.startswith(KNOWN_VLLM):
            checks.append(ok("prefill: version", f"vLLM {version}"))
        else:
            checks.append(failed("prefill: version", f"vLLM {version}", f"use vLLM {KNOWN_VLLM}x, whose hooks we know"))
        return [*checks, await self._scale_out(), await self._connector()]

    async def _scale_out(self) -> Check:
        name = "prefill: scale-out endpoints"
        try:
            await self.server.post("/inference/v1/generate", {})
        except Unanswered as error:
            if error.status in (400, 422):
                return ok(name, "/inference/v1/generate answers")
            return failed(name, str(error), "start vLLM with --enable-scale-out")
        return ok(name, "/inference/v1/generate answers")

    async def _connector(self) -> Check:
        name = "prefill: connector"
        try:
            text = await self.server.text("/metrics")
        except Unanswered as error:
            return skipped(name, str(error))
        if METRIC in text:
            return ok(name, f"loaded ({METRIC} is among its metrics)")
        return failed(name, f"no {METRIC} among its metrics", "start vLLM with TileRTConnector in --kv-transfer-config")

    async def hello(self, decode: DecodeSide) -> Check:
        """Point the server at ourselves, and compare what it says of its state with what the decode node has."""
        config, known = self._config, decode.known
        if config.curve_key_file:
            return skipped(HELLO, "the server speaks to known decode nodes only (CURVE); the last check shows it")
        witness = Witness(config.listen)
        witness.start()
        try:
            params = decode.params(len(PROMPT), config.listen, witness.port)
            refused = str((await self._generate(params)).get("tilert_refused") or "")
            if refused:
                return failed(HELLO, refused, _way_out(refused))
            mark = await witness.hello(min(5.0, config.timeout_s))
        except Unanswered as error:
            return failed(HELLO, str(error), "read vLLM's log")
        finally:
            await witness.close()
        if mark is None:
            found = f"it did not call {node_name(config.listen, witness.port)}"
            way = (
                "vLLM's log has the reason: add this machine to `networks` of the connector, name with --listen an "
                "address that it can reach, or, where it speaks CURVE, give --curve-key-file"
            )
            return failed(HELLO, found, way)
        if known is None:
            return skipped(HELLO, "nothing to compare with: the decode node does not answer")
        if (found_ := difference(known.fingerprint, mark)) is not None:
            field, ours, theirs = found_
            way = "serve the same checkpoint with the same --dtype, --block-size and revision on both"
            return failed(HELLO, f"{field} differs: decode node {ours!r}, prefill server {theirs!r}", way)
        return ok(HELLO, f"{mark.architecture}, weights {mark.weights[:8]}, {mark.kv_dtype}: as the decode node's")

    async def handoff(self, decode: DecodeSide) -> Check:
        """A real request: prefilled there, handed over, one more token decoded."""
        if busy := await decode.busy():
            return skipped(HANDOFF, busy)
        params = decode.params(len(PROMPT))
        order: dict[str, Any] = {"rid": params["tilert_handoff"], "max_tokens": 1, "sampling": {"temperature": 0}}
        try:
            told = await self._generate(params)
            if refused := str(told.get("tilert_refused") or ""):
                return failed(HANDOFF, refused, _way_out(refused))
            order |= {"first_token_id": told["token"], "timeout_s": self._config.timeout_s / 2}
            reply = await decode.server.post("/pd/decode", order)
        except Unanswered as error:
            return failed(HANDOFF, str(error), _way_out(str(error)))
        waited = reply["timing_ms"]["wait"]
        return ok(
            HANDOFF, f"tokens {told['token']} and {reply['token_ids'][0]}; the state was waited for {waited:.1f} ms"
        )

    async def _generate(self, params: dict[str, Any]) -> dict[str, Any]:
        """The token that the server chose, and what its connector says. Raises Unanswered."""
        body = {
            "model": self._model,
            "token_ids": PROMPT,
            "sampling_params": {"max_tokens": 1, "temperature": 0},
            "stream": False,
            "kv_transfer_params": params,
        }
        reply = await self.server.post("/inference/v1/generate", body)
        try:
            token = int(reply["choices"][0]["token_ids"][0])
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise Unanswered(f"{self.server.url} gave no token: {error!r}") from error
        return {**(reply.get("kv_transfer_params") or {}), "token": token}


def _way_out(reason: str) -> str:
    for word, way in (
        (
            "ticket",
            "give the same ticket_key_file to router, prefill servers and decode nodes, and --ticket-key-file here",
        ),
        ("networks", "add the decode node's network to `networks` of the connector"),
        ("CURVE", "make the prefill server's and the decode node's CURVE settings fit"),
        ("transport", "install on the prefill server what the decode node's transport needs"),
        ("fingerprint", "serve the same checkpoint with the same --dtype, --block-size and revision on both"),
        (
            "never offered",
            "see that the prefill server reaches the decode node's control port (--ctrl-host), and its log",
        ),
        ("was not committed", "read both logs for this handoff: it began and did not end"),
    ):
        if word in reason:
            return way
    return "read both logs for this handoff"
