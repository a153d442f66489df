"""Log-probabilities: token 1 from the prefill server, the rest from the decode node, named as vLLM does it (R8)."""

from pathlib import Path
from typing import Any

import pytest

from router.fake import FakeDecode, FakePrefill
from router.fake.decode import SAMPLING
from router.logprobs import Reported, TokenLogprob
from router.reply.logprobs import Names, chat_logprobs, completion_logprobs
from router.vocabulary import Vocabulary
from tests.router.stack import CHAT, COMPLETIONS, Open

pytestmark = pytest.mark.contract("R8", "R1")
TOLD: list[Reported] = [
    (-0.1, 1, [(41, -0.1), (50, -2.0), (51, -3.0)]),
    (-4.0, 9, [(52, -0.2), (53, -2.0), (54, -3.0)]),
]


def node(**given: Any) -> FakeDecode:
    return FakeDecode(**{"tokens": [41, 42], "logprobs": TOLD, "sampling": [*SAMPLING, "logprobs"], **given})


async def test_a_chat_has_those_of_both_legs(open_stack: Open, model_dir: Path) -> None:
    stack = await open_stack(FakePrefill(model_dir, first=10), [node()])
    choice = (await stack.whole(CHAT, max_tokens=3, logprobs=True, top_logprobs=2))["choices"][0]
    content = choice["logprobs"]["content"]
    assert [each["logprob"] for each in content] == [-1.5, -0.1, -4.0]
    assert [each["token"] for each in content] == [stack.text([token]) for token in (10, 41, 42)]
    assert content[0]["bytes"] == list(stack.text([10]).encode())
    # The sampled token first, then the most likely others, as many as were asked for in all.
    tops = [[(top["token"], top["logprob"]) for top in each["top_logprobs"]] for each in content]
    assert tops[0] == [(stack.text([10]), -1.5), (stack.text([9]), -0.5)]
    assert tops[1] == [(stack.text([41]), -0.1), (stack.text([50]), -2.0)]
    assert tops[2] == [(stack.text([42]), -4.0), (stack.text([52]), -0.2)]
    [order], [generated] = stack.decode.orders, stack.prefill.generated
    assert order["sampling"]["logprobs"] == 2 and generated["logprobs"] == 2
    assert generated["kv_transfer_params"]["tilert_handoff"] == order["rid"] and generated["max_tokens"] == 1


async def test_completions_stream_offsets_that_go_on(open_stack: Open, model_dir: Path) -> None:
    stack = await open_stack(FakePrefill(model_dir, first=10), [node(per_line=1)])
    events = await stack.events(COMPLETIONS, max_tokens=3, logprobs=1)
    streamed = [event["choices"][0]["logprobs"] for event in events]
    whole = (await stack.whole(COMPLETIONS, max_tokens=3, logprobs=1))["choices"][0]["logprobs"]
    assert {name: [value for each in streamed for value in each[name]] for name in whole} == whole
    assert whole["text_offset"] == [0, len(stack.text([10])), len(stack.text([10, 41]))]
    assert whole["top_logprobs"][2] == {stack.text([42]): -4.0, stack.text([52]): -0.2}


async def test_tokens_can_be_named_by_their_ids(open_stack: Open, model_dir: Path) -> None:
    stack = await open_stack(FakePrefill(model_dir, first=10), [node()])
    asked = {"max_tokens": 2, "return_tokens_as_token_ids": True}
    whole = await stack.whole(COMPLETIONS, logprobs=1, **asked)
    assert whole["choices"][0]["logprobs"]["tokens"] == ["token_id:10", "token_id:41"]
    chat = await stack.whole(CHAT, logprobs=True, top_logprobs=1, **asked)
    first = chat["choices"][0]["logprobs"]["content"][0]
    assert first["token"] == "token_id:10" and bytes(first["bytes"]).decode() == stack.text([10])
    assert bytes(first["top_logprobs"][0]["bytes"]).decode() == "token_id:10"


async def test_tokens_behind_a_stop_string_have_none(open_stack: Open, model_dir: Path) -> None:
    stack = await open_stack(FakePrefill(model_dir, first=10), [node(per_line=2)])
    choice = (await stack.whole(CHAT, logprobs=True, stop=stack.text([41]), return_token_ids=True))["choices"][0]
    assert choice["finish_reason"] == "stop" and choice["token_ids"] == [10, 41]
    assert len(choice["logprobs"]["content"]) == 2


@pytest.mark.parametrize("told", [(), TOLD[:1]])
async def test_a_node_that_lists_them_and_sends_none_is_broken(open_stack: Open, told: list[Reported]) -> None:
    stack = await open_stack(nodes=[node(logprobs=told, per_line=2)], native=())
    async with stack.ask(CHAT, logprobs=True, max_tokens=4) as reply:
        assert reply.status == 502 and "logprobs" in (await reply.json())["error"]["message"]


async def test_all_of_the_vocabulary_goes_to_the_native_pool(open_stack: Open) -> None:
    stack = await open_stack(nodes=[node()])
    async with stack.ask(CHAT, logprobs=True, top_logprobs=-1) as reply:
        assert reply.headers["x-speedtier-fallback"] == "logprobs"


def test_a_character_is_named_by_the_token_that_ends_it(model_dir: Path) -> None:
    vocabulary = Vocabulary(model_dir)
    # Bytes of a character that no token has whole.
    ids = [vocabulary.tokenizer.token_to_id(sign) for sign in "ðŁĴ§"]
    logprobs = [TokenLogprob(token, -0.5, []) for token in (40, *ids, 40)]
    found, offset = completion_logprobs(Names(vocabulary, 0, as_ids=False), logprobs, 0)
    letter = vocabulary.text(40)
    assert found["tokens"] == [letter, "", "", "", "\U0001f4a7", letter]
    assert found["text_offset"] == [0, 1, 1, 1, 1, 2] and offset == 3
    content = chat_logprobs(Names(vocabulary, 0, as_ids=False), logprobs)["content"]
    assert isinstance(content, list) and content[4]["bytes"] == list("\U0001f4a7".encode())


def test_minus_infinity_is_a_number(model_dir: Path) -> None:
    one = TokenLogprob(40, float("-inf"), [(40, float("-inf")), (41, -1.0)])
    found, _ = completion_logprobs(Names(Vocabulary(model_dir), 2, as_ids=True), [one], 0)
    assert found["token_logprobs"] == [-9999.0]
    assert found["top_logprobs"] == [{"token_id:40": -9999.0, "token_id:41": -1.0}]
