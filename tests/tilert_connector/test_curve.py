"""The control plane under CURVE: who gets in, and what those hear who do not."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from zmq.auth import create_certificates

from speedtier.errors import ConfigError
from tests.tilert_connector.pair import pair
from tilert_connector import ReceiverConfig
from tilert_connector.config import ConnectorConfig
from tilert_connector.curve import read_client, read_server

pytestmark = pytest.mark.contract("H9")


class Keys:
    """Certificates of a decode node, of a prefill node that it lets in and of one that it does not know."""

    def __init__(self, directory: Path) -> None:
        self.clients = directory / "clients"
        self.clients.mkdir()
        for name in ("decode", "known", "stranger"):
            create_certificates(directory, name)
            (directory / f"{name}.key_secret").chmod(0o600)
        os.replace(directory / "known.key", self.clients / "known.key")
        self.directory = directory

    def server(self) -> dict[str, str]:
        return {"curve_key_file": self.secret("decode"), "curve_clients": str(self.clients)}

    def client(self, name: str, server: str = "decode") -> dict[str, str]:
        return {"curve_key_file": self.secret(name), "curve_server": str(self.directory / f"{server}.key")}

    def secret(self, name: str) -> str:
        return str(self.directory / f"{name}.key_secret")


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


async def test_who_is_let_in_hands_over_byte_for_byte(keys: Keys) -> None:
    receiver, sender = ReceiverConfig(**keys.server()), ConnectorConfig(**keys.client("known"))  # type: ignore[arg-type]
    async with pair(receiver=receiver, sender=sender) as both:
        both.prefill("a", 40, [1, 2, 3])
        held = await both.receiver.committed("h-a", 10)
        assert held.tokens == 40 and bool(both.slot(0).any())
        await both.reported("a")


Settings = Callable[[Keys], dict[str, str]]


@pytest.mark.parametrize(
    ("server", "client", "reason"),
    [
        (Keys.server, lambda keys: keys.client("stranger"), "does not let this prefill node in"),
        (Keys.server, lambda keys: keys.client("known", "stranger"), "curve_server is not its public key"),
        (Keys.server, lambda keys: {}, "it may want CURVE"),
        (lambda keys: {}, lambda keys: keys.client("known"), "it does not use CURVE"),
    ],
)
async def test_who_is_not_hears_of_curve_at_once(keys: Keys, server: Settings, client: Settings, reason: str) -> None:
    receiver, sender = ReceiverConfig(**server(keys)), ConnectorConfig(**client(keys))  # type: ignore[arg-type]
    async with pair(receiver=receiver, sender=sender) as both:
        began = time.monotonic()
        both.prefill("a", 40, [1, 2, 3])
        await both.reported("a")
        assert time.monotonic() - began < sender.connect_s
        (record,) = both.senders[0].take_records()
        assert record.end == "failed" and reason in record.reason and record.sent == 0
        assert not both.slot(0).any()


async def test_a_decode_node_without_a_key_here_is_not_spoken_to(keys: Keys) -> None:
    servers = keys.directory / "servers"
    servers.mkdir()
    os.replace(keys.directory / "decode.key", servers / "elsewhere_1.key")
    settings = {"curve_key_file": keys.secret("known"), "curve_server": str(servers)}
    async with pair(receiver=ReceiverConfig(**keys.server()), sender=ConnectorConfig(**settings)) as both:  # type: ignore[arg-type]
        both.prefill("a", 40, [1, 2, 3])
        await both.reported("a")
        (record,) = both.senders[0].take_records()
        assert "127.0.0.1.key" in record.reason
        os.replace(servers / "elsewhere_1.key", servers / "127.0.0.1.key")
    async with pair(receiver=ReceiverConfig(**keys.server()), sender=ConnectorConfig(**settings)) as both:  # type: ignore[arg-type]
        both.prefill("a", 40, [1, 2, 3])
        assert (await both.receiver.committed("h-a", 10)).tokens == 40


def test_settings_that_cannot_work_stop_the_start(keys: Keys) -> None:
    decode, public = keys.secret("decode"), str(keys.directory / "decode.key")
    for read, first, second, message in (
        (read_server, "", str(keys.clients), "curve_clients: .* without curve_key_file"),
        (read_server, decode, "", "curve_clients: '' is no directory"),
        (read_server, public, str(keys.clients), "curve_key_file: .* mode 0644|holds no secret key"),
        (read_client, "", public, "curve_server: .* without curve_key_file"),
        (read_client, decode, "", "curve_server: '' is no public key"),
        (read_client, decode, str(keys.directory / "absent.key"), "curve_server: .* no CURVE certificate"),
        (read_client, str(keys.directory / "absent"), public, "curve_key_file: .* cannot be read"),
    ):
        with pytest.raises(ConfigError, match=message):
            read(first, second)
    assert read_server("", "") is None and read_client("", "") is None
    Path(decode).chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_server(decode, str(keys.clients))
