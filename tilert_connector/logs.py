"""Makes our log lines visible in a process whose logging somebody else has set up.

Invariant: a logger that has a handler of its own, or above it, is left as it is.
"""

import logging

__all__ = ["share_handlers"]


def share_handlers(ours: str, theirs: str) -> None:
    """Let the loggers below `ours` write where those below `theirs` do, at the same level.

    vLLM gives handlers to its own loggers alone (vllm/logger.py); the root logger has none, so that of ours only bare
    warnings would show.
    """
    logger, other = logging.getLogger(ours), logging.getLogger(theirs)
    if not logger.hasHandlers():
        for handler in other.handlers:
            logger.addHandler(handler)
        logger.setLevel(other.getEffectiveLevel())
