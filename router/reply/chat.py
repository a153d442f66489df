"""``/v1/chat/completions``: chunks and whole replies (vllm/entrypoints/openai/chat_completion/serving.py).

Invariant: the role comes alone in the first chunk, then one chunk per step, the last with the reasons.
"""

from collections.abc import Sequence

from router.reply.form import DONE, Form, encode
from router.transcript import Delta

__all__ = ["ChatReply"]


class ChatReply:
    """Chat completions."""

    def __init__(self, form: Form) -> None:
        self._form = form
        head = {
            "id": form.id,
            "object": "chat.completion.chunk",
            "created": form.created,
            "model": form.model,
        }
        self._head = b"data: " + encode(head)[:-1] + b',"choices":['
        self._content = self._head + b'{"index":0,"delta":{"content":'
        self._fingerprint = b',"system_fingerprint":' + encode(form.fingerprint)

    def begin(self) -> bytes:
        """The role chunk."""
        form = self._form
        delta = encode({"role": form.role, "content": ""})
        prompt = encode(form.prompt) if form.show_ids else b"null"
        return b"".join(
            (
                self._head,
                b'{"index":0,"delta":',
                delta,
                b',"logprobs":null,"finish_reason":null}],"prompt_token_ids":',
                prompt,
                b',"prompt_text":null',
                self._usage(0),
                b"}\n\n",
            )
        )

    def chunk(self, delta: Delta, count: int) -> bytes:
        """One content chunk."""
        if delta.finish_reason is None:
            reasons, fingerprint = b'},"logprobs":null,"finish_reason":null,"token_ids":', b""
        else:
            reasons = b'},"logprobs":null,"finish_reason":%b,"stop_reason":%b,"token_ids":' % (
                encode(delta.finish_reason),
                encode(delta.stop_reason),
            )
            fingerprint = b"" if self._form.usage else self._fingerprint
        ids = encode(delta.ids) if self._form.show_ids else b"null"
        return b"".join(
            (
                self._content,
                encode(delta.text),
                reasons,
                ids,
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
        usage = encode(self._form.last_counts(count))
        return b"".join((self._head, b'],"usage":', usage, self._fingerprint, b"}\n\n", DONE))

    def whole(self, text: str, ids: Sequence[int], delta: Delta) -> bytes:
        """A ``chat.completion``."""
        form = self._form
        message = {
            "role": form.role,
            "content": text,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "reasoning": None,
        }
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": delta.finish_reason,
            "stop_reason": delta.stop_reason,
            "token_ids": ids if form.show_ids else None,
            "routed_experts": None,
        }
        return encode(
            {
                "id": form.id,
                "object": "chat.completion",
                "created": form.created,
                "model": form.model,
                "choices": [choice],
                "service_tier": None,
                "system_fingerprint": form.fingerprint,
                "usage": form.full_counts(len(ids)),
                "prompt_logprobs": None,
                "prompt_token_ids": form.prompt if form.show_ids else None,
                "prompt_text": None,
                "kv_transfer_params": None,
                "ec_transfer_params": None,
                "metrics": None,
            }
        )

    def _usage(self, count: int) -> bytes:
        if not self._form.running_usage:
            return b""
        # vLLM sets the details of a running count to null here, and leaves them out in completions.
        return b',"usage":' + encode({**self._form.counts(count), "completion_tokens_details": None})
