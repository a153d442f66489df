"""What the router signs, and what it says when a prefill server does not accept it."""

import time
from pathlib import Path

import pytest

from tests.router.stack import NO_FALLBACK, Open
from tilert_connector.ticket import check

pytestmark = pytest.mark.contract("H9")
KEY = b"k" * 32


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    file = tmp_path / "key"
    file.write_bytes(KEY)
    file.chmod(0o600)
    return str(file)


async def test_each_attempt_carries_a_ticket_for_its_node_its_handoff_and_its_prompt(
    open_stack: Open, key_file: str
) -> None:
    stack = await open_stack(ticket_key_file=key_file)
    await stack.whole()
    await stack.whole()
    first, second = (each["kv_transfer_params"] for each in stack.prefill.generated)
    assert first["tilert_ticket"] != second["tilert_ticket"]
    tokens = len(stack.prefill.generated[0]["token_ids"])
    ticket = check(
        [KEY],
        first["tilert_ticket"],
        handoff=first["tilert_handoff"],
        tokens=tokens,
        node="127.0.0.1:7001",
        instance=stack.decode.instance,
    )
    assert ticket.tokens == tokens and ticket.expires > time.time()


async def test_without_a_key_there_is_no_ticket(open_stack: Open) -> None:
    stack = await open_stack()
    await stack.whole()
    assert "tilert_ticket" not in stack.prefill.generated[0]["kv_transfer_params"]


async def test_a_prefill_server_that_refuses_the_claim_ends_the_request_at_once(open_stack: Open) -> None:
    stack = await open_stack(classes=NO_FALLBACK)
    stack.prefill.handed_back = {"tilert_refused": "ticket: it is forged"}
    async with stack.ask() as reply:
        assert reply.status == 502 and "ticket: it is forged" in (await reply.json())["error"]["message"]
    stack.prefill.handed_back = None
    assert (await stack.whole(max_tokens=3))["usage"]["completion_tokens"] == 3, "the server itself is well"
