"""Which requests are ours."""

from typing import Any

import pytest

from tilert_connector.claim import Claim, read_claim
from tilert_connector.errors import ClaimError

OURS = {"tilert_host": "d", "tilert_ctrl_port": 1, "tilert_handoff": "h"}


@pytest.mark.contract("H1")
@pytest.mark.parametrize(
    "params",
    [None, {}, [], "tilert_host", 3, {"tilert_host": ""}, {"tilert_host": None}, {"do_remote_decode": True}],
)
def test_everything_else_is_not_ours(params: Any) -> None:
    assert read_claim(params) is None


@pytest.mark.contract("H1")
def test_ours_may_stand_beside_others_keys() -> None:
    claim = read_claim({**OURS, "do_remote_decode": True, "tilert_ticket": "t"})
    assert claim == Claim(host="d", ctrl_port=1, handoff="h", ticket="t")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"tilert_ctrl_port": "1"}, "tilert_ctrl_port"),
        ({"tilert_ctrl_port": 0}, "tilert_ctrl_port"),
        ({"tilert_ctrl_port": 65536}, "tilert_ctrl_port"),
        ({"tilert_handoff": ""}, "tilert_handoff"),
        ({"tilert_handoff": 7}, "tilert_handoff"),
        ({"tilert_host": 7}, "tilert_host"),
        ({"tilert_ticket": 7}, "tilert_ticket"),
    ],
)
def test_a_broken_claim_is_named(change: dict[str, Any], word: str) -> None:
    with pytest.raises(ClaimError, match=word):
        read_claim({**OURS, **change})


def test_a_missing_field_is_named() -> None:
    with pytest.raises(ClaimError, match="tilert_handoff"):
        read_claim({"tilert_host": "d", "tilert_ctrl_port": 1})
