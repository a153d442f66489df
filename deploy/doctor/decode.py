"""What a decode node says of itself, and the checks that need it alone."""

import secrets
import time
from typing import Any
from urllib.parse import urlsplit

import msgspec

from deploy.doctor.check import Check, failed, ok, skipped
from deploy.doctor.config import DoctorConfig
from deploy.doctor.errors import Unanswered
from deploy.doctor.pattern import SETTLE_S, Pattern
from deploy.doctor.server import Server
from speedtier import __version__
from tilert_connector.claim import Claim
from tilert_connector.config import ConnectorConfig
from tilert_connector.layout import Fingerprint, KvLayout
from tilert_connector.ticket import Ticket, node_name, sign

__all__ = ["Capabilities", "DecodeSide"]

PATTERN = "decode: test pattern"


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Of GET /capabilities, what is looked at here."""

    fingerprint: Fingerprint
    layout: KvLayout
    ctrl_port: int
    max_tokens: int
    slots: int
    transport: str
    instance: str = ""
    version: str = ""


class DecodeSide:
    """Checks of one decode node. keys: of tickets."""

    def __init__(self, config: DoctorConfig, server: Server, keys: tuple[bytes, ...]) -> None:
        self._config = config
        self._keys = keys
        self.server = server
        self.host = config.ctrl_host or urlsplit(config.decode).hostname or ""
        self.known: Capabilities | None = None

    async def reach(self) -> list[Check]:
        """Its HTTP, its engine, its version. `known` is set afterwards if it can be."""
        name, url = "decode: reachable", self.server.url
        try:
            self.known = msgspec.convert(await self.server.get("/capabilities"), Capabilities)
        except Unanswered as error:
            return [failed(name, str(error), "start it (`speedtier decode`), or correct --decode")]
        except msgspec.ValidationError as error:
            return [failed(name, f"{url}/capabilities: {error}", "point --decode at a decode node of this version")]
        known, checks = self.known, [ok(name, f"{url}, handoffs over {self.known.transport}, {self.known.slots} slots")]
        if known.version == __version__:
            checks.append(ok("decode: version", f"{known.version}, as here"))
        else:
            found = f"{known.version or 'unknown'}, here {__version__}"
            checks.append(failed("decode: version", found, "install the same version on all nodes"))
        try:
            await self.server.get("/health")
            checks.append(ok("decode: engine", "works"))
        except Unanswered as error:
            checks.append(failed("decode: engine", str(error), "read its log and restart it"))
        return checks

    def params(self, tokens: int, host: str = "", port: int = 0) -> dict[str, Any]:
        """`kv_transfer_params` that send state here, or to (host, port), under a new id; signed with keys if any."""
        handoff = f"doctor-{secrets.token_hex(8)}"
        host, port = host or self.host, port or (self.known.ctrl_port if self.known else 0)
        params: dict[str, Any] = {"tilert_host": host, "tilert_ctrl_port": port, "tilert_handoff": handoff}
        if self._keys:
            ticket = Ticket(
                node=node_name(host, port),
                instance=self.known.instance if self.known else "",
                handoff=handoff,
                tokens=tokens,
                expires=time.time() + 2 * self._config.timeout_s,
            )
            params["tilert_ticket"] = sign(self._keys, ticket)
        return params

    async def busy(self) -> str:
        """Why no slot may be used now; empty if one is free and nobody waits for it. Raises Unanswered."""
        status = await self.server.get("/decode_status")
        held, slots, waiting = len(status["slots_held"]), status["slots"], status["open"].get("waiting", 0)
        if held < slots and not waiting:
            return ""
        return f"{held} of {slots} slots are in use, {waiting} requests wait; nothing was tried, ask again later"

    async def pattern(self) -> Check:
        """Write a pattern as a prefill node would, and have it thrown away."""
        known, config = self.known, self._config
        assert known is not None, "reach comes first"
        if busy := await self.busy():
            return skipped(PATTERN, busy)
        tokens = max(1, min(known.max_tokens, (config.mib << 20) // known.layout.token_bytes))
        claim = msgspec.convert(self.params(tokens), Claim)
        settings = ConnectorConfig(
            networks=("0.0.0.0/0", "::/0"),
            handoff_s=config.timeout_s,
            connect_s=min(5.0, config.timeout_s),
            offer_s=min(3.0, config.timeout_s),
            curve_key_file=config.curve_key_file,
            curve_server=config.curve_server,
        )
        record = await Pattern(known.layout, known.fingerprint, tokens).send(settings, claim)
        if record.end != "committed":
            return failed(PATTERN, record.reason, _way_out(record.reason))
        try:
            await self.server.post("/pd/cancel", {"rid": claim.handoff})
        except Unanswered as error:
            return failed(PATTERN, f"committed, but not cancelled: {error}", "its slot is free after receiver.claim_s")
        seconds = max(record.after_s if record.whole_s > SETTLE_S else record.whole_s, 1e-9)
        rate = record.sent / seconds / 1e9
        return ok(
            PATTERN, f"{record.sent / 2**20:.1f} MiB over {record.transport} in {seconds * 1e3:.1f} ms, {rate:.2f} GB/s"
        )


def _way_out(reason: str) -> str:
    for word, way in (
        ("ticket", "give the router's keys with --ticket-key-file, and the same file to the decode node"),
        ("CURVE", "give --curve-key-file and --curve-server, and our public key to the decode node's curve_clients"),
        ("transport", "install on this machine what the transport needs, or choose another on the decode node"),
        ("resolve", "correct --ctrl-host"),
        ("unreachable", "open the decode node's control and data ports to the prefill servers (receiver.host)"),
        ("slot", "ask again when the decode node is less busy"),
    ):
        if word in reason:
            return way
    return "read the decode node's log for this handoff"
