"""Log-probabilities in the shapes of vLLM's two endpoints.

Invariant: a token's name is what vLLM gives it: its own text, or, where that ends inside a character, what it adds
to the up to four tokens before it (vllm/v1/engine/logprobs.py), or its id where the client asked for ids.
"""

from collections.abc import Iterator, Sequence

from router.logprobs import PLACEHOLDER, TokenLogprob
from router.vocabulary import Vocabulary

__all__ = ["Names", "chat_logprobs", "completion_logprobs"]

LEAST = -9999.0  # JSON has no minus infinity
CONTEXT = 4  # tokens; no character has more bytes
UNFINISHED = "\ufffd"


class Names:
    """Names the tokens of one reply, in order.

    Args:
        vocabulary: the model's.
        top: how many of the most likely tokens the client asked for.
        as_ids: tokens are named by their ids.
    """

    def __init__(self, vocabulary: Vocabulary, top: int, *, as_ids: bool) -> None:
        self._vocabulary = vocabulary
        self._context: list[int] = []
        self.top = top
        self.as_ids = as_ids

    def positions(self, logprobs: Sequence[TokenLogprob]) -> Iterator[list[tuple[str, str, float]]]:
        """For each position its entries, the sampled token first: name, text, log-probability."""
        for each in logprobs:
            found = []
            for token, value in each.entries(self.top).items():
                text = self._text(token)
                found.append((f"{PLACEHOLDER}{token}" if self.as_ids else text, text, max(value, LEAST)))
            self._context = [*self._context, each.token][-CONTEXT:]
            yield found

    def _text(self, token: int) -> str:
        text = self._vocabulary.text(token)
        return self._finished(token) if text.endswith(UNFINISHED) else text

    def _finished(self, token: int) -> str:
        decode = self._vocabulary.decode
        for length in range(1, len(self._context) + 1):
            context = self._context[-length:]
            whole = decode([*context, token])
            if whole.endswith(UNFINISHED):
                continue
            clean = length
            while clean and decode([context[clean - 1]]).endswith(UNFINISHED):
                clean -= 1
            before = decode(context[:clean]) if clean else ""
            common = 0
            for ours, theirs in zip(before, whole, strict=False):
                if ours != theirs:
                    break
                common += 1
            return whole[common:]
        return ""


def chat_logprobs(names: Names, logprobs: Sequence[TokenLogprob]) -> dict[str, object]:
    """``logprobs`` of a chat choice (``_create_chat_logprobs``)."""
    content = []
    for (name, text, value), *others in names.positions(logprobs):
        shown = [(name, value), *((other, least) for other, _, least in others)][: names.top]
        content.append(
            {
                "token": name,
                "logprob": value,
                "bytes": list(text.encode(errors="replace")),
                "top_logprobs": [
                    {"token": other, "logprob": least, "bytes": list(other.encode(errors="replace"))}
                    for other, least in shown
                ],
            }
        )
    return {"content": content}


def completion_logprobs(names: Names, logprobs: Sequence[TokenLogprob], offset: int) -> tuple[dict[str, object], int]:
    """``logprobs`` of a completion's choice (``_create_completion_logprobs``), for tokens that begin at the character
    ``offset`` of the names so far, and the offset behind them."""
    offsets, values, tokens, tops = [], [], [], []
    for entries in names.positions(logprobs):
        name, _, value = entries[0]
        offsets.append(offset)
        values.append(value)
        tokens.append(name)
        tops.append({other: least for other, _, least in entries[: names.top + 1]})
        offset += len(name)
    return {"text_offset": offsets, "token_logprobs": values, "tokens": tokens, "top_logprobs": tops}, offset
