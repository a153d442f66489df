"""What an operator tells the router.

Invariant: a config that decodes is complete: every field has a default, and an empty list of servers makes the
requests that need it fail with 503 and the field's name, not the start.
"""

from router.config.nodes import DecodeNodeConfig, NativePair
from router.config.router import RouterConfig
from router.config.timeouts import Timeouts
from router.config.traffic import ApiKey, ModelAlias, TrafficClass

__all__ = ["ApiKey", "DecodeNodeConfig", "ModelAlias", "NativePair", "RouterConfig", "Timeouts", "TrafficClass"]
