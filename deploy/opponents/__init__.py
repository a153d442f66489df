"""Other implementations to be measured against, each in a process of its own.

Invariant: importing this imports no numba: vLLM's start-up trips over llvmlite when a process that loaded
it forks.
"""

from deploy.opponents.opponent import Answer, Ask, Opponent

__all__ = ["Answer", "Ask", "Opponent"]
