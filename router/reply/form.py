"""What both reply shapes share.

Invariant: what does not change between chunks is encoded once, so a chunk costs one string escape and a join.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from router.parsers.reply_parser import ReplyParser
from router.reply.logprobs import Names
from router.transcript import Delta

__all__ = ["DONE", "Form", "Reply", "encode"]

encode = msgspec.json.encode
DONE = b"data: [DONE]\n\n"


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one reply.

    ``details``: vLLM's ``prompt_tokens_details``. ``usage``: a usage chunk ends the stream.
    ``running_usage``: each chunk carries usage. ``show_ids``: the client asked for token ids. ``names``: for
    logprobs, where asked for. ``parser``: of a chat whose server parses. ``service_tier``: what the class is
    called in the client's terms, if anything.
    """

    id: str
    model: str
    created: int
    fingerprint: str
    prompt: Sequence[int]
    role: str = "assistant"
    details: dict[str, object] | None = None
    usage: bool = False
    running_usage: bool = False
    show_ids: bool = False
    names: Names | None = None
    parser: ReplyParser | None = None
    service_tier: str | None = None

    def head(self, kind: str) -> bytes:
        """How every chunk begins. vLLM names no tier; one that the operator named goes where OpenAI has it."""
        head = {"id": self.id, "object": kind, "created": self.created, "model": self.model}
        if self.service_tier is not None:
            head["service_tier"] = self.service_tier
        return b"data: " + encode(head)[:-1] + b',"choices":['

    def counts(self, completion: int) -> dict[str, object]:
        """``usage`` without details."""
        prompt = len(self.prompt)
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + completion,
            "completion_tokens": completion,
        }

    def full_counts(self, completion: int, reasoning: int | None = None) -> dict[str, object]:
        """``usage`` of a whole reply. ``reasoning``: tokens of it, where they are counted."""
        return {
            **self.counts(completion),
            "prompt_tokens_details": self.details,
            "completion_tokens_details": None if reasoning is None else {"reasoning_tokens": reasoning},
        }

    def last_counts(self, completion: int, reasoning: int | None = None) -> dict[str, object]:
        """``usage`` of the chunk that ends a stream: nulls are left out."""
        counts = self.counts(completion)
        if self.details is not None:
            counts["prompt_tokens_details"] = {name: value for name, value in self.details.items() if value is not None}
        if reasoning is not None:
            counts["completion_tokens_details"] = {"reasoning_tokens": reasoning}
        return counts


class Reply(Protocol):
    """A reply shape: pieces of a stream, or one whole body. All are bytes that go out as they are."""

    def begin(self) -> bytes:
        """What comes before the first chunk."""

    def chunk(self, delta: Delta, count: int) -> bytes:
        """One step; ``count`` tokens with this one."""

    def end(self, count: int) -> bytes:
        """What comes after the last chunk."""

    def whole(self, deltas: Sequence[Delta]) -> bytes:
        """The body of a reply that is not streamed: all of its steps."""
