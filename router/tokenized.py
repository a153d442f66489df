"""Rendering on a server without the scale-out endpoints: ids from ``/tokenize``, parameters resolved here.

Invariant: what comes out is what vLLM's render endpoint would say. Whatever is not plainly so (a value of another
type, a length that does not fit, a field that ``/tokenize`` does not know) sends the request to the native pool,
which refuses or executes it in vLLM's own way.
"""

import uuid
from collections.abc import Callable, Mapping

import msgspec

from router.body import Body
from router.errors import BadRequest, Unable
from router.fields import DECODED
from router.rendered import Rendered

__all__ = ["Unresolved", "chat_order", "read", "resolve"]

CHAT_OPTIONS = ("add_generation_prompt", "continue_final_message", "add_special_tokens", "chat_template")
UNKNOWN = ("truncate_prompt_tokens", "truncation_side", "tools")
DEFAULT_LENGTH = 16  # of a completion
# What else vLLM takes from a model's generation config.
PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")

Check = Callable[[object], bool]


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _flag(value: object) -> bool:
    return isinstance(value, bool)


def _text(value: object) -> bool:
    return isinstance(value, str)


def _stop(value: object) -> bool:
    return bool(value) and (_text(value) or (isinstance(value, list) and all(_text(one) and one for one in value)))


CHECKS: Mapping[str, Check] = {
    **dict.fromkeys(("temperature", "top_p", "min_p"), _number),
    **dict.fromkeys(("top_k", "seed", "max_tokens", "max_completion_tokens", "priority", "top_logprobs"), _whole),
    **dict.fromkeys(("ignore_eos", "include_stop_str_in_output", "skip_special_tokens"), _flag),
    **dict.fromkeys(("spaces_between_special_tokens", "stream", "add_generation_prompt"), _flag),
    **dict.fromkeys(("continue_final_message", "add_special_tokens"), _flag),
    **dict.fromkeys(("model", "cache_salt", "request_id", "chat_template", "reasoning_effort"), _text),
    "stop": lambda value: value == [] or _stop(value),
    "stop_token_ids": lambda value: isinstance(value, list) and all(map(_whole, value)),
    "chat_template_kwargs": lambda value: isinstance(value, dict),
    "documents": lambda value: isinstance(value, list),
    "stream_options": lambda value: isinstance(value, dict) and all(map(_flag, value.values())),
}


class Unresolved(msgspec.Struct, frozen=True):
    """A request's fields without nulls, and which endpoint they are for."""

    fields: dict[str, object]
    chat: bool

    @property
    def prompt(self) -> str:
        """The field that becomes the prompt."""
        return "messages" if self.chat else "prompt"


def read(path: str, body: Body) -> Unresolved:
    """The request's fields.

    Raises:
        Unable: one is none that can be rendered here.
    """
    try:
        fields = {name: body.get(name) for name in body.fields or {}}
    except BadRequest as error:  # such as bytes that are no UTF-8
        raise Unable(error.param or "body") from error
    found = Unresolved({name: value for name, value in fields.items() if value is not None}, "chat" in path)
    logprobs = _flag if found.chat else _whole
    for name, value in found.fields.items():
        check = logprobs if name == "logprobs" else CHECKS.get(name)
        if name in UNKNOWN or (check is not None and not check(value)):
            raise Unable(name)
    if found.fields.get("stream_options") and not found.fields.get("stream"):
        raise Unable("stream_options")
    if not _plain(found.fields.get(found.prompt)):
        raise Unable(found.prompt)
    return found


def _plain(prompt: object) -> bool:
    """Whether it is a text, ids, or messages of nothing but text."""
    if isinstance(prompt, str):
        return bool(prompt)
    if not isinstance(prompt, list) or not prompt:
        return False
    parts = [message.get("content") for message in prompt if isinstance(message, dict)]
    texts = [part for content in parts if isinstance(content, list) for part in content]
    return all(isinstance(part, dict) and part.get("type") == "text" for part in texts)


def chat_order(asked: Unresolved) -> dict[str, object]:
    """Body for ``/tokenize`` of a chat; what it has no field for goes where vLLM's chat endpoint puts it
    (``build_chat_params``)."""
    fields = asked.fields
    known = {name: fields[name] for name in ("model", *CHAT_OPTIONS) if name in fields}
    given = fields.get("chat_template_kwargs")
    kwargs = dict(given) if isinstance(given, dict) else {}
    if "reasoning_effort" in fields:
        kwargs.setdefault("enable_thinking", fields["reasoning_effort"] != "none")
    kwargs |= {name: fields[name] for name in ("documents", "reasoning_effort") if name in fields}
    messages = fields["messages"]
    assert isinstance(messages, list)
    return {**known, "chat_template_kwargs": kwargs, "messages": [_message(each) for each in messages]}


def _message(message: object) -> object:
    """As ``_normalize_messages_before`` does it."""
    if not isinstance(message, dict) or "reasoning_content" not in message:
        return message
    old = message["reasoning_content"]
    rest = {name: value for name, value in message.items() if name != "reasoning_content"}
    return rest if old is None or rest.get("reasoning") is not None else {**rest, "reasoning": old}


def resolve(asked: Unresolved, ids: list[int], longest: int, defaults: Mapping[str, object], named: str) -> Rendered:
    """What render would say. ``longest``: the model's limit in tokens. ``named``: the request id, if it has one.

    Raises:
        Unable: the length does not fit, so that vLLM refuses it.
    """
    fields = asked.fields
    order = ("max_completion_tokens", "max_tokens") if asked.chat else ("max_tokens",)
    lengths = [name for name in order if name in fields]
    length = fields[lengths[0]] if lengths else (None if asked.chat else DEFAULT_LENGTH)
    room = longest - len(ids)
    if length is not None and not (isinstance(length, int) and 1 <= length <= room):
        raise Unable(lengths[0] if lengths else asked.prompt)
    if room < 1:
        raise Unable(asked.prompt)
    most = defaults.get("max_tokens", room) if length is None else length
    params: dict[str, object] = {"max_tokens": min(room, most) if isinstance(most, int) else room}
    for name in (*DECODED, *PENALTIES):
        if (value := fields.get(name, defaults.get(name))) is not None and name != "logprobs":
            params[name] = value
    for name in ("stop", "include_stop_str_in_output", "skip_special_tokens", "spaces_between_special_tokens"):
        if name in fields:
            params[name] = fields[name]
    if asked.chat and fields.get("logprobs"):
        params["logprobs"] = fields.get("top_logprobs", 0)
    elif not asked.chat and "logprobs" in fields:
        params["logprobs"] = fields["logprobs"]
    kind = "chatcmpl" if asked.chat else "cmpl"
    made: dict[str, object] = {
        "request_id": f"{kind}-{named or fields.get('request_id') or uuid.uuid4().hex}",
        "token_ids": ids,
        "sampling_params": params,
        "tokenized": True,
        "stream_options": fields.get("stream_options"),
    }
    made |= {name: fields[name] for name in ("model", "stream", "cache_salt", "priority") if name in fields}
    return msgspec.convert(made, Rendered)
