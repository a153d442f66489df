"""Replies in the shapes of vLLM's OpenAI endpoints.

Invariant (R8): the fields of every chunk and of every whole reply, nulls included, are those that vLLM 0.32
sends for the same request (vllm/entrypoints/openai/{chat_completion,completion}/serving.py). One field
differs on purpose: ``system_fingerprint`` names the decode node's fingerprint, for it is not vLLM that
decoded.
"""

from router.reply.chat import ChatReply
from router.reply.completion import CompletionReply
from router.reply.form import Form, Reply
from router.reply.logprobs import Names

__all__ = ["ChatReply", "CompletionReply", "Form", "Names", "Reply"]
