"""Log-probabilities of sampled tokens, as both legs report them.

Invariant: a position holds its sampled token first and then the most likely ones, each once, in the order in which
vLLM keeps them (vllm/logprobs.py, ``append_logprobs_for_next_position``).
"""

from collections.abc import Sequence
from typing import NamedTuple

from router.errors import PeerBroken

__all__ = ["PLACEHOLDER", "Reported", "TokenLogprob", "paired"]

PLACEHOLDER = "token_id:"
"""How vLLM writes a token that it is to give by its id."""

Reported = tuple[float, int | None, list[tuple[int, float]]]
"""A decode node's account of one token: its log-probability, its rank, and the most likely ids with theirs."""


class TokenLogprob(NamedTuple):
    """One position. ``top``: the most likely ids with their log-probabilities, most likely first."""

    token: int
    logprob: float
    top: Sequence[tuple[int, float]]

    def entries(self, count: int) -> dict[int, float]:
        """The sampled token, then the others among the ``count`` most likely."""
        others = {token: value for token, value in self.top[:count] if token != self.token}
        return {self.token: self.logprob, **others}


def paired(tokens: Sequence[int], told: Sequence[Reported] | None, name: str) -> list[TokenLogprob]:
    """What a decode node tells of the tokens of one line.

    Raises:
        PeerBroken: it does not tell one thing for each token.
    """
    if told is None or len(told) != len(tokens):
        raise PeerBroken(
            f"decode node {name} was asked for logprobs and sent {len(told or ())} for {len(tokens)} tokens"
        )
    return [TokenLogprob(token, logprob, top) for token, (logprob, _, top) in zip(tokens, told, strict=True)]
