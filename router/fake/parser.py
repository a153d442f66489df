"""A reply parser for tests: what stands before a bar is reasoning, and a text with ``()`` calls a tool.

Invariant: its shapes are those of vLLM's messages, without vLLM.
"""

from collections.abc import Sequence

import msgspec

from router.parsers.reply_parser import Message

__all__ = ["FakeParser"]

BAR = "|"


class FakeParser:
    """See ``ReplyParser``."""

    def __init__(self, *, hidden: bool = False, reasons: bool = True) -> None:
        self.hidden = hidden
        self.reasons = reasons
        self.calls_tools = False
        self._answers = False

    def delta(self, text: str, tokens: Sequence[int], *, finished: bool) -> bytes | None:
        """Reasoning up to the bar, which is not shown, then content."""
        self.calls_tools = self.calls_tools or "()" in text
        if BAR in text:
            self._answers = True
            text = text.partition(BAR)[2]
        if not text or (self.hidden and not self._answers):
            return None
        return msgspec.json.encode({"content" if self._answers else "reasoning": text})

    def message(self, role: str, text: str, tokens: Sequence[int], finish_reason: str | None) -> Message:
        """All of it."""
        reasoning, bar, content = text.partition(BAR)
        shown = {"role": role, "reasoning": None if self.hidden else reasoning, "content": content if bar else None}
        return Message(msgspec.json.encode(shown), "()" in text)

    def reasoning_tokens(self, tokens: Sequence[int]) -> int:
        """Half of them."""
        return len(tokens) // 2
