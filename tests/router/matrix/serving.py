"""vLLM's own serving classes without an engine: given the steps of a reply, they format it.

Invariant: everything but the steps is vLLM's: its request models, parsers, log-probability names and generators.
"""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from router.transcript import Delta


class Serving:
    """The two endpoints over the tokenizer of a directory. ``reasoning``, ``tool``: names of parsers."""

    def __init__(self, directory: Path, reasoning: str = "", tool: str = "") -> None:
        from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
        from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion
        from vllm.parser import ParserManager
        from vllm.tokenizers import get_tokenizer

        self.tokenizer = get_tokenizer(str(directory))
        self.parser_cls = ParserManager.get_parser(
            tool_parser_name=tool or None,
            reasoning_parser_name=reasoning or None,
            enable_auto_tools=bool(tool),
            tokenizer=self.tokenizer,
        )
        self.chat: Any = OpenAIServingChat.__new__(OpenAIServingChat)
        self.completions: Any = OpenAIServingCompletion.__new__(OpenAIServingCompletion)
        for each in (self.chat, self.completions):
            each.model_config = SimpleNamespace(hf_config=SimpleNamespace(model_type="qwen3"))
            each.enable_force_include_usage = each.enable_prompt_tokens_details = each.enable_log_outputs = False
            each.enable_per_request_metrics = each.return_tokens_as_token_ids = False
            each.request_logger = None
            each.system_fingerprint = "vllm"
        self.chat.parser_cls = self.parser_cls
        self.chat.enable_auto_tools = bool(tool)
        self.chat._include_reasoning_tokens_details = bool(reasoning)
        self.chat.response_role = "assistant"

    def adjusted(self, body: dict[str, Any]) -> Any:
        """The request as a chat endpoint has it after rendering."""
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

        request = ChatCompletionRequest.model_validate(body)
        if self.parser_cls is not None:
            request = self._parser(request).adjust_request(request)
        return request

    def kwargs(self, request: Any) -> dict[str, Any]:
        """What the chat template gets."""
        return dict(request.build_chat_params(None, "auto").chat_template_kwargs)

    def _parser(self, request: Any) -> Any:
        return self.chat._make_parser(request, self.tokenizer, self.kwargs(request)) if self.parser_cls else None

    async def chat_reply(self, body: dict[str, Any], prompt: list[int], steps: Sequence[Delta]) -> str:
        """A chat's stream or body."""
        request = self.adjusted(body)
        outputs = self._outputs(prompt, steps, request.top_logprobs if request.logprobs else None)
        named: Any = (request, _whole(outputs) if not request.stream else _each(outputs), "chatcmpl-r1", "tiny", [])
        metadata: Any = SimpleNamespace()
        if request.stream:
            events = self.chat.chat_completion_stream_generator(
                *named, self.tokenizer, metadata, chat_template_kwargs=self.kwargs(request)
            )
            return "".join([event async for event in events])
        reply = await self.chat.chat_completion_full_generator(
            *named, self.tokenizer, metadata, parser=self._parser(request)
        )
        return str(reply.model_dump_json())

    async def completion_reply(self, body: dict[str, Any], prompt: list[int], steps: Sequence[Delta]) -> str:
        """A completion's stream or body."""
        from vllm.entrypoints.openai.completion.protocol import CompletionRequest

        request = CompletionRequest.model_validate(body)
        outputs = self._outputs(prompt, steps, request.logprobs)
        metadata: Any = SimpleNamespace()
        if request.stream:
            numbered = ((0, each) async for each in _each(outputs))
            events = self.completions.completion_stream_generator(
                request, [None], numbered, "cmpl-r1", 0, "tiny", 1, self.tokenizer, metadata
            )
            return "".join([event async for event in events])
        [whole] = [each async for each in _whole(outputs)]
        reply = self.completions.request_output_to_completion_response(
            [whole], request, "cmpl-r1", 0, "tiny", self.tokenizer, metadata
        )
        return str(reply.model_dump_json())

    def _outputs(self, prompt: list[int], steps: Sequence[Delta], top: int | None) -> list[Any]:
        """What the engine's front would hand to the endpoint, step by step."""
        from vllm.outputs import CompletionOutput, RequestOutput
        from vllm.v1.engine.logprobs import LogprobsProcessor
        from vllm.v1.outputs import LogprobsLists

        processor = LogprobsProcessor(self.tokenizer, [], None, 0.0, top, None)
        found = []
        for step in steps:
            logprobs = None
            if top is not None:
                for each in step.logprobs:
                    columns = [(each.token, each.logprob), *each.top[:top]]
                    ids, values = (np.array([column]) for column in zip(*columns, strict=True))
                    processor._update_sample_logprobs(LogprobsLists(ids, values, np.array([1])))
                logprobs = processor.logprobs[len(processor.logprobs) - len(step.ids) :] if step.ids else []  # type: ignore[arg-type, index]
            output = CompletionOutput(
                index=0,
                text=step.text,
                token_ids=list(step.ids),
                cumulative_logprob=None,
                logprobs=logprobs,
                finish_reason=step.finish_reason,
                stop_reason=step.stop_reason,
            )
            found.append(RequestOutput("r1", "", prompt, None, [output], step.finish_reason is not None))
        return found


async def _each(outputs: Sequence[Any]) -> AsyncIterator[Any]:
    for output in outputs:
        yield output


async def _whole(outputs: Sequence[Any]) -> AsyncIterator[Any]:
    """All steps as one."""
    last = outputs[-1]
    [final] = last.outputs
    parts = [output.outputs[0] for output in outputs]
    final.text = "".join(part.text for part in parts)
    final.token_ids = [token for part in parts for token in part.token_ids]
    if final.logprobs is not None:
        final.logprobs = [each for part in parts for each in part.logprobs]
    yield last
