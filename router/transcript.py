"""One reply as it grows: text, ids, and when it ends.

Invariant: it ends at the token at which vLLM would end it, and in the same way: end ids before stop ids
before length (vllm/v1/core/sched/utils.py, ``check_stop``), and a completed stop string over all three
(vllm/v1/engine/output_processor.py). Tokens after the end are dropped.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from router.detokenizer import Detokenizer
from router.logprobs import TokenLogprob

__all__ = ["Delta", "Transcript"]


class Delta(NamedTuple):
    """What one step adds; ``finish_reason`` is set on the last. ``logprobs``: one for each id, where asked for."""

    text: str
    ids: Sequence[int]
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    logprobs: Sequence[TokenLogprob] = ()


class Transcript:
    """A reply.

    Args:
        detokenizer: makes the text.
        eos: ids that end the reply without a stop reason.
        stops: ids that end the reply and are its stop reason.
        max_tokens: the longest reply.
        keep_stop: the text of an ending token is part of the reply.
    """

    def __init__(
        self,
        detokenizer: Detokenizer,
        *,
        eos: Collection[int],
        stops: Collection[int],
        max_tokens: int,
        keep_stop: bool,
    ) -> None:
        self._detokenizer = detokenizer
        self._eos = frozenset(eos)
        self._stops = frozenset(stops)
        self._max_tokens = max_tokens
        self._keep_stop = keep_stop
        self.count = 0
        self.finish_reason: str | None = None
        self.by_text = False

    def feed(
        self,
        ids: Sequence[int],
        *,
        stopped: bool = False,
        stop_reason: int | str | None = None,
        logprobs: Sequence[TokenLogprob] = (),
    ) -> Delta:
        """Add tokens. ``stopped``: their sampler says that the last one ends the reply, for ``stop_reason``.
        ``logprobs``: one for each, or none."""
        reason: str | None = None
        why: int | str | None = None
        for kept, token in enumerate(ids, 1):
            self.count += 1
            if token in self._eos:
                reason = "stop"
            elif token in self._stops:
                reason, why = "stop", token
            elif stopped and kept == len(ids):
                reason, why = "stop", stop_reason
            elif self.count >= self._max_tokens:
                reason = "length"
            if reason != "stop" or self._keep_stop:
                matched = self._detokenizer.push(token)
                if matched is not None:
                    reason, why, self.by_text = "stop", matched, True
            if reason is not None:
                self.finish_reason = reason
                return Delta(self._detokenizer.take(finished=True), ids[:kept], reason, why, logprobs[:kept])
        return Delta(self._detokenizer.take(finished=False), ids, logprobs=logprobs)

    def close(self, finish_reason: str, stop_reason: int | str | None) -> Delta:
        """End a reply that its sampler ended for a reason that cannot be seen in its tokens."""
        self.finish_reason = finish_reason
        return Delta(self._detokenizer.take(finished=True), (), finish_reason, stop_reason)
