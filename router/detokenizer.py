"""Token ids to text, one at a time, with stop strings.

Invariant: the text that comes out is what vLLM's detokenizer gives for the same ids and parameters
(vllm/v1/engine/detokenizer.py, ``FastIncrementalDetokenizer``), at a cost per token that does not grow with
the reply.
"""

import logging
from collections.abc import Sequence

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from router.vocabulary import Vocabulary

__all__ = ["Detokenizer"]

_LOG = logging.getLogger("router")
INVALID_PREFIX = "Invalid prefix encountered"
ENOUGH = 24
"""Tokens of the prompt that decide how the reply begins."""


class Detokenizer:
    """Text of one reply.

    Args:
        vocabulary: the model's tokenizer.
        prompt: token ids that the reply follows; they decide spaces and unfinished characters at its start.
        stop: strings that end the reply.
        keep_stop: leave the matched stop string in the text.
        skip_special: leave special tokens out.
        space_special: allow spaces between added tokens.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        prompt: Sequence[int],
        *,
        stop: Sequence[str] = (),
        keep_stop: bool = False,
        skip_special: bool = True,
        space_special: bool = True,
    ) -> None:
        self._tokenizer = vocabulary.tokenizer
        self._stream = DecodeStream(
            ids=_last(vocabulary.tokenizer, prompt, skip_special), skip_special_tokens=skip_special
        )
        self._skip_special = skip_special
        self._added = vocabulary.added if not (skip_special or space_special) else {}
        self._last_special = False
        self._stop = tuple(stop)
        self._keep_stop = keep_stop
        self._longest = max((len(each) for each in self._stop), default=1) - 1
        # The end of the text: what has not gone out yet, after the `_sent` characters that a match may still
        # begin in.
        self._tail = ""
        self._sent = 0

    def push(self, token: int) -> str | None:
        """Add a token; the stop string that it completes, if any."""
        new = self._decode(token)
        if not new:
            return None
        self._tail += new
        return self._match(len(new)) if self._stop else None

    def take(self, *, finished: bool) -> str:
        """Text that may go out now: all of it when ``finished``, else without what could "
        "begin a stop string."""
        if not self._longest:  # no match can begin in what has been said
            text, self._tail = self._tail, ""
            return text
        held = 0 if finished or self._keep_stop else self._longest
        end = max(len(self._tail) - held, self._sent)
        text = self._tail[self._sent : end]
        begin = max(0, min(end, len(self._tail) - self._longest))
        self._tail, self._sent = self._tail[begin:], end - begin
        return text

    def _match(self, new: int) -> str | None:
        found, cut, first_end = None, 0, len(self._tail) + 1
        for each in self._stop:
            at = self._tail.find(each, max(0, len(self._tail) - new - len(each) + 1))
            if at >= 0 and at + len(each) < first_end:
                found, first_end = each, at + len(each)
                cut = first_end if self._keep_stop else at
        if found is not None:
            self._tail = self._tail[:cut]
        return found

    def _decode(self, token: int) -> str:
        text = self._step(token)
        if self._added:
            content = self._added.get(token)
            if content is not None and self._last_special:
                text = content
            self._last_special = content is not None
        return text or ""

    def _step(self, token: int) -> str | None:
        try:
            text: str | None = self._stream.step(self._tokenizer, token)
        except (OverflowError, TypeError):
            _LOG.error("token id %r is none of the tokenizer's", token)
            return None
        except Exception as error:  # the tokenizers package raises bare Exceptions
            if not str(error).startswith(INVALID_PREFIX):
                raise
            # Ids that decode to text which is not a prefix of what follows leave the stream stuck: start it
            # anew.
            self._stream = DecodeStream(skip_special_tokens=self._skip_special)
            text = self._stream.step(self._tokenizer, token)
        return text


def _last(tokenizer: Tokenizer, prompt: Sequence[int], skip_special: bool) -> list[int]:
    """The last tokens of the prompt, where a stream behind them goes on as behind all of it; else all of it.

    A stream reads its ids once more at its first step, which took 0.4 ms for 1,000 tokens. They matter as far as a
    character, a run of byte tokens or a dropped leading space reaches; where the last tokens stand on their own, with
    text and no broken character, and no byte token begins them, none reaches further.
    """
    last = list(prompt[-ENOUGH:])
    if len(last) == len(prompt):
        return last
    try:
        begin, text = tokenizer.id_to_token(last[0]), tokenizer.decode(last, skip_special_tokens=skip_special)
    except (OverflowError, TypeError):  # no token's id
        return list(prompt)
    whole = begin is not None and not begin.startswith("<0x") and text.strip() and "\ufffd" not in text
    return last if whole else list(prompt)
