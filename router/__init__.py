"""The OpenAI-compatible front: it decides which tier serves a request, guards the decode slots, and formats
replies.

Invariant: a client cannot tell the tiers apart, except by the ``x-speedtier-*`` headers and by how fast they
are.
"""

from router.config import DecodeNodeConfig, RouterConfig, Timeouts, TrafficClass
from router.server import running, serve

__all__ = ["DecodeNodeConfig", "RouterConfig", "Timeouts", "TrafficClass", "running", "serve"]
