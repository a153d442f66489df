"""Keys that `speedtier keys` makes are ones that every side takes."""

import re
import stat
import tomllib
from pathlib import Path

import pytest

from deploy.keys import KeysConfig, keys
from router import RouterConfig
from router.admin import AdminKey
from router.keys import Keys
from speedtier.config import from_mapping
from speedtier.errors import ConfigError
from tilert_connector.curve import read_client, read_server
from tilert_connector.ticket import read_keys


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_what_is_made_is_taken_and_no_secret_can_be_read_by_others(tmp_path: Path) -> None:
    root = tmp_path / "keys"
    keys(KeysConfig(directory=str(root), decode=("d1_8201", "d2"), prefill=("p1",)))
    (one,) = read_keys(str(root / "ticket.key"))
    assert len(one) >= 32
    secret = root / "prefill" / "p1.key_secret"
    server = read_server(str(root / "decode" / "d2.key_secret"), str(root / "prefill"))
    client = read_client(str(secret), str(root / "decode"))
    assert server is not None and client is not None
    assert set(client.servers) == {"d1_8201", "d2"} and client.servers["d2"] == server.public
    assert {mode(file) for file in root.rglob("*secret")} == {0o600} and mode(root / "ticket.key") == 0o600


def test_nothing_that_is_there_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = KeysConfig(directory=str(tmp_path), decode=("d",))
    keys(config)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*key*") if file.is_file()}
    keys(KeysConfig(directory=str(tmp_path), decode=("d", "e")))
    assert {file: file.read_bytes() for file in before} == before and (tmp_path / "decode" / "e.key").is_file()
    assert "there already, kept" in capsys.readouterr().out


def test_names_that_would_leave_the_directory_are_refused(tmp_path: Path) -> None:
    for name in ("../x", "a/b", ""):
        with pytest.raises(ConfigError, match="decode"):
            from_mapping({"directory": str(tmp_path), "decode": [name]}, KeysConfig, "command line")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="directory"):
        keys(KeysConfig(directory=str(tmp_path / "file")))


def test_an_api_key_is_shown_once_and_written_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys(KeysConfig(directory=str(tmp_path / "keys"), api=("alice", "bob")))
    shown = capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    made = dict(re.findall(r"^  (\w+)  (sk-\S+)$", shown, re.MULTILINE))
    settings = tomllib.loads(shown[shown.index("[[api_keys]]") :])
    known = Keys(from_mapping(settings, RouterConfig, "shown"))
    for name in ("alice", "bob"):
        owner = known.owner({"authorization": f"Bearer {made[name]}"})
        assert owner is not None and owner.name == name and len(made[name]) > 40
    with pytest.raises(ConfigError, match="its own name"):
        keys(KeysConfig(api=("alice", "alice")))


def test_the_admin_key_is_one_that_the_router_takes(tmp_path: Path) -> None:
    keys(KeysConfig(directory=str(tmp_path), admin=True))
    file = tmp_path / "admin.key"
    assert mode(file) == 0o600
    key = AdminKey(str(file))
    assert key.opens({"authorization": f"Bearer {file.read_text().strip()}"}) and not key.opens({})
