"""Makes our log lines visible in a process whose logging somebody else has set up, and keeps them lines.

Invariant: a logger that was given a handler is left as it is, and no line is written twice; nothing that a peer or a
client says ends a line or begins another.
"""

import logging

__all__ = ["printable", "share_handlers"]


def share_handlers(ours: str, theirs: str) -> None:
    """Let the loggers below `ours` write where those below `theirs` do, at the same level, if those have handlers.

    vLLM gives handlers to its own loggers alone (vllm/logger.py). The root logger has none, or one that a library has
    put there, which shows warnings only.
    """
    logger, other = logging.getLogger(ours), logging.getLogger(theirs)
    if other.handlers and not logger.handlers:
        for handler in other.handlers:
            logger.addHandler(handler)
        logger.setLevel(other.level)
        logger.propagate = other.propagate


def printable(text: str) -> str:
    """The text, with what is not printable escaped."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()
