"""Writes down what becomes of every field of vLLM's request models: ``python -m router.fields.table docs/fields.md``.

Invariant (R1): a field that a new vLLM brings and the rules do not name is an error here, and so is one that the rules
name and vLLM does not have.
"""

import json
import sys
from collections.abc import Mapping, Set
from pathlib import Path

from router.fields.rules import EXECUTED, NATIVE, NEUTRAL, OPENAI_ONLY, PARSED, PARSED_NEUTRAL, REFUSED
from speedtier.errors import ConfigError

__all__ = ["Fields", "fields_of_vllm", "page"]

Fields = Mapping[str, Set[str]]
"""Names of the fields by the endpoint that has them: ``chat`` and ``completions``."""

HEAD = """# What the speed tier does with each request field

Every field of `/v1/chat/completions` and `/v1/completions` of vLLM {version}. Written by
`python -m router.fields.table docs/fields.md`; a test fails when it is stale or when vLLM has another field.

A request goes to the native pool as soon as one of its fields says so, with the field's name in the reply's
`x-speedtier-fallback`; a class without a fallback answers 501 and names it. Null is neutral, but
for `kv_transfer_params`. A field that is not named here goes to the native pool too.

| field | endpoints | on the speed tier |
| --- | --- | --- |
"""
REST = """
Fields of OpenAI's that vLLM {version} does not have:

| field | on the speed tier |
| --- | --- |
"""


def fields_of_vllm() -> tuple[str, Fields]:
    """The version and the fields of the installed vLLM (the extra)."""
    from vllm import __version__
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest

    found = {"chat": frozenset(ChatCompletionRequest.model_fields)}
    found["completions"] = frozenset(CompletionRequest.model_fields)
    return str(__version__).partition("+")[0], found


def page(version: str, fields: Fields) -> str:
    """The page, in Markdown.

    Raises:
        ConfigError: rules and fields do not fit each other.
    """
    every = {name for names in fields.values() for name in names}
    ruled = {name: rules for rules in (EXECUTED, PARSED, NATIVE, REFUSED) for name in rules}
    if new := sorted(every - ruled.keys()):
        raise ConfigError(f"vLLM {version} has fields without a rule: {new}; add them to router/fields/rules.py")
    if gone := sorted(ruled.keys() - every - OPENAI_ONLY):
        raise ConfigError(f"rules for fields that vLLM {version} does not have: {gone}")
    if read := sorted(OPENAI_ONLY & every):
        raise ConfigError(f"vLLM {version} has fields that OPENAI_ONLY names: {read}")
    rows = []
    for name in sorted(every):
        endpoints = " ".join(endpoint for endpoint, names in fields.items() if name in names)
        rows.append(f"| `{name}` | {endpoints} | {_rule(name)} |")
    rest = [f"| `{name}` | {_rule(name)} |" for name in sorted(OPENAI_ONLY)]
    head, tail = (each.format(version=version) for each in (HEAD, REST))
    return head + "\n".join(rows) + "\n" + tail + "\n".join(rest) + "\n"


def _rule(name: str) -> str:
    if name in EXECUTED:
        return f"executed {EXECUTED[name]}"
    if name in REFUSED:
        return f"refused: {REFUSED[name]}"
    if name in PARSED:
        without = _shown(PARSED_NEUTRAL.get(name, ()))
        return f"executed with a {PARSED[name]} parser in the router (`{PARSED[name]}_parser`), else native{without}"
    return f"native{_shown(NEUTRAL.get(name, ()))}: {NATIVE[name]}"


def _shown(values: tuple[object, ...]) -> str:
    return f" unless {' or '.join(f'`{json.dumps(value)}`' for value in values)}" if values else ""


if __name__ == "__main__":
    text = page(*fields_of_vllm())
    if len(sys.argv) == 2:
        Path(sys.argv[1]).write_text(text, encoding="utf-8")
    else:
        print(text)
