"""A reply parser around vLLM's, which does with it what vLLM's chat endpoint does
(vllm/entrypoints/openai/chat_completion/serving.py, both generators).

Invariant (R8): every branch here is one there; what a parser makes of text is vLLM's own doing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from router.errors import ApiError
from router.parsers.reply_parser import Message

__all__ = ["Kit", "ParsedReply"]


@dataclass(frozen=True, slots=True)
class Kit:
    """Names of vLLM's that are needed for each reply; they are imported once, where the parsers are loaded.

    ``parser``: the composed parser class. ``auto_tools``: the server extracts tool calls of its own accord.
    ``reasons``: it has a reasoning parser.
    """

    tokenizer: Any
    parser: Any
    model: Any
    request: Any
    named: Any
    message: Any
    tool_call: Any
    tool_call_id: Callable[[], str]
    filtered: Callable[[Any, Any], Any]
    auto_tools: bool
    reasons: bool


class ParsedReply:
    """One reply; see ``ReplyParser``.

    Args:
        kit: vLLM's names.
        fields: the request's body.
        kwargs: the chat template's, as the server resolved them; None: as the request has them.
        prompt: ids of the rendered prompt.

    Raises:
        Exception: whatever vLLM raises for a request that it would refuse.
    """

    def __init__(
        self, kit: Kit, fields: dict[str, object], kwargs: dict[str, object] | None, prompt: Sequence[int]
    ) -> None:
        request = kit.request.model_validate(fields)
        if kwargs is None:
            kwargs = request.build_chat_params(None, "auto").chat_template_kwargs
        parser = kit.parser(kit.tokenizer, request.tools, chat_template_kwargs=kwargs, model_config=kit.model)
        self._kit = kit
        self._request = parser.adjust_request(request)
        self._parser = parser
        self._prompt = list(prompt)
        self._named = isinstance(request.tool_choice, kit.named)
        self.hidden = not request.include_reasoning
        self.reasons = kit.reasons
        self.calls_tools = False

    def delta(self, text: str, tokens: Sequence[int], *, finished: bool) -> bytes | None:
        """The ``delta`` of one step as JSON; None when it shows nothing yet.

        Raises:
            ApiError: the parser failed.
        """
        try:
            found = self._parser.parse_delta(
                delta_text=text,
                delta_token_ids=list(tokens),
                request=self._request,
                prompt_token_ids=self._prompt,
                finished=finished,
            )
        except Exception as error:
            raise ApiError(str(error)) from error
        if found is None:
            return None
        if found.tool_calls and not self._named:
            self.calls_tools = True
        dumped: str = self._kit.filtered(found, self._request).model_dump_json(exclude_unset=True)
        return dumped.encode()

    def message(self, role: str, text: str, tokens: Sequence[int], finish_reason: str | None) -> Message:
        """The message of a reply that is not streamed.

        Raises:
            ApiError: the parser failed.
        """
        self._parser.set_prompt_token_ids(self._prompt)
        try:
            reasoning, content, calls = self._parser.parse(
                text, self._request, enable_auto_tools=self._kit.auto_tools, model_output_token_ids=tokens
            )
        except Exception as error:
            raise ApiError(str(error)) from error
        choice = self._request.tool_choice
        made: dict[str, Any] = {"role": role, "reasoning": None if self.hidden else reasoning, "content": content}
        required = choice == "required"
        auto = bool(
            self._request.tools and choice in ("auto", None) and self._kit.auto_tools and self._parser.tool_parser_cls
        )
        calls = calls or []
        if self._named or required:
            made["content"] = content or ""
        if self._named or required or (auto and calls):
            made["tool_calls"] = [
                self._kit.tool_call(id=call.id or self._kit.tool_call_id(), function=call) for call in calls
            ]
            if self._request.parallel_tool_calls is False:
                made["tool_calls"] = made["tool_calls"][:1]
        ends = (auto and bool(calls)) or (required and finish_reason == "stop")
        dumped: str = self._kit.message(**made).model_dump_json()
        return Message(dumped.encode(), ends)

    def reasoning_tokens(self, tokens: Sequence[int]) -> int:
        """How many tokens of the reply so far were reasoning."""
        return int(self._parser.count_reasoning_tokens(tuple(tokens)))
