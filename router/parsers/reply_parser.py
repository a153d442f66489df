"""What turns the text of a chat reply into reasoning, content and tool calls.

Invariant: one parser sees the steps of one reply, each once and in order.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

__all__ = ["Message", "ReplyParser"]


class Message(NamedTuple):
    """A whole message as JSON; ``calls_tools``: that is why it ended."""

    json: bytes
    calls_tools: bool


class ReplyParser(Protocol):
    """One reply's parser.

    ``hidden``: the client wants no reasoning, so neither ids nor logprobs that would show it. ``reasons``: usage says
    how many tokens were reasoning. ``calls_tools``: a tool call has been streamed, and is why the reply ends.
    """

    hidden: bool
    reasons: bool
    calls_tools: bool

    def delta(self, text: str, tokens: Sequence[int], *, finished: bool) -> bytes | None:
        """The ``delta`` of one step as JSON; None when it shows nothing yet."""

    def message(self, role: str, text: str, tokens: Sequence[int], finish_reason: str | None) -> Message:
        """The message of a reply that is not streamed."""

    def reasoning_tokens(self, tokens: Sequence[int]) -> int:
        """How many tokens of the reply so far were reasoning."""
