"""What `speedtier doctor` finds, one fault at a time."""

import os
import socket
from pathlib import Path

import msgspec
import pytest
from zmq.auth import create_certificates

from deploy.doctor import Check, DoctorConfig, NotWell, doctor
from tests.deploy.doctor.pair_of_servers import both, mark_of
from tilert_connector.config import ConnectorConfig

ALL = [
    "decode: reachable",
    "decode: version",
    "decode: engine",
    "prefill: reachable",
    "prefill: version",
    "prefill: scale-out endpoints",
    "prefill: connector",
    "prefill: fingerprint",
    "decode: test pattern",
    "both: one token, handed over and decoded",
]
HELLO, PATTERN, HANDOFF = ALL[-3:]


def bad(checks: dict[str, Check]) -> list[str]:
    assert all(check.way_out for check in checks.values() if check.state == "failed")
    return [name for name, check in checks.items() if check.state == "failed"]


def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


async def test_a_pair_that_works_keeps_nothing_of_the_examination() -> None:
    async with both() as one:
        checks = await one.examined()
        assert list(checks) == ALL
        assert {check.state for check in checks.values()} == {"ok"}, checks
        assert "GB/s" in checks[PATTERN].found and "tokens 7 and 8" in checks[HANDOFF].found
        status = one.node.receiver.status()
        assert status["slots_held"] == {} and status["open"] == {}
        assert status["ended"] == {"committed": 1, "failed": 0, "cancelled": 1}
        ends = {(await task).end for task in one.vllm.tasks}
        assert ends == {"committed", "cancelled"}, "the prefill server has failed nothing"


async def test_another_model_is_named_with_the_field_and_both_values() -> None:
    async with both() as one:
        one.vllm.mark = mark_of(weights="another")
        checks = await one.examined()
        assert bad(checks) == [HELLO, HANDOFF]
        assert "weights differs: decode node 'x', prefill server 'another'" in checks[HELLO].found
        assert "fingerprint differs in weights" in checks[HANDOFF].found and "checkpoint" in checks[HANDOFF].way_out


async def test_a_decode_node_that_is_down() -> None:
    async with both() as one:
        checks = await one.examined(decode=f"http://127.0.0.1:{closed_port()}")
        assert bad(checks) == ["decode: reachable"]
        assert {checks[name].state for name in (HELLO, PATTERN, HANDOFF)} == {"skipped"}
        assert checks["prefill: connector"].state == "ok"


async def test_a_prefill_server_that_is_down() -> None:
    async with both() as one:
        checks = await one.examined(prefill=f"http://127.0.0.1:{closed_port()}")
        assert bad(checks) == ["prefill: reachable"] and checks[PATTERN].state == "ok"


async def test_a_server_without_the_connector_without_scale_out_or_of_another_version() -> None:
    async with both() as one:
        one.vllm.connector = None
        checks = await one.examined()
        assert bad(checks) == ["prefill: connector"] and "kv-transfer-config" in checks["prefill: connector"].way_out
    async with both() as one:
        one.vllm.scale_out = False
        checks = await one.examined()
        assert bad(checks) == ["prefill: scale-out endpoints"]
        assert "--enable-scale-out" in checks["prefill: scale-out endpoints"].way_out
    async with both() as one:
        one.vllm.version = "0.99.0"
        assert bad(await one.examined()) == ["prefill: version"]


async def test_networks_that_the_connector_may_not_write_to() -> None:
    async with both() as one:
        one.vllm.connector = ConnectorConfig(networks=("10.0.0.0/8",))
        checks = await one.examined(timeout_s=3.0)
        assert bad(checks) == [HELLO, HANDOFF] and "`networks`" in checks[HELLO].way_out


async def test_a_busy_node_is_left_alone() -> None:
    async with both() as one:
        first = await one.examined()
        assert first[PATTERN].state == "ok"
        receiver = one.node.receiver
        one.vllm._hand_over({"token_ids": [1] * 9, "kv_transfer_params": held(one.node.receiver.ctrl_port)})
        state = await receiver.committed("held", 10)
        checks = await one.examined()
        assert bad(checks) == [] and {checks[PATTERN].state, checks[HANDOFF].state} == {"skipped"}
        assert "1 of 1 slots are in use" in checks[PATTERN].found
        receiver.release(state)


def held(port: int) -> dict[str, object]:
    return {"tilert_host": "127.0.0.1", "tilert_ctrl_port": port, "tilert_handoff": "held"}


async def test_tickets_that_are_wanted_by_either_side(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k" * 32)
    key.chmod(0o600)
    async with both(ticket_key_file=str(key)) as one:
        one.vllm.connector = ConnectorConfig(ticket_key_file=str(key), connect_s=2.0)
        checks = await one.examined()
        assert bad(checks) == [HELLO, PATTERN, HANDOFF]
        assert all("there is none" in checks[name].found for name in (HELLO, PATTERN, HANDOFF))
        assert "ticket" in checks[PATTERN].way_out
        assert bad(await one.examined(ticket_key_file=str(key))) == []


async def test_curve(tmp_path: Path) -> None:
    clients = tmp_path / "clients"
    clients.mkdir()
    for name in ("decode", "doctor", "vllm"):
        create_certificates(tmp_path, name)
        (tmp_path / f"{name}.key_secret").chmod(0o600)
    for name in ("doctor", "vllm"):
        os.replace(tmp_path / f"{name}.key", clients / f"{name}.key")

    def secret(name: str) -> str:
        return str(tmp_path / f"{name}.key_secret")

    server = str(tmp_path / "decode.key")
    async with both(curve_key_file=secret("decode"), curve_clients=str(clients)) as one:
        one.vllm.connector = ConnectorConfig(curve_key_file=secret("vllm"), curve_server=server, connect_s=2.0)
        checks = await one.examined(curve_key_file=secret("doctor"), curve_server=server)
        assert bad(checks) == [] and checks[HELLO].state == "skipped"
        checks = await one.examined(timeout_s=3.0)
        assert PATTERN in bad(checks) and "curve_clients" in checks[PATTERN].way_out


def test_the_command_prints_every_check_and_fails_if_one_did(capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = f"http://127.0.0.1:{closed_port()}"
    config = DoctorConfig(prefill=nowhere, decode=nowhere, timeout_s=2.0)
    with pytest.raises(NotWell, match="2 of 5 checks failed"):
        doctor(config)
    assert "decode: reachable" in (text := capsys.readouterr().out) and "->" in text
    with pytest.raises(NotWell):
        doctor(msgspec.structs.replace(config, json=True))
    told = msgspec.json.decode(capsys.readouterr().out)
    assert [one["state"] for one in told] == ["failed", "failed", "skipped", "skipped", "skipped"]
