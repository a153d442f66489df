"""Reasoning and tool parsers: vLLM's own classes, inside the router (the ``vllm`` extra).

Invariant (R8): a chat reply is parsed exactly where, and by the class with which, its prefill server would parse it;
where the router cannot, the request goes to the native pool.
"""

from router.parsers.loader import Parsers
from router.parsers.reply_parser import Message, ReplyParser

__all__ = ["Message", "Parsers", "ReplyParser"]
