"""Makes ticket keys and CURVE certificates, and says which goes where.

Invariant: a secret is never readable for others, not even while it is written, and none is ever overwritten.
"""

import os
import secrets
from pathlib import Path

import zmq
import zmq.auth
from rich.console import Console

from deploy.keys.api import api_keys
from deploy.keys.config import KeysConfig
from speedtier.errors import ConfigError

__all__ = ["keys"]

TICKET, ADMIN = "ticket.key", "admin.key"


def keys(config: KeysConfig) -> None:
    """Make what is missing; with `api`, only those keys, which are shown and not written. Raises ConfigError if the
    directory cannot be written."""
    console = Console(highlight=False, soft_wrap=True)
    if config.api:
        api_keys(config.api, console)
        return
    root = Path(config.directory)
    before = os.umask(0o077)
    try:
        root.mkdir(parents=True, exist_ok=True)
        _key(root / TICKET, console)
        if config.admin:
            _key(root / ADMIN, console)
        for kind, names in (("decode", config.decode), ("prefill", config.prefill)):
            for name in names:
                _certificate(root / kind, name, console)
    except OSError as error:
        raise ConfigError(f"directory = {config.directory!r}: {error}") from error
    finally:
        os.umask(before)
    _explain(config, root, console)


def _key(file: Path, console: Console) -> None:
    if file.exists():
        console.print(f"{file}: there already, kept")
        return
    file.write_text(f"{secrets.token_urlsafe(32)}\n")
    console.print(f"{file}: made")


def _certificate(place: Path, name: str, console: Console) -> None:
    secret = place / f"{name}.key_secret"
    if secret.exists():
        console.print(f"{secret}: there already, kept")
        return
    if not zmq.has("curve"):
        raise ConfigError("this pyzmq was built without CURVE; install a wheel of pyzmq")
    place.mkdir(exist_ok=True)
    zmq.auth.create_certificates(place, name)
    (place / f"{name}.key").chmod(0o644)
    console.print(f"{secret}: made, and its public {name}.key")


def _explain(config: KeysConfig, root: Path, console: Console) -> None:
    lines = [
        f"{root / TICKET} goes to the router (ticket_key_file), to every prefill server (ticket_key_file in",
        "kv_connector_extra_config) and to every decode node (receiver.ticket_key_file). To change it, add a new key",
        "as its last line everywhere, then make that the first line everywhere, then remove the old one.",
    ]
    if config.admin:
        lines.append(
            f"{root / ADMIN} goes to the router (admin_key_file) and to who runs `speedtier nodes` (--key-file)."
        )
    if config.decode or config.prefill:
        lines += [
            f"Each decode node: its own secret {root}/decode/NAME.key_secret (receiver.curve_key_file) and a directory",
            f"with the public {root}/prefill/*.key (receiver.curve_clients).",
            f"Each prefill server: its own secret {root}/prefill/NAME.key_secret (curve_key_file) and a directory with",
            f"the public {root}/decode/*.key (curve_server).",
            "No *.key_secret belongs on any other machine.",
        ]
    console.print("\n".join(["", *lines]))
