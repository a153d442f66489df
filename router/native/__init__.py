"""The native tier: vLLM's own servers, singly or in pairs, and which of their endpoints clients reach.

Invariant: what a client writes reaches vLLM as it was written, and what vLLM answers reaches the client so.
"""

from router.native.endpoints import PASSED, SOCKETS, Passed, for_operators, refusal
from router.native.path import NativePath
from router.native.pool import Pool
from router.native.server import Server

__all__ = ["PASSED", "SOCKETS", "NativePath", "Passed", "Pool", "Server", "for_operators", "refusal"]
