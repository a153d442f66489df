"""The answering side of `opponent`: read asks, time them, answer, until the pipe closes."""

import os
import time
from collections.abc import Callable

import msgspec

from deploy.opponents.opponent import Answer, Ask

__all__ = ["Tops", "answer_all"]

Tops = list[list[tuple[int, float]]]
Generate = Callable[[list[int], int, bool], tuple[list[int], Tops]]
"""generate(prompt, tokens, whether tops are wanted) -> (token ids, tops)"""


def answer_all(generate: Generate) -> None:
    """Answer each ask. Decode time is that of all tokens less that of the first alone, each on the same
    prompt.
    """
    down, up = (int(number) for number in os.environ["SPEEDTIER_BENCH_PIPES"].split(","))
    with os.fdopen(down, "rb") as asks, os.fdopen(up, "wb", buffering=0) as answers:
        for line in asks:
            ask = msgspec.json.decode(line, type=Ask)
            start = time.perf_counter()
            generate(ask.prompt, 1, False)
            middle = time.perf_counter()
            tokens, tops = generate(ask.prompt, ask.tokens, ask.tops)
            seconds = (time.perf_counter() - middle) - (middle - start)
            answers.write(msgspec.json.encode(Answer(seconds, tokens, tops)) + b"\n")
