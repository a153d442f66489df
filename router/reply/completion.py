"""``/v1/completions``: chunks and whole replies (vllm/entrypoints/openai/completion/serving.py).

Invariant: one chunk per step, all with the same fields; the first carries the prompt's ids where token ids
are shown.
"""

from collections.abc import Sequence

from router.reply.form import DONE, Form, encode
from router.reply.logprobs import completion_logprobs
from router.transcript import Delta

__all__ = ["CompletionReply"]


class CompletionReply:
    """Text completions."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._head = form.head("text_completion")
        self._text = self._head + b'{"index":0,"text":'
        self._fingerprint = b',"system_fingerprint":' + encode(form.fingerprint)
        self._prompt_due = form.show_ids
        self._offset = 0

    def begin(self) -> bytes:
        """Nothing."""
        return b""

    def chunk(self, delta: Delta, count: int) -> bytes:
        """One text chunk."""
        if delta.finish_reason is None:
            reasons, fingerprint = b',"finish_reason":null,"stop_reason":null', b""
        else:
            reasons = b',"finish_reason":%b,"stop_reason":%b' % (
                encode(delta.finish_reason),
                encode(delta.stop_reason),
            )
            fingerprint = b"" if self._form.usage else self._fingerprint
        prompt = b"null"
        if self._prompt_due:
            prompt, self._prompt_due = encode(self._form.prompt), False
        ids = encode(delta.ids) if self._form.show_ids else b"null"
        usage = b',"usage":' + encode(self._form.counts(count)) if self._form.running_usage else b""
        return b"".join(
            (
                self._text,
                encode(delta.text),
                b',"logprobs":',
                b"null" if self._form.names is None else encode(self._logprobs(delta)),
                reasons,
                b',"prompt_token_ids":',
                prompt,
                b',"token_ids":',
                ids,
                b"}]",
                usage,
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

    def _logprobs(self, *deltas: Delta) -> dict[str, object] | None:
        if self._form.names is None:
            return None
        logprobs = [each for delta in deltas for each in delta.logprobs]
        found, self._offset = completion_logprobs(self._form.names, logprobs, self._offset)
        return found

    def whole(self, deltas: Sequence[Delta]) -> bytes:
        """A ``text_completion``."""
        form, last = self._form, deltas[-1]
        ids = [token for delta in deltas for token in delta.ids]
        choice = {
            "index": 0,
            "text": "".join(delta.text for delta in deltas),
            "logprobs": self._logprobs(*deltas),
            "finish_reason": last.finish_reason,
            "stop_reason": last.stop_reason,
            "token_ids": ids if form.show_ids else None,
            "prompt_logprobs": None,
            "prompt_token_ids": form.prompt if form.show_ids else None,
            "routed_experts": None,
        }
        return encode(
            {
                "id": form.id,
                "object": "text_completion",
                "created": form.created,
                "model": form.model,
                "choices": [choice],
                "service_tier": form.service_tier,
                "system_fingerprint": form.fingerprint,
                "usage": form.full_counts(len(ids)),
                "kv_transfer_params": None,
                "ec_transfer_params": None,
                "metrics": None,
            }
        )
