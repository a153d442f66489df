"""docs/fields.md against the installed vLLM: no field of its request models is without a rule and a case (R1)."""

from pathlib import Path

import pytest

from router.fields.rules import EXECUTED, NATIVE, NEUTRAL, OPENAI_ONLY, PARSED, PARSED_NEUTRAL, REFUSED
from router.fields.table import fields_of_vllm, page
from speedtier.errors import ConfigError
from tests.router.matrix.cases import BASES, FIELDS
from tests.router.matrix.cases import REFUSED as REFUSALS
from tests.router.stack import CHAT, COMPLETIONS

pytestmark = [pytest.mark.contract("R1"), pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
DOCS = Path(__file__).parents[2] / "docs" / "fields.md"
# Fields whose cases are elsewhere: those of the parsers in `parsed`, of logprobs in `_logprobs`.
ELSEWHERE = {"tools", "top_logprobs", "logprob_token_ids"}
# What vLLM itself refuses on the tests' server, so that there is no reply to compare.
WITHOUT_A_REPLY = {
    "kv_transfer_params",  # the router refuses it (tests/router/test_body.py)
    "ec_transfer_params",  # needs an encoder cache
    "prompt_embeds",  # needs --enable-prompt-embeds
    "suffix",
    "chat_template",  # needs --trust-request-chat-template
    "media_io_kwargs",  # needs a server that trusts its clients
    "add_generation_prompt",  # in cases of their own
    "continue_final_message",
    "thinking_token_budget",  # needs a reasoning configuration
    "watermarking",  # needs a server that marks
}


@pytest.fixture(scope="module")
def vllm() -> tuple[str, dict[str, frozenset[str]]]:
    pytest.importorskip("vllm")
    version, fields = fields_of_vllm()
    return version, {name: frozenset(each) for name, each in fields.items()}


def test_the_page_is_what_the_rules_and_the_installed_vllm_say(vllm) -> None:  # type: ignore[no-untyped-def]
    assert DOCS.read_text(encoding="utf-8") == page(*vllm), "run: python -m router.fields.table docs/fields.md"


def test_a_field_without_a_rule_and_a_rule_without_a_field_are_found(vllm) -> None:  # type: ignore[no-untyped-def]
    version, fields = vllm
    with pytest.raises(ConfigError, match="a_new_one"):
        page(version, {**fields, "chat": fields["chat"] | {"a_new_one"}})
    with pytest.raises(ConfigError, match="suffix"):
        page(version, {**fields, "completions": fields["completions"] - {"suffix"}})
    with pytest.raises(ConfigError, match="store"):
        page(version, {**fields, "chat": fields["chat"] | {"store"}})


def test_no_field_has_two_rules() -> None:
    rules = (EXECUTED, PARSED, NATIVE, REFUSED)
    assert len({name for each in rules for name in each}) == sum(map(len, rules))
    assert NEUTRAL.keys() <= NATIVE.keys() and PARSED_NEUTRAL.keys() <= PARSED.keys()
    assert {*EXECUTED, *NATIVE} >= OPENAI_ONLY


def test_every_field_has_a_case_in_the_matrix(vllm) -> None:  # type: ignore[no-untyped-def]
    _, fields = vllm
    for endpoint, path in (("chat", CHAT), ("completions", COMPLETIONS)):
        asked = {field for paths, field, _, _ in FIELDS if path in paths} | set(BASES[path])
        refused = {field for paths, each in REFUSALS if path in paths for field in each}
        assert fields[endpoint] - asked - ELSEWHERE - WITHOUT_A_REPLY == set()
        assert WITHOUT_A_REPLY.isdisjoint(asked), "it has a case now"
        assert refused, path


def test_the_neutral_values_are_the_defaults_of_vllm(vllm) -> None:  # type: ignore[no-untyped-def]
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest

    neutral = {**NEUTRAL, **PARSED_NEUTRAL}
    for model in (ChatCompletionRequest, CompletionRequest):
        for name, field in model.model_fields.items():
            if name in neutral:
                default = field.default_factory() if field.default_factory else field.default
                assert default is None or default in neutral[name], (model.__name__, name, default)
