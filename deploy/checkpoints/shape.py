"""How the random weights are scaled, in one place, and the parts that both architectures share.

A random transformer at textbook scale is a map from the last token to the next one and loops after a few tens
of tokens. Here attention is sharp (scores with a standard deviation of about 2) and each branch adds about as
much as the stream already holds, so that the next token depends on several earlier ones and where they stand.

Invariant: head rows decide what greedy text looks like: turn markers never come up, the end token rarely,
stray bytes about once in a hundred tokens.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deploy.checkpoints.draw import matrix, norm
from deploy.checkpoints.tokenizer import Vocabulary

__all__ = ["BRANCH", "HIDDEN", "LENGTH", "LOGIT", "ROPE", "SHARP", "ends", "head", "mlp"]

HIDDEN = 256
LENGTH = 4096  # tokens
BRANCH = 1.5  # standard deviation that a branch adds to the stream
SHARP = 1.5  # gain of queries and of keys
LOGIT = 4.0  # standard deviation of the logits
ROPE: dict[str, Any] = {"rope_type": "default", "rope_theta": 10000.0}

_SILU = 0.6  # silu(a) * b of unit normals has about this standard deviation


def mlp(name: str, width: int, gain: float = BRANCH) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Gate, up and down projection of a SwiGLU block of `width` under `name`."""
    for part in ("gate_proj", "up_proj"):
        yield f"{name}.{part}.weight", matrix(f"{name}.{part}", width, HIDDEN)
    yield f"{name}.down_proj.weight", matrix(f"{name}.down_proj", HIDDEN, width, gain / _SILU)


def head(vocabulary: Vocabulary) -> NDArray[np.float32]:
    """Output rows `[vocabulary, HIDDEN]`, untied from the embedding."""
    rows = matrix("lm_head", vocabulary.size, HIDDEN, LOGIT)
    rows[list(vocabulary.markers)] = 0.0
    rows[vocabulary.end] *= 0.8
    rows[list(vocabulary.stray)] *= 0.85
    return rows


def ends(vocabulary: Vocabulary) -> dict[str, NDArray[np.float32]]:
    """Embedding, final norm and head."""
    embedding = matrix("model.embed_tokens", vocabulary.size, HIDDEN, np.sqrt(HIDDEN))
    return {
        "model.embed_tokens.weight": embedding,
        "model.norm.weight": norm("model.norm", HIDDEN),
        "lm_head.weight": head(vocabulary),
    }
