"""`speedtier doctor`: checks a running pair, from what each says of itself to one real handoff.

Invariant: traffic is not disturbed: a slot is used only when one is free and nobody waits, and given back at once.
"""

import asyncio
import sys

import aiohttp
import msgspec
from rich.console import Console
from rich.table import Table

from deploy.doctor.check import Check, failed, skipped
from deploy.doctor.config import DoctorConfig
from deploy.doctor.decode import PATTERN, DecodeSide
from deploy.doctor.errors import NotWell, Unanswered
from deploy.doctor.prefill import HANDOFF, HELLO, PrefillSide
from deploy.doctor.server import Server
from tilert_connector.curve import read_client
from tilert_connector.ticket import read_keys

__all__ = ["doctor", "examine"]

STYLES = {"ok": "green", "failed": "bold red", "skipped": "yellow"}


async def examine(config: DoctorConfig) -> list[Check]:
    """All checks, in order. Raises ConfigError for keys that cannot be read."""
    keys = read_keys(config.ticket_key_file)
    read_client(config.curve_key_file, config.curve_server)
    authorization = {"authorization": f"Bearer {config.api_key}"} if config.api_key else {}
    async with aiohttp.ClientSession() as http:
        decode = DecodeSide(config, Server(http, config.decode, config.timeout_s, {}), keys)
        prefill = PrefillSide(config, Server(http, config.prefill, config.timeout_s, authorization))
        checks = [*await decode.reach(), *await prefill.reach()]
        bad = {check.name for check in checks if check.state == "failed"}
        able = not bad & {"prefill: reachable", "prefill: scale-out endpoints", "prefill: connector"}
        checks.append(await prefill.hello(decode) if able else skipped(HELLO, "the prefill server cannot be asked"))
        if "decode: reachable" in bad:
            return [*checks, *(skipped(name, "the decode node does not answer") for name in (PATTERN, HANDOFF))]
        checks.append(await _guarded(PATTERN, decode.pattern()))
        if able:
            checks.append(await _guarded(HANDOFF, prefill.handoff(decode)))
        else:
            checks.append(skipped(HANDOFF, "the prefill server cannot be asked"))
        return checks


async def _guarded(name: str, check: "asyncio.Future[Check] | object") -> Check:
    try:
        found: Check = await check  # type: ignore[misc]
        return found
    except Unanswered as error:
        return failed(name, str(error), "read its log")


def _show(checks: list[Check], console: Console) -> None:
    table = Table(show_edge=False, pad_edge=False)
    for heading in ("check", "", "found"):
        table.add_column(heading, overflow="fold")
    for check in checks:
        found = check.found if not check.way_out else f"{check.found}\n-> {check.way_out}"
        table.add_row(check.name, f"[{STYLES[check.state]}]{check.state}[/]", found)
    console.print(table)


def doctor(config: DoctorConfig) -> None:
    """Print what was found. Raises NotWell if anything failed."""
    checks = asyncio.run(examine(config))
    if config.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(checks)).decode() + "\n")
    else:
        _show(checks, Console(markup=True, highlight=False))
    bad = sum(check.state == "failed" for check in checks)
    if bad:
        raise NotWell(f"{bad} of {len(checks)} checks failed")
