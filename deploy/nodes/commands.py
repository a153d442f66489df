"""The commands.

Invariant: each says what the server's state is afterwards.
"""

from typing import Any
from urllib.parse import quote

from rich.console import Console
from rich.table import Table

from deploy.nodes.client import WITHIN_S, call
from deploy.nodes.config import AddConfig, NamedConfig, NodesConfig, RemoveConfig

__all__ = ["add", "drain", "remove", "resume", "show"]

COLUMNS = ("kind", "name", "state", "in flight", "slots", "failures", "last error")


def show(config: NodesConfig) -> None:
    """Print all servers: a table on a terminal, else a line for each, its columns apart by tabs."""
    rows = []
    for each in call(config, "GET", "/admin/nodes")["nodes"]:
        slots = "" if each["slots"] is None else str(each["slots"])
        numbers = (str(each["in_flight"]), slots, str(each["failures"]))
        rows.append((each["kind"], each["name"], each["state"], *numbers, each["last_error"]))
    console = Console()
    if not console.is_terminal:
        for row in (COLUMNS, *rows):
            print("\t".join(" ".join(cell.split()) for cell in row))
        return
    table = Table()
    for column in COLUMNS:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def add(config: AddConfig) -> None:
    """Take a server into service."""
    fields = ("kind", "url", "prefill_url", "ctrl_host", "ctrl_port")
    given = {name: value for name in fields if (value := getattr(config, name)) is not None}
    _say("added", call(config, "POST", "/admin/nodes", given))


def drain(config: NamedConfig) -> None:
    """Give a server no new requests."""
    _say("drained", call(config, "POST", _path(config, "/drain")))


def resume(config: NamedConfig) -> None:
    """Give a server requests again."""
    _say("resumed", call(config, "POST", _path(config, "/resume")))


def remove(config: RemoveConfig) -> None:
    """Drain a server, wait for its requests, and have the router forget it."""
    path = _path(config, "", within_s=f"{config.within_s:g}")
    _say("removed", call(config, "DELETE", path, within_s=config.within_s + WITHIN_S), gone=True)


def _path(config: NamedConfig, action: str, **query: str) -> str:
    name = config.name.rstrip("/").partition("://")[2] or config.name
    if config.kind is not None:
        query["kind"] = config.kind
    text = "&".join(f"{key}={quote(value)}" for key, value in query.items())
    return f"/admin/nodes/{quote(name, safe='')}{action}" + (f"?{text}" if text else "")


def _say(what: str, entry: dict[str, Any], gone: bool = False) -> None:
    state = "" if gone else f": {entry['state']}, {entry['in_flight']} in flight"
    Console(highlight=False, soft_wrap=True).print(f"{what} {entry['kind']} {entry['name']}{state}", markup=False)
