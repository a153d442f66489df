"""Loads vLLM's parsers once, and opens one for each chat reply.

Invariant (R8): the router parses where its prefill server does, or the request goes to the native pool: a server's
reasoning parser shows in what it renders; whether it has a tool parser is for the operator to say.
"""

import asyncio
import json
import logging
from pathlib import Path
from types import SimpleNamespace

import msgspec

from router.body import Body
from router.config import RouterConfig
from router.errors import Unable
from router.parsers.parsed import Kit, ParsedReply
from router.parsers.reply_parser import ReplyParser
from router.rendered import Rendered
from router.vocabulary import Vocabulary

__all__ = ["Parsers"]

_LOG = logging.getLogger("router")


class Parsers:
    """The parsers that the configuration names.

    ``names``: ``reasoning`` and ``tool``, as far as there are any.
    """

    def __init__(self, config: RouterConfig) -> None:
        tool = config.tool_parser if config.enable_auto_tool_choice else ""
        self._reasoning, self._tool = config.reasoning_parser, tool
        self.names = frozenset(name for name, parser in (("reasoning", self._reasoning), ("tool", tool)) if parser)
        self._loading: asyncio.Task[Kit] | None = None
        if self.names and config.tokenizer:
            self._load(Path(config.tokenizer))

    def check(self, rendered: Rendered) -> None:
        """Whether the server that rendered a chat parses reasoning just as the router does.

        Raises:
            Unable: one of the two has no such parser.
        """
        if not rendered.tokenized and ("reasoning" in self.names) != (rendered.reasoning_parser_kwargs is not None):
            raise Unable("reasoning_parser")

    async def open(self, body: Body, rendered: Rendered, vocabulary: Vocabulary) -> ReplyParser | None:
        """A parser for a chat's reply; None where nothing is parsed.

        Raises:
            Unable: it cannot be had.
        """
        if not self.names:
            return None
        blame = "reasoning_parser" if "reasoning" in self.names else "tool_parser"
        told = (rendered.reasoning_parser_kwargs or {}).get("chat_template_kwargs")
        try:
            kit = await asyncio.shield(self._load(vocabulary.directory))
            fields = msgspec.json.decode(body.raw)
            return ParsedReply(kit, fields, told if isinstance(told, dict) else None, rendered.token_ids)
        except Exception as error:  # vLLM's own, of any kind
            _LOG.warning("%s: a reply cannot be parsed here: %r", blame, error)
            raise Unable(blame) from error

    def _load(self, directory: Path) -> "asyncio.Task[Kit]":
        if self._loading is None:
            self._loading = asyncio.create_task(asyncio.to_thread(_kit, directory, self._reasoning, self._tool))
            self._loading.add_done_callback(_loaded)
        return self._loading


def _loaded(task: "asyncio.Task[Kit]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _LOG.error("the parsers cannot be loaded, so chats go to the native pool: %r", error)


def _kit(directory: Path, reasoning: str, tool: str) -> Kit:
    from vllm.entrypoints.generate.base.protocol import ToolCall
    from vllm.entrypoints.openai.chat_completion import protocol
    from vllm.entrypoints.serve.utils.tool_calls_utils import maybe_filter_parallel_tool_calls
    from vllm.parser import ParserManager
    from vllm.renderers.chat_utils import make_tool_call_id
    from vllm.tokenizers import get_tokenizer

    kind = json.loads((directory / "config.json").read_text(encoding="utf-8")).get("model_type")
    tokenizer = get_tokenizer(str(directory))
    parser = ParserManager.get_parser(
        tool_parser_name=tool or None,
        reasoning_parser_name=reasoning or None,
        enable_auto_tools=bool(tool),
        model_name=str(directory),
        is_harmony=kind == "gpt_oss",
        tokenizer=tokenizer,
    )
    return Kit(
        tokenizer=tokenizer,
        parser=parser,
        # All that parsers look at in a model's configuration is its kind, for the ids of tool calls.
        model=SimpleNamespace(hf_config=SimpleNamespace(model_type=kind), hf_text_config=None, hf_overrides=None),
        request=protocol.ChatCompletionRequest,
        named=protocol.ChatCompletionNamedToolChoiceParam,
        message=protocol.ChatMessage,
        tool_call=ToolCall,
        tool_call_id=make_tool_call_id,
        filtered=maybe_filter_parallel_tool_calls,
        auto_tools=bool(tool),
        reasons=bool(reasoning),
    )
