"""Finds what the speed tier cannot execute, in a request and in the parameters that vLLM resolved from it.

Invariant (R1): a value that is not executed and not neutral is found, whatever its name.
"""

from collections.abc import Mapping, Set

from router.body import Body
from router.fields.rules import DECODED, EXECUTED, LOCAL, MOST_STOPS, NEUTRAL, PARSED, PARSED_NEUTRAL

__all__ = ["among", "unable", "unable_resolved"]


def among(value: object, values: tuple[object, ...]) -> bool:
    """Whether a value is one of some, by JSON's idea of equality: Python's 1 == True would let
    ``{"echo": 0}`` pass for false."""
    return any(value == other and isinstance(value, bool) == isinstance(other, bool) for other in values)


def unable(body: Body, parsers: Set[str] = frozenset()) -> str | None:
    """The first field of a request that the speed tier does not execute, or None.

    ``parsers``: those that the router has, of ``reasoning`` and ``tool``.
    """
    for name in body.fields or ():
        if name in EXECUTED or PARSED.get(name) in parsers:
            continue
        value = body.get(name)
        if value is not None and not among(value, {**NEUTRAL, **PARSED_NEUTRAL}.get(name, ())):
            return name
    prompt = body.get("prompt")
    if isinstance(prompt, list) and not all(isinstance(item, int) for item in prompt):
        return "prompt"
    for name in ("return_token_ids", "return_tokens_as_token_ids"):
        if not isinstance(body.get(name), bool | None):  # vLLM reads other words for true and false as well
            return name
    return None


def unable_resolved(params: Mapping[str, object], executes: Set[str]) -> str | None:
    """The first resolved sampling parameter that a decode node cannot execute, or None.

    ``executes``: the names that the node's ``/capabilities`` lists under ``sampling``.
    """
    stops = params.get("stop_token_ids")
    if isinstance(stops, list) and len(stops) > MOST_STOPS - 20:  # the model's own end ids come on top
        return "stop_token_ids"
    logprobs = params.get("logprobs")
    if isinstance(logprobs, int) and logprobs < 0:  # all of the vocabulary
        return "logprobs"
    for name, value in params.items():
        if name in LOCAL or value is None:
            continue
        if name in DECODED:
            if name not in executes and not among(value, DECODED[name]):
                return name
        elif not among(value, NEUTRAL.get(name, ())):
            return name
    return None
