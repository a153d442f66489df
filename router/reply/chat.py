"""``/v1/chat/completions``: chunks and whole replies (vllm/entrypoints/openai/chat_completion/serving.py).

Invariant: the role comes alone in the first chunk, then one chunk per step (none for a step of which a parser shows
nothing), the last with the reasons.
"""

from collections.abc import Sequence

import msgspec

from router.parsers.reply_parser import ReplyParser
from router.reply.form import DONE, Form, encode
from router.reply.logprobs import chat_logprobs
from router.transcript import Delta

__all__ = ["ChatReply"]


class ChatReply:
    """Chat completions."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._head = form.head("chat.completion.chunk")
        self._delta = self._head + b'{"index":0,"delta":'
        self._fingerprint = b',"system_fingerprint":' + encode(form.fingerprint)
        self._tokens: list[int] = []  # only a parser that counts reasoning needs them
        hidden = form.parser is not None and form.parser.hidden
        self._names = None if hidden else form.names
        self._show_ids = form.show_ids and not hidden

    def begin(self) -> bytes:
        """The role chunk."""
        form = self._form
        prompt = encode(form.prompt) if form.show_ids else b"null"
        return b"".join(
            (
                self._delta,
                encode({"role": form.role, "content": ""}),
                b',"logprobs":null,"finish_reason":null}],"prompt_token_ids":',
                prompt,
                b',"prompt_text":null',
                self._usage(0),
                b"}\n\n",
            )
        )

    def chunk(self, delta: Delta, count: int) -> bytes:
        """One content chunk, or nothing."""
        parser = self._form.parser
        if parser is None:
            return self._chunk(b'{"content":' + encode(delta.text) + b"}", delta, count, delta.finish_reason)
        if parser.reasons:
            self._tokens += delta.ids
        finished = delta.finish_reason is not None
        shown = parser.delta(delta.text, delta.ids, finished=finished)
        if shown is None:
            if not finished and self._names is None and not self._show_ids:
                return b""
            shown = b"{}"
        reason = "tool_calls" if parser.calls_tools and delta.finish_reason == "stop" else delta.finish_reason
        return self._chunk(shown, delta, count, reason)

    def _chunk(self, shown: bytes, delta: Delta, count: int, reason: str | None) -> bytes:
        if reason is None:
            reasons, fingerprint = b',"finish_reason":null,"token_ids":', b""
        else:
            reasons = b',"finish_reason":%b,"stop_reason":%b,"token_ids":' % (
                encode(reason),
                encode(delta.stop_reason),
            )
            fingerprint = b"" if self._form.usage else self._fingerprint
        return b"".join(
            (
                self._delta,
                shown,
                b',"logprobs":',
                b"null" if self._names is None else encode(chat_logprobs(self._names, delta.logprobs)),
                reasons,
                encode(delta.ids) if self._show_ids else b"null",
                b"}]",
                self._usage(count),
                fingerprint,
                b"}\n\n",
            )
        )

    def end(self, count: int) -> bytes:
        """The usage chunk, where asked for, and the end mark."""
        if not self._form.usage:
            return DONE
        usage = encode(self._form.last_counts(count, self._reasoning(self._tokens)))
        return b"".join((self._head, b'],"usage":', usage, self._fingerprint, b"}\n\n", DONE))

    def whole(self, deltas: Sequence[Delta]) -> bytes:
        """A ``chat.completion``."""
        form, last = self._form, deltas[-1]
        text = "".join(delta.text for delta in deltas)
        ids = [token for delta in deltas for token in delta.ids]
        logprobs = [each for delta in deltas for each in delta.logprobs]
        message, reason = self._message(form.parser, text, ids, last.finish_reason)
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None if self._names is None else chat_logprobs(self._names, logprobs),
            "finish_reason": reason,
            "stop_reason": last.stop_reason,
            "token_ids": ids if self._show_ids else None,
            "routed_experts": None,
        }
        return encode(
            {
                "id": form.id,
                "object": "chat.completion",
                "created": form.created,
                "model": form.model,
                "choices": [choice],
                "service_tier": form.service_tier,
                "system_fingerprint": form.fingerprint,
                "usage": form.full_counts(len(ids), self._reasoning(ids)),
                "prompt_logprobs": None,
                "prompt_token_ids": form.prompt if form.show_ids else None,
                "prompt_text": None,
                "kv_transfer_params": None,
                "ec_transfer_params": None,
                "metrics": None,
            }
        )

    def _message(
        self, parser: ReplyParser | None, text: str, ids: Sequence[int], reason: str | None
    ) -> tuple[object, str | None]:
        if parser is not None:
            message = parser.message(self._form.role, text, ids, reason)
            return msgspec.Raw(message.json), "tool_calls" if message.calls_tools else reason
        plain = {"role": self._form.role, "content": text, "refusal": None, "annotations": None, "audio": None}
        return {**plain, "function_call": None, "reasoning": None}, reason

    def _reasoning(self, tokens: Sequence[int]) -> int | None:
        parser = self._form.parser
        return parser.reasoning_tokens(tokens) if parser is not None and parser.reasons else None

    def _usage(self, count: int) -> bytes:
        if not self._form.running_usage:
            return b""
        reasoning = self._reasoning(self._tokens)
        # vLLM sets the details of a running count to null here, and leaves them out in completions.
        details = None if reasoning is None else {"reasoning_tokens": reasoning}
        return b',"usage":' + encode({**self._form.counts(count), "completion_tokens_details": details})
